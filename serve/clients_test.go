package serve

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// scripted answers by the text at the end of the prompt, for the programs in tools/clients.
type scripted struct {
	*fake
	refused atomic.Bool // "busy once" was refused
}

func (s *scripted) render(c *conversation) (rendered, error) {
	r, err := s.fake.render(c)
	if len(c.tools) > 0 {
		r.newParser = func() answerParser { return &city{} }
	}
	if c.toolChoice == "required" || c.namedFunction() != "" {
		r.tokens = append(r.tokens, []int{'w', 'e', 'a', 't', 'h', 'e', 'r'}...) // a call follows
	}
	return r, err
}

func (s *scripted) generate(ctx context.Context, prompt []int, p *params, out *outcome) iter.Seq2[token, error] {
	text, _ := s.detokenize(prompt)
	f := newFake("Hello there!")
	busy := &apiError{status: http.StatusTooManyRequests, retryAfter: 1, Type: typeLimit, Code: "server_busy", Message: "try again"}
	switch text = strings.TrimSpace(text); {
	case strings.HasSuffix(text, "tool:sunny"):
		f.answer = "It is sunny."
	case strings.HasSuffix(text, "weather"):
		f.answer = "<Rome>"
	case strings.HasSuffix(text, "fail"):
		f.fail, f.failAt = errors.New("the device is lost"), 2
	case strings.HasSuffix(text, "busy"), strings.HasSuffix(text, "busy once") && s.refused.CompareAndSwap(false, true):
		f.fail = busy
	case strings.HasSuffix(text, "endless"):
		e := endless()
		f.answer, f.step = e.answer, e.step
	}
	return func(yield func(token, error) bool) {
		s.running.Add(1)
		defer s.running.Add(-1)
		for t, err := range f.generate(ctx, prompt, p, out) {
			if !yield(t, err) {
				return
			}
		}
	}
}

// city is a parser that gives a text in angle brackets as the argument of a call.
type city struct{ open bool }

func (c *city) next(t token) []part {
	text := t.text
	switch {
	case text == "":
		return nil
	case text == "<":
		c.open = true
		return []part{{call: &callPart{id: "call_1", name: "weather"}}, {call: &callPart{arguments: `{"city":"`}}}
	case text == ">" && c.open:
		c.open = false
		return []part{{call: &callPart{arguments: `"}`}}}
	case c.open:
		return []part{{call: &callPart{arguments: text}}}
	}
	return []part{{content: text}}
}

func (c *city) end() []part { return nil }

// TestClients runs the programs in tools/clients, which tools/get-clients installs.
func TestClients(t *testing.T) {
	installed, err := filepath.Abs("../bin/clients")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		needs string // a file that tools/get-clients makes
		args  []string
	}{
		{"openai-go", "openai-go", []string{filepath.Join(installed, "openai-go")}},
		{"openai-node", "node_modules/openai/index.mjs", []string{"node", "../tools/clients/openai-node/main.js", filepath.Join(installed, "node_modules/openai")}},
	}
	missing := 0
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := os.Stat(filepath.Join(installed, tt.needs))
			if err == nil {
				_, err = exec.LookPath(tt.args[0])
			}
			if err != nil {
				missing++
				lacks(t, "tools/get-clients: "+err.Error())
			}
			s := &scripted{fake: newFake("")}
			_, url := start(t, s, Options{APIKeys: []string{"secret"}})
			out, err := exec.CommandContext(t.Context(), tt.args[0], append(tt.args[1:], url, "secret")...).CombinedOutput()
			if err != nil || strings.Count(string(out), "ok ") < 13 {
				t.Errorf("%v:\n%s", err, out)
			}
			eventually(t, "no generation is left", func() bool { return s.running.Load() == 0 })
		})
	}
	if missing == len(tests) {
		t.Skip("needs tools/get-clients")
	}
}
