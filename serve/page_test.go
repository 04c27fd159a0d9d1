package serve

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/generate"
)

// TestPage: the page comes without a key and with headers that let it load nothing else.
func TestPage(t *testing.T) {
	_, url := start(t, newFake("a"), Options{APIKeys: []string{"key"}})
	r := ask(t, "GET", url+"/", "")
	if r.status != 200 || r.body != string(pageHTML) {
		t.Fatalf("status %d: %.100s", r.status, r.body)
	}
	for name, want := range map[string][]string{
		"Content-Type": {"text/html; charset=utf-8"},
		"Content-Security-Policy": {"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
			"require-trusted-types-for 'script'", "script-src 'sha256-", "style-src 'sha256-"},
		"Referrer-Policy":        {"no-referrer"},
		"X-Content-Type-Options": {"nosniff"},
	} {
		for _, want := range want {
			if got := r.header.Get(name); !strings.Contains(got, want) || strings.Contains(got, "unsafe") {
				t.Errorf("%s: %q, want %s", name, got, want)
			}
		}
	}
	for _, name := range []string{"<script", "<style", "</script>", "</style>"} {
		if n := strings.Count(r.body, name); n != 1 { // the policy has one hash of each
			t.Errorf("%d of %s, want 1", n, name)
		}
	}
	for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "sessionStorage", "cookie"} {
		if strings.Contains(r.body, word) {
			t.Errorf("the page uses %s", word)
		}
	}
	if r := ask(t, "GET", url+"/index.html", ""); r.status != 401 {
		t.Errorf("/index.html without a key: status %d", r.status)
	}
}

// TestLoadEndpoint: each field is that of generate.Load, with a key, and without a place among the
// requests.
func TestLoadEndpoint(t *testing.T) {
	f := newFake("a")
	f.state = generate.Load{
		Running: 1, Waiting: 2, Preempted: 3, Pages: 4, FreePages: 5, Steps: 6, FailedSteps: 7, PromptTokens: 8,
		Prefix: generate.PrefixStats{Reused: 9}, GeneratedTokens: 10, Preemptions: 11, StepRows: 12, StepPromptTokens: 13,
		StepTime: 14 * time.Millisecond, StepError: errors.New("lost"),
	}
	s, url := start(t, f, Options{APIKeys: []string{"key"}, MaxRequests: 1})
	if err := s.begin(); err != nil { // the only place
		t.Fatal(err)
	}
	defer s.end()
	const want = `{"running":1,"waiting":2,"preempted":3,"pages":4,"free_pages":5,"steps":6,"failed_steps":7,"prompt_tokens":8,` +
		`"reused_tokens":9,"generated_tokens":10,"preemptions":11,"step_sequences":12,"step_prompt_tokens":13,"step_seconds":0.014,"error":"lost"}`
	if r := ask(t, "GET", url+"/load", "", "Authorization", "Bearer key"); r.status != 200 || r.body != want {
		t.Errorf("status %d: %s\nwant %s", r.status, r.body, want)
	}
	if r := ask(t, "GET", url+"/load", ""); r.status != 401 {
		t.Errorf("without a key: status %d", r.status)
	}
}

// TestModelHasChat: /v1/models says whether the model has a chat template.
func TestModelHasChat(t *testing.T) {
	for _, noChat := range []bool{false, true} {
		f := newFake("a")
		f.noChat = noChat
		_, url := start(t, f, Options{})
		var got struct{ Data []struct{ Chat *bool } }
		decodeInto(t, ask(t, "GET", url+"/v1/models", ""), &got)
		if c := got.Data[0].Chat; c == nil || *c == noChat {
			t.Errorf("chat is %v, the template is absent: %v", c, noChat)
		}
	}
}
