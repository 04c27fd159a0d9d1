package generate

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStopper(t *testing.T) {
	tests := []struct {
		name, reason string
		stops        []string
		pieces       []string
		want         []string // text after each piece, the stopping one included
		stopped      bool
		rest         string
	}{
		{"no stops", "nothing to hold back", nil,
			[]string{"a", "b"}, []string{"a", "b"}, false, ""},
		{"whole", "a stop string in one piece", []string{"END"},
			[]string{"a", "END"}, []string{"a", ""}, true, ""},
		{"inside", "text before it is shown, text after it is not", []string{"END"},
			[]string{"aENDb"}, []string{"a"}, true, ""},
		{"across three", "its beginning is never shown", []string{"END"},
			[]string{"xE", "N", "Dy"}, []string{"x", "", ""}, true, ""},
		{"false alarm", "what was held back comes with the piece that decides", []string{"END"},
			[]string{"E", "N", "d"}, []string{"", "", "ENd"}, false, ""},
		{"overlapping alarm", "the second beginning starts inside the first", []string{"aab"},
			[]string{"a", "a", "a", "b"}, []string{"", "", "a", ""}, true, ""},
		{"never decided", "held back text is flushed", []string{"END"},
			[]string{"x", "EN"}, []string{"x", ""}, false, "EN"},
		{"first complete wins", "it does not matter which began first", []string{"abc", "b"},
			[]string{"abc"}, []string{"a"}, true, ""},
		{"longest of those that end together", "nothing of a stop string is shown", []string{"c", "bc"},
			[]string{"abc"}, []string{"a"}, true, ""},
		{"longest of those that end together, first", "their order does not matter", []string{"bc", "c"},
			[]string{"abc"}, []string{"a"}, true, ""},
		{"two candidates", "the longest possible beginning is held", []string{"abcd", "cx"},
			[]string{"abc", "x"}, []string{"", "ab"}, true, ""},
		{"first piece", "a text can begin with a stop string", []string{"a"},
			[]string{"a"}, []string{""}, true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := stopper{stops: tt.stops}
			var got []string
			var stopped bool
			for _, p := range tt.pieces {
				if stopped {
					t.Fatalf("stopped before %q", p)
				}
				var text string
				text, stopped = s.feed(p, true)
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || stopped != tt.stopped {
				t.Errorf("%s: stopped %v, want %v; texts (-want +got):\n%s", tt.reason, stopped, tt.stopped, diff)
			}
			if s.heldBack != tt.rest {
				t.Errorf("%s: held back %q, want %q", tt.reason, s.heldBack, tt.rest)
			}
		})
	}
}

// The text must not depend on where pieces begin and end.
func TestStopperPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		var b strings.Builder
		for range 1 + random.IntN(n) {
			b.WriteByte("abc"[random.IntN(3)])
		}
		return b.String()
	}
	for range 3000 {
		stops := make([]string, random.IntN(4))
		for i := range stops {
			stops[i] = word(4)
		}
		text := word(24)
		single := show(stops, strings.Split(text, ""))
		var pieces []string
		for rest := text; rest != ""; {
			n := 1 + random.IntN(len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if got := show(stops, pieces); got != single {
			t.Fatalf("stops %q, pieces %q: %q, one by one %q", stops, pieces, got, single)
		}
		for _, s := range stops {
			if strings.Contains(single, s) {
				t.Fatalf("stops %q, text %q: %q was shown", stops, text, single)
			}
		}
		if !strings.HasPrefix(text, single) {
			t.Fatalf("text %q gave %q", text, single)
		}
	}
}

func show(stops, pieces []string) string {
	s := stopper{stops: stops}
	var shown strings.Builder
	for _, p := range pieces {
		text, stopped := s.feed(p, true)
		shown.WriteString(text)
		if stopped {
			return shown.String()
		}
	}
	return shown.String() + s.heldBack
}
