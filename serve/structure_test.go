package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
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
		{"stop", `"stop":"\"age\"","guided_json":` + answerSchema, func(text string) error {
			return isAnswer(text + `"age":1,"tags":[]}`)
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
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

// TestModelStructuredChat: the answer is the content, whatever the template has for reasoning.
func TestModelStructuredChat(t *testing.T) {
	url := startModel(t, generatorOf(t, templateModel(t, withTools)))
	var got struct {
		Choices []struct {
			Message struct {
				Content   string
				Reasoning string `json:"reasoning_content"`
			}
			Finish string `json:"finish_reason"`
		}
	}
	decodeInto(t, ask(t, "POST", url+chatPath, `{"messages":[{"role":"user","content":"hi"}],"max_tokens":40,"seed":1,"guided_regex":"(yes|no)<think>x"}`), &got)
	if c := got.Choices[0]; c.Finish != "stop" || c.Message.Reasoning != "" || !regexp.MustCompile("^(yes|no)<think>x$").MatchString(c.Message.Content) {
		t.Errorf("%+v", c)
	}
}

// TestModelWithoutEnd: a model whose texts cannot end offers no structures.
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
	s := structures{vocabulary: sync.OnceValues(func() (*constraint.Vocabulary, error) { return constraint.NewVocabulary(tokens, []int{256}, nil) })}
	of := func(kind structureKind, source string) *constraint.Constraint {
		c, err := s.compile(&structure{kind: kind, source: source})
		if err != nil {
			t.Error(err)
		}
		return c
	}
	all := make([]*constraint.Constraint, 20)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = of(regularExpression, "a+") })
	}
	wg.Wait()
	for _, c := range all {
		if c != all[0] {
			t.Fatal("one expression was compiled more than once")
		}
	}
	if of(jsonSchema, "true") == of(regularExpression, "true") {
		t.Error("an expression is taken for a schema")
	}
	for i := range maxStructures + 3 {
		of(regularExpression, strings.Repeat("b", i+1))
		if of(regularExpression, "a+") != all[0] {
			t.Fatal("a structure in use is gone")
		}
	}
	if n := len(s.kept); n != maxStructures {
		t.Errorf("%d structures are kept, want %d", n, maxStructures)
	}
	if _, err := s.compile(&structure{kind: regularExpression, source: "("}); err == nil {
		t.Error("no error")
	}
	if slices.ContainsFunc(s.kept, func(c *compiled) bool { return c.source == "(" }) {
		t.Error("an error is kept")
	}
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
