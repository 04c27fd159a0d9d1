package servebench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseLengths(t *testing.T) {
	for _, text := range []string{"1", "256", "1048576", "1..9", "100..400", "lognormal:256:0.5", "lognormal:1.5:2:4096"} {
		var l Lengths
		if err := l.UnmarshalText([]byte(text)); err != nil || l.String() != text {
			t.Errorf("%s: %v, %v", text, l, err)
		}
	}
	for _, text := range []string{
		"", "0", "-1", "1.5", "x", "1048577", "9..1", "0..5", "1..", "..5", "1..2..3", "lognormal", "lognormal:256", "lognormal:0:1", "lognormal:NaN:1",
		"lognormal:256:0", "lognormal:256:-1", "lognormal:256:NaN", "lognormal:256:11", "lognormal:256:1:0", "lognormal:256:1:9:9", "normal:256:1",
	} {
		var l Lengths
		if err := l.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "want N, A..B or lognormal") {
			t.Errorf("%q: %v, error %v", text, l, err)
		}
	}
}

func parsed(t *testing.T, text string) (l Lengths) {
	t.Helper()
	if err := l.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDraw(t *testing.T) {
	const n = 20000
	for _, tt := range []struct {
		text              string
		low, median, high int // of the draws; the median within 3%
	}{
		{"7", 7, 7, 7},
		{"100..400", 100, 250, 400},
		{"lognormal:256:0.5", 1, 256, 256 * 16},
		{"lognormal:256:2:300", 1, 256, 300},
	} {
		l, r := parsed(t, tt.text), Load{Seed: 1}.random(0)
		draws := make([]int, n)
		for i := range draws {
			draws[i] = l.draw(r)
		}
		slices.Sort(draws)
		if median := draws[n/2]; draws[0] < tt.low || draws[n-1] > tt.high || math.Abs(float64(median-tt.median)) > 0.03*float64(tt.median) {
			t.Errorf("%s: %d, %d, %d; want %d to %d with median %d", tt.text, draws[0], draws[n/2], draws[n-1], tt.low, tt.high, tt.median)
		}
		if tt.text == "100..400" && (draws[0] != 100 || draws[n-1] != 400) {
			t.Errorf("the ends are not included: %d to %d", draws[0], draws[n-1])
		}
	}
	r := Load{Seed: 1}.random(0)
	logs, l := 0.0, parsed(t, "lognormal:1000:0.5")
	for range n {
		d := math.Log(float64(l.draw(r)) / 1000)
		logs += d * d
	}
	if sigma := math.Sqrt(logs / n); math.Abs(sigma-0.5) > 0.01 {
		t.Errorf("sigma %v, want 0.5", sigma)
	}
}

// Equal loads make equal plans; a property does not change another.
func TestPlan(t *testing.T) {
	load := Load{Rate: 4, Requests: 5000, Prompt: parsed(t, "100..400"), Output: parsed(t, "lognormal:64:0.3"), Prefixes: 3, PrefixTokens: 9, Seed: 5}
	plan := load.plan()
	if !slices.Equal(plan, load.plan()) {
		t.Error("equal loads differ")
	}
	other := load
	other.Seed++
	if other.plan()[0] == plan[0] {
		t.Error("two seeds give the same request")
	}
	fast := load
	fast.Rate, fast.Output = 8, fixed(9)
	used := map[int]int{}
	squares := 0.0
	for i, r := range fast.plan() {
		if p := plan[i]; r.PromptTokens != p.PromptTokens || r.prefix != p.prefix || math.Abs(2*r.Arrival-p.Arrival) > 1e-9*p.Arrival {
			t.Fatalf("request %d: %+v, at half the rate %+v", i, r, p)
		}
		used[r.prefix]++
	}
	if len(used) != 3 || used[0] < 1500 || used[1] < 1500 || used[2] < 1500 {
		t.Errorf("use of the prefixes: %v", used)
	}
	// Times between arrivals of a Poisson process: mean and deviation are both 1/rate.
	last := 0.0
	for _, r := range plan {
		squares += (r.Arrival - last) * (r.Arrival - last)
		last = r.Arrival
	}
	mean := last / 5000
	if deviation := math.Sqrt(squares/5000 - mean*mean); math.Abs(mean-0.25) > 0.01 || math.Abs(deviation-0.25) > 0.015 {
		t.Errorf("times between arrivals: %v ± %v, want 0.25 ± 0.25", mean, deviation)
	}
}

func TestReadTrace(t *testing.T) {
	got, err := ReadTrace([]byte(`{"arrival": 2, "prompt_tokens": 7, "output_tokens": 3}

{"arrival": 0.5, "prompt": "Hello", "output_tokens": 1}
{"arrival": 2, "prompt_tokens": 8, "output_tokens": 4}`))
	want := []Request{{Arrival: 0.5, Prompt: "Hello", OutputTokens: 1}, {Arrival: 2, PromptTokens: 7, OutputTokens: 3}, {Arrival: 2, PromptTokens: 8, OutputTokens: 4}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, tt := range []struct{ name, line, want string }{
		{"nothing", "", "no requests"},
		{"no JSON", "7", "line 2: json"},
		{"two objects", `{"arrival":0,"prompt_tokens":1,"output_tokens":1}{}`, "line 2: text after the object"},
		{"unknown field", `{"arrival":0,"prompt_tokens":1,"output_tokens":1,"x":1}`, `line 2: json: unknown field "x"`},
		{"no arrival", `{"prompt_tokens":1,"output_tokens":1}`, "line 2: arrival: "},
		{"negative arrival", `{"arrival":-1,"prompt_tokens":1,"output_tokens":1}`, "line 2: arrival: -1"},
		{"late arrival", `{"arrival":1e10,"prompt_tokens":1,"output_tokens":1}`, "line 2: arrival: 1e+10"},
		{"no output", `{"arrival":0,"prompt_tokens":1}`, "line 2: output_tokens: 0"},
		{"long output", `{"arrival":0,"prompt_tokens":1,"output_tokens":1048577}`, "line 2: output_tokens: 1048577"},
		{"no prompt", `{"arrival":0,"output_tokens":1}`, "line 2: prompt_tokens: 0"},
		{"negative prompt", `{"arrival":0,"prompt_tokens":-1,"output_tokens":1}`, "line 2: prompt_tokens: -1"},
		{"two prompts", `{"arrival":0,"prompt":"a","prompt_tokens":1,"output_tokens":1}`, "line 2: prompt_tokens: excludes prompt"},
	} {
		if got, err := ReadTrace([]byte("\n" + tt.line)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, error %v, want %q", tt.name, got, err, tt.want)
		}
	}
}

// A trace gives arrivals, lengths and texts.
func TestTrace(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) {
		w.begin()
		w.tokens(r.MaxTokens, ms)
		w.end(3, r.MaxTokens)
	}}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Load = Load{Trace: []Request{{Arrival: 0.5, Prompt: "Hello", OutputTokens: 2}, {Arrival: 3, PromptTokens: 7, OutputTokens: 3}, {Arrival: 9, PromptTokens: 1, OutputTokens: 1}}, Requests: 2}
		rep := mustRun(t, o)
		if len(f.seen) != 2 || string(f.seen[0].Prompt) != `"Hello"` || idsOf(t, f.seen[1]) != 7 || f.seen[1].at.Sub(f.seen[0].at) != 2500*ms ||
			rep.OutputTokens != 5 || rep.Load.Arrivals != "trace" || rep.Load.Prompt != "" || rep.Load.Requests != 2 {
			t.Errorf("%+v, %+v", f.seen, rep)
		}
	})
}

