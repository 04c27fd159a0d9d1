package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ref"
)

// embedded returns a generator of the embedded model on the CPU.
func embedded(t testing.TB) *generate.Generator {
	t.Helper()
	m, err := golden.Model()
	if err != nil {
		t.Fatal(err)
	}
	return generatorOf(t, m)
}

func generatorOf(t testing.TB, m *model.Model) *generate.Generator {
	t.Helper()
	e, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := generate.New(e, generate.Options{PrefixTokens: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// startModel serves a generator.
func startModel(t *testing.T, g *generate.Generator) string {
	t.Helper()
	_, url := start(t, newGenerator(g), Options{})
	return url
}

type completed struct {
	Choices []struct {
		Text   string
		Finish string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// TestModelAnswers compares the server with package generate, streamed and whole.
func TestModelAnswers(t *testing.T) {
	g := embedded(t)
	url := startModel(t, g)
	tests := []struct {
		name, fields string
		params       generate.Params
	}{
		{"greedy", `"temperature":0`, generate.Params{}},
		{"sampled", `"seed":3`, generate.Params{Sampling: sampling.Params{Temperature: 1, TopP: 1, RepeatPenalty: 1, Seed: 3}}},
		{"every parameter", `"seed":3,"temperature":0.7,"top_p":0.9,"top_k":20,"min_p":0.01,"presence_penalty":0.5,"frequency_penalty":0.25,"repetition_penalty":1.1,"logit_bias":{"40":-5},"min_tokens":12`,
			generate.Params{MinTokens: 12, Sampling: sampling.Params{Temperature: 0.7, TopP: 0.9, TopK: 20, MinP: 0.01, PresencePenalty: 0.5, FrequencyPenalty: 0.25, RepeatPenalty: 1.1, Bias: map[int]float32{40: -5}, Seed: 3}}},
		{"stop", `"temperature":0,"stop":" told"`, generate.Params{Stop: []string{" told"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() && tt.name != "stop" {
				t.Skip("one case is enough for a quick run")
			}
			tt.params.MaxTokens = 12
			var stats generate.Stats
			tt.params.Stats = &stats
			var want strings.Builder
			for token, err := range g.Text(t.Context(), "Well, Prince,", tt.params) {
				if err != nil {
					t.Fatal(err)
				}
				want.WriteString(token.Text)
			}
			body := `{"prompt":"Well, Prince,","max_tokens":12,` + tt.fields + `}`
			var got completed
			decodeInto(t, ask(t, "POST", url+textPath, body), &got)
			c := got.Choices[0]
			if c.Text != want.String() || c.Finish != finishReason(stats.Finish) {
				t.Errorf("%q, %s, want %q, %v", c.Text, c.Finish, want.String(), stats.Finish)
			}
			if u := got.Usage; u.Prompt != stats.PromptTokens || u.Completion != stats.GeneratedTokens || u.Details.Cached == 0 {
				t.Errorf("usage %+v, want that of %+v", u, stats)
			}
			streamed := ""
			for line := range strings.Lines(ask(t, "POST", url+textPath, strings.Replace(body, "{", `{"stream":true,`, 1)).body) {
				var chunk completed
				if data, ok := strings.CutPrefix(line, "data: {"); ok {
					if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
						t.Fatal(err)
					}
					streamed += chunk.Choices[0].Text
				}
			}
			if streamed != want.String() {
				t.Errorf("streamed %q, want %q", streamed, want.String())
			}
		})
	}
}

// TestModelPrompts: choices follow the order of the prompts.
func TestModelPrompts(t *testing.T) {
	url := startModel(t, embedded(t))
	answer := func(prompt string) string {
		var c completed
		decodeInto(t, ask(t, "POST", url+textPath, `{"temperature":0,"max_tokens":4,"n":2,"prompt":`+prompt+`}`), &c)
		text := ""
		for _, choice := range c.Choices {
			text += choice.Text + "|"
		}
		return text
	}
	one, two := answer(`"Well, Prince,"`), answer(`"Natasha"`)
	if both := answer(`["Well, Prince,","Natasha"]`); both != one+two || one == two {
		t.Errorf("%q, alone %q and %q", both, one, two)
	}
}

// TestModelConcurrent: answers under load equal those of the same requests alone.
func TestModelConcurrent(t *testing.T) {
	url := startModel(t, embedded(t))
	body := func(i int) string {
		return fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"seed":%d,"n":%d}`, "Well, Prince, said "+strings.Repeat("he ", i%3), 4+i%5, i, 1+i%2)
	}
	answer := func(i int) string {
		var c completed
		decodeInto(t, ask(t, "POST", url+textPath, body(i)), &c)
		return fmt.Sprint(c.Choices)
	}
	alone := make([]string, 12)
	if testing.Short() {
		alone = alone[:3]
	}
	for i := range alone {
		alone[i] = answer(i)
	}
	var wg sync.WaitGroup
	for i := range alone {
		wg.Go(func() {
			if got := answer(i); got != alone[i] {
				t.Errorf("request %d: %s, alone %s", i, got, alone[i])
			}
		})
	}
	wg.Wait()
	if got := scrape(t, url)[`vllm:num_requests_running{model_name="lockstep-tiny"}`]; got != "0" {
		t.Errorf("%q sequences run afterwards", got)
	}
}

// TestModelTokens: /tokenize and /detokenize are those of the file's vocabulary.
func TestModelTokens(t *testing.T) {
	g := embedded(t)
	url := startModel(t, g)
	const text = "Well, Prince, – 你好"
	tok := g.Model().Tokenizer
	for fields, want := range map[string][]int{
		``:                             func() []int { ids, _ := tok.Prompt(text, true, 1000); return ids }(),
		`,"add_special_tokens":false`:  tok.Encode(text, true),
		`,"parse_special":false`:       func() []int { ids, _ := tok.Prompt(text, false, 1000); return ids }(),
		`,"return_token_strs":true`:    func() []int { ids, _ := tok.Prompt(text, true, 1000); return ids }(),
		`,"unknown":{"field":[1,2,3]}`: func() []int { ids, _ := tok.Prompt(text, true, 1000); return ids }(),
	} {
		var got struct {
			Tokens []int `json:"tokens"`
		}
		decodeInto(t, ask(t, "POST", url+"/tokenize", `{"prompt":"`+text+`"`+fields+`}`), &got)
		if fmt.Sprint(got.Tokens) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", fields, got.Tokens, want)
		}
		var back struct{ Prompt string }
		decodeInto(t, ask(t, "POST", url+"/detokenize", string(marshal(got))), &back)
		if back.Prompt != text {
			t.Errorf("%s: back as %q", fields, back.Prompt)
		}
	}
}

// TestModelChat: a file without a chat template says so, one with a template answers.
func TestModelChat(t *testing.T) {
	r := ask(t, "POST", startModel(t, embedded(t))+chatPath, `{"messages":[{"role":"user","content":"hi"}]}`)
	if _, _, param, code := errorOf(t, r); r.status != 400 || param != "messages" || code != "no_chat_template" {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	spec.Set("tokenizer.chat_template", "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{ m.content }}{% endfor %}")
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	g := generatorOf(t, m)
	url := startModel(t, g)
	var got struct {
		Choices []struct{ Message struct{ Content string } }
	}
	decodeInto(t, ask(t, "POST", url+chatPath, `{"messages":[{"role":"user","content":"hi"}],"temperature":0,"max_tokens":3}`), &got)
	want := ""
	for token, err := range g.Text(context.Background(), "hi", generate.Params{MaxTokens: 3, ParseSpecial: true}) {
		if err != nil {
			t.Fatal(err)
		}
		want += token.Text
	}
	if got.Choices[0].Message.Content != want {
		t.Errorf("%q, want %q", got.Choices[0].Message.Content, want)
	}
}

// TestModelRefuses: a prompt that the model cannot take is refused by the name of its field.
func TestModelRefuses(t *testing.T) {
	url := startModel(t, embedded(t))
	for _, tt := range []struct{ path, body, param string }{
		{textPath, `{"prompt":"hi","max_tokens":1000000}`, "prompt"},
		{textPath, `{"prompt":[1000000]}`, "prompt[0]"},
	} {
		r := ask(t, "POST", url+tt.path, tt.body)
		if _, _, param, _ := errorOf(t, r); r.status != 400 || param != tt.param {
			t.Errorf("%s: status %d, param %q: %s", tt.body, r.status, param, r.body)
		}
	}
}

// TestModelLogprobs: log-probabilities are those of package generate; the first of the most likely
// tokens is the greedy one.
func TestModelLogprobs(t *testing.T) {
	g := embedded(t)
	url := startModel(t, g)
	var want []float32
	p := generate.Params{MaxTokens: 3, Sampling: sampling.Params{LogProb: true, TopLogProbs: 2}}
	for token, err := range g.Text(t.Context(), "Well, Prince,", p) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, token.LogProb)
	}
	var got struct {
		Choices []struct{ Logprobs textLogprobs }
	}
	decodeInto(t, ask(t, "POST", url+textPath, `{"prompt":"Well, Prince,","temperature":0,"max_tokens":3,"logprobs":2}`), &got)
	l := got.Choices[0].Logprobs
	if fmt.Sprint(l.TokenLogprobs) != fmt.Sprint(want) || len(want) != 3 {
		t.Errorf("log-probabilities %v, want %v", l.TokenLogprobs, want)
	}
	for i, top := range l.TopLogprobs {
		if len(top) != 2 || top[l.Tokens[i]] != want[i] || want[i] >= 0 {
			t.Errorf("token %d: the most likely are %v, the token is %q with %v", i, top, l.Tokens[i], want[i])
		}
	}
}

// TestModelEmbeddings: embeddings are those of package generate.
func TestModelEmbeddings(t *testing.T) {
	g := embedded(t)
	url := startModel(t, g)
	tokens, _ := g.Model().Tokenizer.Prompt("Well, Prince,", false, 1000)
	want, err := g.Embed(t.Context(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Data []struct{ Embedding []float32 }
	}
	decodeInto(t, ask(t, "POST", url+embedPath, `{"input":["Natasha","Well, Prince,"]}`), &got)
	if fmt.Sprint(got.Data[1].Embedding) != fmt.Sprint(want) || fmt.Sprint(got.Data[0].Embedding) == fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got.Data[1].Embedding[:4], want[:4])
	}
}
