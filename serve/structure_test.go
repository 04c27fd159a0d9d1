package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/generate/constraint"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

const (
	answerSchema = `{"type":"object","properties":{"name":{"type":"string","maxLength":6},"age":{"type":"integer"},"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":2}},"required":["name","age","tags"]}`
	letters      = `[a-z]{3,12}(, [a-z]{3,12}){2}`
)

// isAnswer checks a text against answerSchema.
func isAnswer(text string) error {
	var v struct {
		Name *string  `json:"name"`
		Age  *int64   `json:"age"`
		Tags []string `json:"tags"`
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || d.More() {
		return fmt.Errorf("not one JSON value of this form: %v", err)
	}
	if v.Name == nil || len([]rune(*v.Name)) > 6 || v.Age == nil || v.Tags == nil || len(v.Tags) > 2 {
		return errors.New("the schema does not permit it")
	}
	return nil
}

func isObject(text string) error {
	return json.Unmarshal([]byte(text), &map[string]any{})
}

func isLetters(text string) error {
	if !regexp.MustCompile("^(" + letters + ")$").MatchString(text) {
		return errors.New("the expression does not match")
	}
	return nil
}

// TestModelStructures: every text that was not cut has the structure, whole and streamed, by
// greedy choice and sampled, and the same request gives the same texts.
func TestModelStructures(t *testing.T) {
	url := startModel(t, embedded(t))
	for _, tt := range []struct {
		name, fields string
		valid        func(text string) error
		atLeast      int // texts that are not cut
	}{
		{"schema", `"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":` + answerSchema + `}}`, isAnswer, 2},
		{"vLLM's schema", `"temperature":0,"guided_json":` + answerSchema, isAnswer, 2},
		{"object", `"temperature":0.5,"response_format":{"type":"json_object"}`, isObject, 0},
		{"more tokens than fit", `"min_tokens":60,"top_p":0.9,"guided_regex":"` + letters + `"`, isLetters, 2},
		{"choices", `"guided_choice":["a house","a mouse","calm"]`, func(text string) error {
			if !slices.Contains([]string{"a house", "a mouse", "calm"}, text) {
				return errors.New("none of the choices")
			}
			return nil
		}, 2},
		{"stop", `"stop":"\"age\"","guided_json":` + answerSchema, func(text string) error {
			return isAnswer(text + `"age":1,"tags":[]}`)
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() && tt.name != "choices" {
				t.Skip("one case is enough for a quick run")
			}
			body := `{"prompt":"Well, Prince,","seed":5,"n":2,"max_tokens":60,"frequency_penalty":2,` + tt.fields + `}`
			var whole completed
			decodeInto(t, ask(t, "POST", url+textPath, body), &whole)
			ended := 0
			for _, c := range whole.Choices {
				if c.Finish == "length" {
					continue
				}
				if err := tt.valid(c.Text); err != nil {
					t.Errorf("%v: %q", err, c.Text)
				}
				ended++
			}
			if ended < tt.atLeast {
				t.Errorf("%d texts ended, want %d or more: %+v", ended, tt.atLeast, whole.Choices)
			}
			streamed := make([]string, 2)
			for line := range strings.Lines(ask(t, "POST", url+textPath, strings.Replace(body, "{", `{"stream":true,`, 1)).body) {
				var chunk struct {
					Choices []struct {
						Index int
						Text  string
					}
				}
				if data, ok := strings.CutPrefix(line, "data: {"); ok {
					if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
						t.Fatal(err)
					}
					streamed[chunk.Choices[0].Index] += chunk.Choices[0].Text
				}
			}
			for i, text := range streamed {
				if text != whole.Choices[i].Text {
					t.Errorf("streamed %q, whole %q", text, whole.Choices[i].Text)
				}
			}
		})
	}
}

// TestModelStructureErrors: a structure that cannot be compiled or followed is an error that
// names its field and the place in it.
func TestModelStructureErrors(t *testing.T) {
	url := startModel(t, embedded(t))
	const format = "response_format.json_schema.schema"
	for _, tt := range []struct{ fields, param, message string }{
		{`"response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"multipleOf":2}}}}}`, format, format + ": #/properties/a/multipleOf: this keyword is not supported"},
		{`"guided_json":{"type":"string","minLength":-1}`, "guided_json", "guided_json: #/minLength: must be a non-negative integer"},
		{`"guided_json":"{"`, "guided_json", "guided_json: unexpected"},
		{`"guided_regex":"("`, "guided_regex", "guided_regex: error parsing regexp"},
		{`"guided_regex":"\\b"`, "guided_regex", `guided_regex: \b`},
	} {
		for range 2 { // the second is not answered from what was kept
			r := ask(t, "POST", url+textPath, `{"prompt":"hi",`+tt.fields+`}`)
			message, _, param, _ := errorOf(t, r)
			if r.status != 400 || param != tt.param || !strings.HasPrefix(message, tt.message) {
				t.Errorf("%s: status %d, param %q: %s\nwant %s", tt.fields, r.status, param, message, tt.message)
			}
		}
	}
}