// idsOf returns the number of token ids of a prompt.
func idsOf(t *testing.T, r received) int {
	t.Helper()
	var ids []int
	if err := json.Unmarshal(r.Prompt, &ids); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if id < 0 || id >= 100 {
			t.Errorf("token id %d", id)
		}
	}
	return len(ids)
}

// Prompts as token ids have exact lengths and begin with a shared prefix.
func TestIDs(t *testing.T) {
	load := Load{Rate: 1, Requests: 60, Prompt: parsed(t, "5..50"), Output: fixed(1), Prefixes: 2, PrefixTokens: 20, Seed: 3}
	p := prompts{load: load, plan: load.plan(), vocab: 100}
	prefixes, whole := map[string]int{}, map[string]bool{}
	for i, r := range p.plan {
		ids := p.of(i).([]int)
		if len(ids) != 20+r.PromptTokens {
			t.Errorf("request %d has %d tokens, want 20 + %d", i, len(ids), r.PromptTokens)
		}
		if r.prefix != p.plan[0].prefix == slices.Equal(ids[:20], p.of(0).([]int)[:20]) {
			t.Errorf("request %d: wrong prefix", i)
		}
		text, _ := json.Marshal(ids)
		prefix, _ := json.Marshal(ids[:20])
		prefixes[string(prefix)]++
		whole[string(text)] = true
	}
	if len(prefixes) != 2 || len(whole) != 60 {
		t.Errorf("%d prefixes and %d prompts, want 2 and 60", len(prefixes), len(whole))
	}
}

