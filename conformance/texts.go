package conformance

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// textBehaviors cover text input and output.
var textBehaviors = []Behavior{
	{"whole characters", "each token's text is valid UTF-8 and no text is lost", wholeCharacters},
	{"stop string across tokens", "found at any offset in tokens, and not part of the text", stopStrings},
	{"text prompt", "a text gives the results of its tokens", textPrompt},
	{"empty text prompt", "BOS alone is a prompt; without BOS an error", emptyText},
}

func wholeCharacters(r *fixture) {
	tok := r.engine.Model().Tokenizer
	for seed := range uint64(4) {
		p := generate.Params{MaxTokens: 24, Sampling: sampling.Params{Temperature: 2, Seed: seed}, IgnoreEOS: true}
		prompt := r.tokens(3, 50)
		var ids []int
		var text strings.Builder
		for t, err := range generate.Tokens(r.t.Context(), r.engine, prompt, p) {
			if err != nil {
				r.t.Fatalf("generating: %v", err)
			}
			if !utf8.ValidString(t.Text) {
				r.t.Errorf("token %d shows %q", t.ID, t.Text)
			}
			ids = append(ids, t.ID)
			text.WriteString(t.Text)
		}
		d := tok.NewDecoder(prompt...)
		var want strings.Builder
		for _, id := range ids {
			want.WriteString(d.Next(id))
		}
		want.WriteString(d.Flush())
		r.equal("the whole text", want.String(), text.String())
	}
}

func stopStrings(r *fixture) {
	prompt := r.tokens(5, 51)
	free := r.generate(prompt, generate.Params{MaxTokens: 24, Sampling: sampling.Params{Temperature: 2}})
	runes := []rune(free.Text)
	if len(runes) < 8 {
		r.t.Fatalf("the model wrote only %q", free.Text)
	}
	for from := 0; from+4 <= len(runes); from += 3 {
		stop := string(runes[from : from+4])
		var stats generate.Stats
		p := generate.Params{MaxTokens: 24, Sampling: sampling.Params{Temperature: 2}, Stop: []string{"\x00never", stop}, Stats: &stats}
		got := r.generate(prompt, p)
		want, _, _ := strings.Cut(free.Text, stop)
		r.equal("text before "+stop, want, got.Text)
		r.equal("finish", generate.FinishStopString, stats.Finish)
	}
}

func textPrompt(r *fixture) {
	const text = "the other text"
	m := r.engine.Model()
	prompt, err := m.Prompt(text, false, m.Config.Context)
	if err != nil {
		r.t.Fatalf("%q: %v", text, err)
	}
	p := generate.Params{MaxTokens: 5, IgnoreEOS: true}
	got := collect(generate.Text(r.t.Context(), r.engine, text, p))
	if got.Err != nil {
		r.t.Fatalf("%q: %v", text, got.Err)
	}
	r.equal("tokens", r.generate(prompt, p), got)
}

func emptyText(r *fixture) {
	got := collect(generate.Text(r.t.Context(), r.engine, "", generate.Params{MaxTokens: 1, IgnoreEOS: true}))
	m := r.engine.Model()
	if prompt, err := m.Prompt("", false, m.Config.Context); err == nil && len(prompt) == 0 {
		if !errors.Is(got.Err, model.ErrEmptyPrompt) || len(r.engine.reset()) != 0 {
			r.t.Errorf("an empty text: error %v", got.Err)
		}
		return
	}
	if got.Err != nil || len(got.IDs) != 1 {
		r.t.Errorf("BOS alone: %d tokens, error %v", len(got.IDs), got.Err)
	}
}
