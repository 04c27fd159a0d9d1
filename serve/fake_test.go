package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// fake is a backend that answers with a fixed text. Its tokens are bytes.
type fake struct {
	answer    string
	context   int
	noChat    bool
	refuse    error // of compile
	fail      error // after failAt tokens
	failAt    int
	only      func(p *params, i int) bool // if set, fail replaces these tokens
	hidden    int                         // tokens that only complete a stop string
	blind     bool                        // ignores canceled contexts
	newParser func() answerParser

	// step, if set, runs before each token.
	step func(ctx context.Context, i int)

	state     generate.Load
	generated atomic.Int64 // calls of generate
	running   atomic.Int64
	prompts   chan []int // receives the prompt of each generation if not nil
	asked     chan params
}

func newFake(answer string) *fake { return &fake{answer: answer, context: 1000} }

func (f *fake) info() info {
	return info{name: "fake", context: f.context, chat: !f.noChat, vocab: 256}
}

func (f *fake) tokenize(text string, bos, special bool) ([]int, error) {
	ids := []int{}
	for _, b := range []byte(text) {
		ids = append(ids, int(b))
	}
	return ids, nil
}

func (f *fake) detokenize(tokens []int) (string, error) {
	var s []byte
	for _, id := range tokens {
		s = append(s, byte(id))
	}
	return string(s), nil
}

func (f *fake) bytes(token int) []byte { return []byte{byte(token)} }

func (f *fake) render(c *conversation) (rendered, error) {
	if f.noChat {
		return rendered{}, tokenizer.ErrNoChatTemplate
	}
	var text strings.Builder
	for _, t := range c.tools {
		text.Write(t.definition)
	}
	for _, m := range c.messages {
		text.WriteString(m.role + ":" + m.content + "\n")
	}
	tokens, err := f.tokenize(text.String(), true, true)
	return rendered{tokens: tokens, newParser: f.newParser}, err
}

func (f *fake) compile(context.Context, *params) error { return f.refuse }

func (f *fake) generate(ctx context.Context, prompt []int, p *params, out *outcome) iter.Seq2[token, error] {
	return func(yield func(token, error) bool) {
		f.generated.Add(1)
		f.running.Add(1)
		defer f.running.Add(-1)
		if f.prompts != nil {
			f.prompts <- prompt
		}
		if f.asked != nil {
			f.asked <- *p
		}
		*out = outcome{finish: "stop", tokens: f.hidden, cached: 1}
		for i, b := range []byte(f.answer) {
			if f.step != nil {
				f.step(ctx, i)
			}
			switch {
			case ctx.Err() != nil && !f.blind:
				yield(token{}, ctx.Err())
				return
			case f.fail != nil && i == f.failAt, f.only != nil && f.only(p, i):
				yield(token{}, f.fail)
				return
			case i == p.maxTokens:
				out.finish = "length"
				return
			}
			t := token{id: int(b), text: string(rune(b)), logprob: -0.5}
			for k := range p.topLogprobs {
				t.top = append(t.top, sampling.LogProb{Token: int(b) + k, LogProb: -0.5 - float32(k)})
			}
			out.tokens++
			if !yield(t, nil) {
				return
			}
		}
	}
}

func (f *fake) embed(ctx context.Context, tokens []int) ([]float32, error) {
	return []float32{0.6, 0, 0.8}, f.fail
}

func (f *fake) load() generate.Load { return f.state }

// start serves a backend until the test ends.
func start(t *testing.T, b backend, o Options) (*Server, string) {
	t.Helper()
	s, err := newServer(b, o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

// response is a response that was read to its end.
type response struct {
	status int
	header http.Header
	body   string
}

// ask sends a request with a JSON body, or without one if body is empty. Headers alternate names
// and values.
func ask(t *testing.T, method, url, body string, headers ...string) response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host") // "": that of the URL
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{w.StatusCode, w.Header, string(text)}
}

// errorOf decodes OpenAI's error object and requires all of its keys.
func errorOf(t *testing.T, r response) (message, kind, param, code string) {
	t.Helper()
	var body struct {
		Error map[string]*string `json:"error"`
	}
	d := json.NewDecoder(strings.NewReader(r.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil || len(body.Error) != 4 {
		t.Fatalf("status %d: no error object: %v: %s", r.status, err, r.body)
	}
	get := func(key string) string {
		v, ok := body.Error[key]
		if !ok {
			t.Fatalf("the error has no %s: %s", key, r.body)
		}
		if v == nil {
			return ""
		}
		return *v
	}
	return get("message"), get("type"), get("param"), get("code")
}

// decodeInto decodes a response with status 200.
func decodeInto(t *testing.T, r response, into any) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), into); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
}

// steady replaces the values that differ from run to run.
func steady(text string) string {
	var out bytes.Buffer
	for line := range strings.SplitAfterSeq(text, "\n") {
		for _, key := range []string{`"id":"`, `"created":`} {
			if _, rest, ok := strings.Cut(line, key); ok {
				end := strings.IndexAny(rest, `",`)
				line = strings.Replace(line, key+rest[:end], key+"?", 1)
			}
		}
		out.WriteString(line)
	}
	return out.String()
}
