package generate

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// anything is a mask that permits every token.
func anything() func([]int) ([]uint32, error) {
	all := slices.Repeat([]uint32{math.MaxUint32}, sampling.MaskLen(tiny.Vocab))
	return func([]int) ([]uint32, error) { return all, nil }
}

func TestStopTokens(t *testing.T) {
	paths := map[string]Params{
		"greedy":    {},
		"drawn":     {Sampling: sampling.Params{Temperature: 0.5, TopK: 40}},
		"penalized": {Sampling: sampling.Params{FrequencyPenalty: 0.001}},
		"masked":    {Mask: anything},
		"hooked":    {Logits: func([]int, []float32) {}},
	}
	tests := []struct {
		name, reason string
		says         string
		p            Params
		want         string
		finish       FinishReason
	}{
		{"of the vocabulary", "ends without being shown", "ab", Params{MaxTokens: 9}, "ab", FinishStopToken},
		{"first", "a generation may be empty", "", Params{MaxTokens: 9}, "", FinishStopToken},
		{"of the caller", "ends like the vocabulary's", "abc", Params{MaxTokens: 9, StopTokens: []int{'c'}}, "ab", FinishStopToken},
		{"ignored", "goes on past EOS", "ab", Params{MaxTokens: 4, IgnoreEOS: true}, "ab", FinishLength},
		{"ignored but the caller's", "an explicit wish counts", "ab",
			Params{MaxTokens: 4, IgnoreEOS: true, StopTokens: []int{tiny.End}}, "ab", FinishStopToken},
		{"after the last", "the limit comes first", "ab", Params{MaxTokens: 2}, "ab", FinishLength},
	}
	for _, tt := range tests {
		for path, how := range paths {
			t.Run(tt.name+"/"+path, func(t *testing.T) {
				e := newFake(t).speak(2, tt.says)
				p, stats := tt.p, Stats{}
				p.Sampling, p.Mask, p.Logits, p.Stats = how.Sampling, how.Mask, how.Logits, &stats
				got := collect(Tokens(t.Context(), e, []int{1, 2}, p))
				if got.Err != nil || got.Text != tt.want || stats.Finish != tt.finish {
					t.Errorf("%s: %q, finish %v, error %v; want %q, %v", tt.reason, got.Text, stats.Finish, got.Err, tt.want, tt.finish)
				}
				if stats.GeneratedTokens != len(got.IDs) {
					t.Errorf("%d tokens counted, %d given", stats.GeneratedTokens, len(got.IDs))
				}
				e.idle(t, nil)
			})
		}
	}
}