// counters are vocabularies: the number of tokens of a text.
var counters = map[string]func(text string) int{
	"word": func(text string) int { return len(strings.Fields(text)) },
	"BOS":  func(text string) int { return 1 + len(strings.Fields(text)) },
	"some words in two": func(text string) int {
		return len(strings.Fields(text)) + strings.Count(text, " s")
	},
	"bytes": func(text string) int { return len(text) },
	"pairs": func(text string) int { return (len(strings.Fields(text)) + 1) / 2 },
}

// Words fit the planned length as nearly as the vocabulary allows.
func TestFit(t *testing.T) {
	load := Load{Rate: 1, Requests: 30, Prompt: parsed(t, "8..300"), Output: fixed(1), Prefixes: 2, PrefixTokens: 50, Seed: 3}
	for name, count := range counters {
		p := prompts{load: load, plan: load.plan()}
		calls := 0
		err := p.fit(t.Context(), func(_ context.Context, text string) (int, error) { calls++; return count(text), nil })
		if err != nil {
			t.Fatal(err)
		}
		off := map[string]int{"bytes": 1}[name] // a short word has two bytes
		for i, r := range p.plan {
			text := p.of(i).(string)
			if got, want := count(text), 50+r.PromptTokens; max(got-want, want-got) > off {
				t.Errorf("%s: request %d has %d tokens, want %d", name, i, got, want)
			}
			if prefix := p.prefix(r.prefix); !strings.HasPrefix(text, prefix) || max(count(prefix)-50, 50-count(prefix)) > off {
				t.Errorf("%s: request %d begins with %d tokens of %q", name, i, count(prefix), prefix)
			}
		}
		if calls > 32*20 {
			t.Errorf("%s: %d calls", name, calls)
		}
	}
}

// A server that counts nonsense ends the search.
func TestFitEnds(t *testing.T) {
	for _, got := range []int{1, 10, 1000} {
		calls := 0
		n, err := fitSize(10, func(n size) (int, error) {
			if calls++; n.words < 0 || n.words > 40 || n.short > 10 || n == (size{}) {
				t.Errorf("%+v for 10 tokens", n)
			}
			return got, nil
		})
		if err != nil || n == (size{}) || calls > 60 {
			t.Errorf("always %d: %+v after %d calls, %v", got, n, calls, err)
		}
	}
	for want, best := range map[int]size{10: {1, 3}, 6: {0, 6}, 7: {1, 0}} {
		n, err := fitSize(want, func(n size) (int, error) { return 7*n.words + n.short, nil })
		if err != nil || n != best {
			t.Errorf("%+v of words of 7 tokens for %d tokens, want %+v, %v", n, want, best, err)
		}
	}
	// Short words of 4 tokens do not fit, and two words are nearest.
	if n, err := fitSize(13, func(n size) (int, error) { return 7*n.words + 4*n.short, nil }); err != nil || n != (size{2, 0}) {
		t.Errorf("%+v, %v", n, err)
	}
	broken := errors.New("broken")
	if _, err := fitSize(10, func(size) (int, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Text prompts have the length that the server counts.
func TestTokenize(t *testing.T) {
	f := &fake{answer: func(w stream, n int, r received) {
		w.begin()
		w.tokens(4, ms)
		w.end(3, 4)
	}, tokenize: counters["BOS"]}
	bubble(t, f, func(t *testing.T, o Options) {
		o.Vocab, o.Load.Prompt = 0, fixed(20)
		rep := mustRun(t, o)
		for _, r := range f.seen {
			var text string
			if err := json.Unmarshal(r.Prompt, &text); err != nil || len(strings.Fields(text)) != 19 {
				t.Errorf("%s, %v", r.Prompt, err)
			}
		}
		if d := cmp.Diff("words counted by /tokenize", rep.Load.Content); d != "" {
			t.Error(d)
		}
		o.Target.Chat = true
		mustRun(t, o)
		first, last := f.counted[0], f.counted[len(f.counted)-1]
		if string(first.Prompt) != mustJSON(t, first.Content) || !first.AddSpecial || !first.AddTokens || last.AddSpecial || last.AddTokens {
			t.Errorf("requests of /tokenize: %s for completions, %s for chat", first.raw, last.raw)
		}
		f.tokenize = func(string) int { return 0 }
		note := ""
		o.Note = func(text string) { note = text }
		if rep := mustRun(t, o); rep.Load.Content != "one word per token" || !strings.Contains(note, "/tokenize: ") {
			t.Errorf("%+v, note %q", rep.Load, note)
		}
	})
}