// TestModelWithoutEnd: a model without end tokens offers no structures.
func TestModelWithoutEnd(t *testing.T) {
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	spec.Delete("tokenizer.ggml.eos_token_id")
	spec.Set("tokenizer.ggml.token_type", slices.Repeat([]int32{1}, tiny.Vocab)) // all are text
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	r := ask(t, "POST", startModel(t, generatorOf(t, m))+textPath, `{"prompt":"hi","guided_json":{}}`)
	if message, _, param, code := errorOf(t, r); r.status != 400 || param != "guided_json" || code != "unsupported_parameter" {
		t.Errorf("status %d: %s", r.status, message)
	}
}

// TestStructuresKept: equal structures are compiled once, also at the same time; the one that was
// not used for longest goes first; errors are not kept.
func TestStructuresKept(t *testing.T) {
	tokens := make([][]byte, 257)
	for i := range 256 {
		tokens[i] = []byte{byte(i)}
	}
	s := newStructures(func() (*constraint.Vocabulary, error) { return constraint.NewVocabulary(tokens, []int{256}, nil) })
	of := func(source constraint.Structure) *constraint.Constraint {
		c, err := s.compile(t.Context(), &structure{source: source})
		if err != nil {
			t.Error(err)
		}
		return c
	}
	expression := func(e string) constraint.Structure { return constraint.Structure{Regexp: e} }
	all := make([]*constraint.Constraint, 20)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = of(expression("a+")) })
	}
	wg.Wait()
	for _, c := range all {
		if c != all[0] {
			t.Fatal("one expression was compiled more than once")
		}
	}
	if of(constraint.Structure{Schema: []byte("true")}) == of(expression("true")) {
		t.Error("an expression is taken for a schema")
	}
	for i := range maxStructures + 3 {
		of(expression(strings.Repeat("b", i+1)))
		if of(expression("a+")) != all[0] {
			t.Fatal("a structure in use is gone")
		}
	}
	if n := len(s.kept); n != maxStructures {
		t.Errorf("%d structures are kept, want %d", n, maxStructures)
	}
	if _, err := s.compile(t.Context(), &structure{source: expression("(")}); err == nil {
		t.Error("no error")
	}
	if n := len(s.kept); n >= maxStructures {
		t.Errorf("an error is kept, or replaced a structure: %d are left", n)
	}
}

// slowSchema returns a schema that takes most of the limit to compile.
func slowSchema(i int) string {
	var s strings.Builder
	fmt.Fprintf(&s, `{"title":"%d","properties":{"a":true`, i)
	for p := range 200 {
		fmt.Fprintf(&s, `,"p%d":{"pattern":"^(a|b)*a(a|b){8}%d$"}`, p, p)
	}
	return s.String() + "}}"
}

// TestLeaveCompilation: the compilation of a structure ends with the last request that waits for
// it. Another request that waits for the same structure gets it.
func TestLeaveCompilation(t *testing.T) {
	g := newGenerator(embedded(t))
	_, url := start(t, g, Options{})
	kept := func() int {
		g.structures.mu.Lock()
		defer g.structures.mu.Unlock()
		return len(g.structures.kept)
	}
	before := runtime.NumGoroutine()
	transport := &http.Transport{}
	client := http.Client{Transport: transport}
	request := func(ctx context.Context, i int) (*http.Response, error) {
		body := `{"prompt":"hi","max_tokens":1,"guided_json":` + slowSchema(i) + `}`
		r, err := http.NewRequestWithContext(ctx, "POST", url+textPath, strings.NewReader(body))
		if err != nil {
			t.Error(err)
		}
		r.Header.Set("Content-Type", "application/json")
		return client.Do(r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	const structures = 12
	var wg sync.WaitGroup
	for i := range structures {
		wg.Go(func() {
			if w, err := request(ctx, i); err == nil {
				w.Body.Close()
				if i > 0 {
					t.Errorf("request %d was answered: its schema compiles too fast for this test", i)
				}
			}
		})
	}
	eventually(t, "all requests wait", func() bool { return kept() == structures })
	wg.Go(func() {
		w, err := request(t.Context(), 1) // stays
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Body.Close()
		if w.StatusCode != 200 {
			t.Errorf("the request that stays: status %d", w.StatusCode)
		}
	})
	eventually(t, "the request that stays waits", func() bool {
		g.structures.mu.Lock()
		defer g.structures.mu.Unlock()
		return slices.ContainsFunc(g.structures.kept, func(c *compiled) bool { return c.waiting == 2 })
	})
	cancel()
	wg.Wait()
	eventually(t, "only the structure of the request that stayed is left", func() bool { return kept() <= 2 })
	transport.CloseIdleConnections()
	eventually(t, "its goroutines end", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// TestModelMaskError: a constraint that fails while the text grows is an error of its field.
func TestModelMaskError(t *testing.T) {
	p := params{maxTokens: 3, structure: &structure{param: "guided_json", masks: func() func([]int) ([]uint32, error) {
		return func([]int) ([]uint32, error) { return nil, errors.New("constraint: mask: too ambiguous") }
	}}}
	for _, err := range newGenerator(embedded(t)).generate(t.Context(), []int{1}, &p, &outcome{}) {
		if e, ok := errors.AsType[*apiError](err); !ok || e.status != 400 || e.Param != "guided_json" || e.Message != "guided_json: too ambiguous" {
			t.Errorf("%v", err)
		}
		return
	}
	t.Error("no error")
}