// Text is yielded with the token that completes it.
func TestTokenTexts(t *testing.T) {
	tests := []struct {
		name, reason string
		says         string
		p            Params
		ids          []int
		texts        []string
		finish       FinishReason
	}{
		{"letters", "one per token", "ab", Params{MaxTokens: 2}, []int{'a', 'b'}, []string{"a", "b"}, FinishLength},
		{"two bytes", "a character comes whole", "é!", Params{MaxTokens: 3}, []int{0xC3, 0xA9, '!'}, []string{"", "é", "!"}, FinishLength},
		{"cut by the limit", "half a character is shown as such, with the last token", "é", Params{MaxTokens: 1},
			[]int{0xC3}, []string{"\uFFFD"}, FinishLength},
		{"cut by the end", "and after it when the end came unseen", "a\xC3", Params{MaxTokens: 9},
			[]int{'a', 0xC3, NoToken}, []string{"a", "", "\uFFFD"}, FinishStopToken},
		{"stop string", "its beginning is held back, the token that completes it not shown", "aENDb",
			Params{MaxTokens: 9, Stop: []string{"END"}}, []int{'a', 'E', 'N'}, []string{"a", "", ""}, FinishStopString},
		{"false alarm at the end", "what was held back comes when it ends", "aEN",
			Params{MaxTokens: 9, Stop: []string{"END"}}, []int{'a', 'E', 'N', NoToken}, []string{"a", "", "", "EN"}, FinishStopToken},
		{"false alarm at the limit", "with the last token", "aENx",
			Params{MaxTokens: 3, Stop: []string{"END"}}, []int{'a', 'E', 'N'}, []string{"a", "", "EN"}, FinishLength},
		{"completed by the last token", "a stop string, not the limit", "aEND",
			Params{MaxTokens: 4, Stop: []string{"END"}}, []int{'a', 'E', 'N'}, []string{"a", "", ""}, FinishStopString},
		{"stop of one character of two bytes", "found when whole", "aéb",
			Params{MaxTokens: 9, Stop: []string{"é"}}, []int{'a', 0xC3}, []string{"a", ""}, FinishStopString},
		{"half a character behind it", "nothing comes after a stop string", "xa\xC3\xC3b",
			Params{MaxTokens: 9, Stop: []string{"a\uFFFD"}}, []int{'x', 'a', 0xC3}, []string{"x", "", ""}, FinishStopString},
		{"nothing before it", "the first token is a stop string", "a",
			Params{MaxTokens: 9, Stop: []string{"a"}}, nil, nil, FinishStopString},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t).speak(1, tt.says)
			var stats Stats
			tt.p.Stats = &stats
			got := collect(Tokens(t.Context(), e, []int{1}, tt.p))
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			if diff := cmp.Diff([]any{tt.ids, tt.texts, tt.finish}, []any{got.IDs, got.Texts, stats.Finish}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
			e.idle(t, nil)
		})
	}
}

// If a prompt ends inside a character, the first generated token completes it.
func TestPromptEndsInsideCharacter(t *testing.T) {
	for says, want := range map[string]string{"\xA9!": "é!", "": "", "!": "\uFFFD!"} {
		e := newFake(t).speak(2, says)
		got := collect(Tokens(t.Context(), e, []int{1, 0xC3}, Params{MaxTokens: 9}))
		if got.Err != nil || got.Text != want {
			t.Errorf("%q after half a character: %q, error %v; want %q", says, got.Text, got.Err, want)
		}
	}
}

// A token may contain text and the beginning or the end of a stop string.
func TestStopInsideToken(t *testing.T) {
	const the = 256 + 1 // the token "the"
	tests := []struct {
		name, reason string
		stop         string
		want         collected
	}{
		{"beginning", "only that is held back, and the token that completes it not shown", "eth",
			collected{IDs: []int{the}, Texts: []string{"th"}, Text: "th"}},
		{"whole", "the token is shown for the text before", "he",
			collected{IDs: []int{the}, Texts: []string{"t"}, Text: "t"}},
		{"end", "what was held back comes with the token that decides", "eet",
			collected{IDs: []int{the, the}, Texts: []string{"th", "ethe"}, Text: "thethe"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t)
			e.choose = func([]int) int { return the }
			got := collect(Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 2, Stop: []string{tt.stop}}))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func TestGenerateText(t *testing.T) {
	tests := []struct {
		name, reason string
		addBOS       bool
		prompt       string
		special      bool
		want         []int // prompt of the engine; nil: ErrEmptyPrompt
	}{
		{"plain", "BOS and bytes", true, "ab", false, []int{tiny.Begin, 'a', 'b'}},
		{"without BOS", "as the vocabulary says", false, "ab", false, []int{'a', 'b'}},
		{"empty with BOS", "BOS alone is a prompt", true, "", false, []int{tiny.Begin}},
		{"empty without BOS", "nothing to continue", false, "", false, nil},
		{"special", "parsed on request", true, "a<|end|>", true, []int{tiny.Begin, 'a', tiny.End}},
		{"BOS in the text", "not doubled", true, "<|begin|>a", true, []int{tiny.Begin, 'a'}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := tiny.New("llama", 1)
			spec.AddVocab(tt.addBOS)
			m, err := model.Load(spec.File())
			if err != nil {
				t.Fatal(err)
			}
			e := newFakeOf(t, m)
			got := collect(Text(t.Context(), e, tt.prompt, Params{MaxTokens: 1, ParseSpecial: tt.special}))
			if tt.want == nil {
				if !errors.Is(got.Err, model.ErrEmptyPrompt) {
					t.Errorf("%s: error %v, want ErrEmptyPrompt", tt.reason, got.Err)
				}
				return
			}
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			if diff := cmp.Diff(tt.want, e.rows()[0].Tokens); diff != "" {
				t.Errorf("%s: prompt (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// A text beyond the context is refused before anything is computed, and before all of it is
// encoded.
func TestTextBeyondContext(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		options      Options
		want         string
	}{
		{"context", "the model's limit", Options{}, "more than 96 tokens and there are 96 positions"},
		{"capacity", "the generator's limit", Options{Capacity: 16}, "more than 16 tokens and there are 16 positions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t)
			g := newTest(t, e, tt.options)
			text := strings.Repeat("ab ", 1<<20)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			errs := []error{
				collect(g.Text(t.Context(), text, Params{MaxTokens: 1})).Err,
				g.BatchText(t.Context(), []string{text}, Params{})[0].Err,
			}
			runtime.ReadMemStats(&after)
			for _, err := range errs {
				if !errors.Is(err, model.ErrContextLimit) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: error %v, want %q", tt.reason, err, tt.want)
				}
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
				t.Errorf("%s: a prompt of %d bytes took %d bytes of memory", tt.reason, len(text), used)
			}
			if e.opened > 0 {
				t.Errorf("%d sequences: something was computed", e.opened)
			}
		})
	}
}

func TestWithoutVocabulary(t *testing.T) {
	e := newFake(t).withoutVocabulary()
	if got := collect(Text(t.Context(), e, "a", Params{MaxTokens: 1})); !errors.Is(got.Err, model.ErrNoTokenizer) {
		t.Errorf("a text prompt gave %v", got.Err)
	}
	if got := collect(Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 1, Stop: []string{"a"}})); !errors.Is(got.Err, model.ErrNoTokenizer) {
		t.Errorf("a stop string gave %v", got.Err)
	}
	got := collect(Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 4}))
	if got.Err != nil || len(got.IDs) != 4 || got.Text != "" {
		t.Errorf("ids: %+v", got)
	}
}

// With an unsupported vocabulary a model still computes with token ids.
func TestUnknownVocabulary(t *testing.T) {
	for _, tt := range []struct {
		name, reason, key, value string
		sentinel                 error
	}{
		{"unknown pre-tokenizer", "no such split", "tokenizer.ggml.pre", "gpt-22", tokenizer.ErrUnsupported},
		{"unknown model", "no such algorithm", "tokenizer.ggml.model", "t5", tokenizer.ErrUnsupported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := tiny.New("llama", 1)
			spec.AddVocab(true)
			spec.Set(tt.key, tt.value)
			m, err := model.Load(spec.File())
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			if m.Tokenizer != nil {
				t.Error("a tokenizer of an unknown kind")
			}
			if _, err := model.LoadTokenizer(spec.File()); !errors.Is(err, tt.sentinel) {
				t.Errorf("LoadTokenizer gave %v", err)
			}
			e := newFakeOf(t, m)
			_, need := m.NeedTokenizer()
			for what, err := range map[string]error{
				"NeedTokenizer": need,
				"a text prompt": collect(Text(t.Context(), e, "a", Params{MaxTokens: 1})).Err,
				"a stop string": collect(Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 1, Stop: []string{"a"}})).Err,
				"a batch":       newGenerator(e, Options{}).BatchText(t.Context(), []string{"a"}, Params{MaxTokens: 1})[0].Err,
			} {
				if !errors.Is(err, model.ErrNoTokenizer) || !errors.Is(err, tt.sentinel) || !strings.Contains(err.Error(), tt.key+` is "`+tt.value) {
					t.Errorf("%s gave %v", what, err)
				}
			}
			if got := collect(Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 2})); got.Err != nil || len(got.IDs) != 2 {
				t.Errorf("ids: %+v", got)
			}
		})
	}
}
