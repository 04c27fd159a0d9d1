package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/internal/servebench"
)

func TestBenchServeUsage(t *testing.T) {
	tests := []struct{ name, reason, args, want string }{
		{"no server", "the flag is needed", "--rate 1", "--url"},
		{"no scheme", "not a URL", "--url 127.0.0.1:8080 --rate 1", "--url: "},
		{"other scheme", "not HTTP", "--url ftp://host --rate 1", "--url: "},
		{"query", "paths are appended", "--url http://host?a=b --rate 1", "--url: "},
		{"password", "--api-key-file is the way", "--url http://u:secret@host --rate 1", "--url: "},
		{"no load", "the choices are named", "", "want --rate, --concurrency or --trace"},
		{"two loops", "ambiguous", "--rate 1 --concurrency 2", "--rate: excludes --concurrency"},
		{"two times of arrival", "ambiguous", "--rate 1 --trace x", "--rate: excludes"},
		{"negative rate", "below zero", "--rate -1", "--rate: -1, want 0.001 or more"},
		{"tiny rate", "years of waiting", "--rate 1e-9", "--rate: 1e-09, want 0.001 or more"},
		{"rate NaN", "NaN compares as false", "--rate nan", "--rate: NaN"},
		{"negative concurrency", "below zero", "--concurrency -1", "--concurrency: -1, want 0"},
		{"negative requests", "below zero", "--rate 1 --requests -1", "--requests: -1, want 0"},
		{"too many requests", "above the limit", "--rate 1 --requests 99999999", "--requests: 99999999"},
		{"negative warmup", "below zero", "--rate 1 --warmup -1", "--warmup: -1"},
		{"no prompt", "a request needs one", "--rate 1 --prompt-tokens 0", "--prompt-tokens: \"0\", want N, A..B"},
		{"answers in words", "no length", "--rate 1 --output-tokens ten", "--output-tokens: \"ten\", want N, A..B"},
		{"negative prefixes", "below zero", "--rate 1 --prefixes -1", "--prefixes: -1"},
		{"empty prefix", "nothing to share", "--rate 1 --prefixes 2 --prefix-tokens 0", "--prefix-tokens: 0, want 1"},
		{"negative vocabulary", "below zero", "--rate 1 --vocab -1", "--vocab: -1"},
		{"token ids in chat", "messages are text", "--rate 1 --vocab 5 --chat", "--vocab: excludes --chat"},
		{"negative temperature", "below zero", "--rate 1 --temperature -1", "--temperature: -1"},
		{"negative top-k", "below zero", "--rate 1 --top-k -1", "--top-k: -1"},
		{"probability 2", "above one", "--rate 1 --top-p 2", "--top-p: 2, want 0 to 1"},
		{"extra list", "no object", "--rate 1 --extra [1]", "--extra: \"[1]\", want a JSON object"},
		{"extra null", "no object", "--rate 1 --extra null", "--extra: \"null\", want a JSON object"},
		{"no time", "too short", "--rate 1 --timeout 0s", "--timeout: 0s, want more"},
		{"negative limit", "below zero", "--rate 1 --ttft-limit -1s", "--ttft-limit: -1s"},
		{"negative gap", "below zero", "--rate 1 --gap-limit -1s", "--gap-limit: -1s"},
		{"one file for both", "the second would replace the first", "--url http://host --rate 1 --json x --plot x", "--plot: x is the file of --json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := strings.Fields(tt.args)
			if !strings.Contains(tt.args, "--url") && tt.want != "--url" {
				args = append(args, "--url", "http://127.0.0.1:1")
			}
			r := runCommand(t, "", append([]string{"bench", "serve"}, args...)...)
			refused(t, r, exitUsage, tt.want)
			if strings.Contains(r.err, "secret") {
				t.Errorf("the error has the password: %q", r.err)
			}
		})
	}
}

// completions is a server of /v1/completions and /v1/models. From request hang on, answers
// have no end, and hung is called.
type completions struct {
	hang int
	hung func()

	mu     sync.Mutex
	bodies []map[string]any
	keys   []string
}

func (c *completions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/models":
		fmt.Fprint(w, `{"data":[{"id":"a model\u001b"}]}`)
		return
	case "/v1/completions":
	default:
		http.NotFound(w, r)
		return
	}
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	n := len(c.bodies)
	c.bodies = append(c.bodies, body)
	c.keys = append(c.keys, r.Header.Get("Authorization"))
	c.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	for range 3 {
		fmt.Fprint(w, `data: {"choices":[{"text":"x"}]}`+"\n\n")
		w.(http.Flusher).Flush()
	}
	if n >= c.hang {
		c.hung()
		<-r.Context().Done()
		return
	}
	fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}`+"\n\ndata: [DONE]\n\n")
}

func TestBenchServe(t *testing.T) {
	c := &completions{hang: 1000}
	server := httptest.NewServer(c)
	defer server.Close()
	out, plot := filepath.Join(t.TempDir(), "out.json"), filepath.Join(t.TempDir(), "out.svg")
	trace := put(t, "trace", `{"arrival":0,"prompt":"Hello","output_tokens":3}`+"\n"+`{"arrival":0.01,"prompt_tokens":9,"output_tokens":4}`)
	r := succeed(t, "", "bench", "serve", "--url", server.URL+"/v1/", "--trace", trace, "--top-k", "7", "--top-p", "0.5", "--extra", `{"min_p":0.1,"ignore_eos":null}`, "--api-key-file", put(t, "keys", "secret\nother\n"),
		"--ttft-limit", "1h", "--gap-limit", "1h", "--json", out, "--plot", plot)
	for _, want := range []string{
		server.URL + `/v1/completions, model "a model\x1b"`, "open loop, trace; one word per token; seed 1", "2 of 2 requests", "2 succeeded, 0 failed",
		"10 prompt tokens, 6 output tokens", "goodput", "2 requests (100.0%) within 3600 s to the first token and 3600 s between tokens",
		"time to first token", "answers with fewer tokens than requested: 1",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("standard output has no %q:\n%s", want, r.out)
		}
	}
	if !strings.Contains(r.err, "does not count tokens") {
		t.Errorf("standard error %q", r.err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var rep servebench.Report
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&rep); err != nil {
		t.Fatal(err)
	}
	if rep.Version != servebench.Version || rep.Date == "" || len(rep.Requests) != 2 || rep.Gap.Count != 4 || bytes.Contains(text, []byte("secret")) {
		t.Errorf("%s", text)
	}
	if svg, err := os.ReadFile(plot); err != nil || !bytes.Contains(svg, []byte("time to first token")) {
		t.Errorf("the chart: %v\n%s", err, svg)
	}
	want := map[string]any{"model": "a model\x1b", "max_tokens": 4.0, "temperature": 0.0, "top_k": 7.0, "top_p": 0.5, "min_p": 0.1}
	for k, v := range want {
		if c.bodies[1][k] != v {
			t.Errorf("the body has %s %v, want %v", k, c.bodies[1][k], v)
		}
	}
	if c.keys[1] != "Bearer secret" {
		t.Errorf("authorization %q", c.keys[1])
	}
	if _, ok := c.bodies[1]["ignore_eos"]; ok {
		t.Error("ignore_eos was not removed")
	}
}

// The server of lockstep gives prompts and answers of exactly the planned lengths.
func TestBenchServeLockstep(t *testing.T) {
	keys := put(t, "keys", "# of the test\nsecret\n")
	url, stop := server(t, "--log", "none", "--api-key-file", keys)
	defer stop()
	for _, content := range []string{"", "--vocab 100"} {
		args := "bench serve --concurrency 2 --requests 3 --prefixes 2 --prefix-tokens 6 --prompt-tokens 8 --output-tokens 5 --api-key-file " + keys + " --url " + url + " " + content
		r := succeed(t, "", strings.Fields(args)...)
		if !strings.Contains(r.out, "3 succeeded, 0 failed; 42 prompt tokens, 15 output tokens") || strings.Contains(r.out, "answers with") || r.err != "" {
			t.Errorf("%s: %q, %q", args, r.out, r.err)
		}
	}
}

func TestBenchServeRefuses(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for _, tt := range []struct {
		name, reason, args string
		want               []string
	}{
		{"no such trace", "a typo", "--trace none.jsonl", []string{"--trace: open none.jsonl: "}},
		{"bad trace", "no JSON", "--trace " + put(t, "trace", "\nhello"), []string{"--trace: ", "trace: line 2: "}},
		{"no key file", "a typo", "--rate 1 --api-key-file none", []string{"--api-key-file: "}},
		{"no models", "another server", "--rate 1", []string{"--url: " + server.URL + "/v1/models: status 404"}},
		{"warmup fails", "the measurement would, too", "--rate 1 --model m --vocab 5 --warmup 1", []string{"request before the measurement: status 404: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, runCommand(t, "", append([]string{"bench", "serve", "--url", server.URL}, strings.Fields(tt.args)...)...), exitError, tt.want...)
		})
	}
	r := runCommand(t, "", "bench", "serve", "--url", server.URL, "--rate", "inf", "--model", "m", "--vocab", "5", "--requests", "3")
	if r.status != exitError || !strings.Contains(r.out, "3 × status 404: ") || !strings.HasPrefix(r.err, "lockstep: no request succeeded: status 404: ") || strings.Contains(r.out, "mean") {
		t.Errorf("status %d, %q, %q", r.status, r.out, r.err)
	}
}

// An interrupt prints what was measured so far and writes no file.
func TestBenchServeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	c := &completions{hang: 2, hung: func() { cancel(interrupt{os.Interrupt}) }}
	server := httptest.NewServer(c)
	defer server.Close()
	out := put(t, "out", "precious")
	r := runContext(ctx, "", "bench", "serve", "--url", server.URL, "--concurrency", "1", "--vocab", "10", "--requests", "50", "--json", out)
	if r.status != 130 || !strings.Contains(r.out, "3 of 50 requests") || !strings.Contains(r.out, "2 succeeded, 0 failed, 1 interrupted") || !strings.HasSuffix(r.err, interruptedText+"\n") {
		t.Errorf("status %d, %q, %q", r.status, r.out, r.err)
	}
	checkPrecious(t, out)
}

func TestBenchServeTable(t *testing.T) {
	rep := servebench.Report{
		URL: "http://host:1", Endpoint: "/v1/completions", Model: "M",
		Load:    servebench.Description{Arrivals: "poisson", Rate: 4, Requests: 40, Prompt: "256", Output: "1..9", Prefixes: 2, PrefixTokens: 64, Content: "words", Seed: 3},
		Seconds: 10.25, Sent: 40, Succeeded: 30, Peak: 12, PromptTokens: 7680, OutputTokens: 150, Short: 2, Uncounted: 1,
		Failures:    []servebench.Failure{{Kind: "status 429", Count: 9, First: "busy\n"}, {Kind: servebench.TimedOut, Count: 1, First: "1m0s"}},
		RequestRate: 2.93, OutputRate: 14.6, TotalRate: 764, Goodput: &servebench.Goodput{GapLimit: 0.05, Requests: 20, Rate: 1.95, Share: 0.5},
		FirstToken: servebench.Distribution{Count: 30, Mean: 0.1, P50: 0.09, P90: 0.2, P99: 1.5, Max: 2},
		Lag:        servebench.Distribution{Count: 40, P99: 0.02, Max: 0.5},
	}
	var out bytes.Buffer
	if err := (&env{out: &out}).printServeBench(&rep); err != nil {
		t.Fatal(err)
	}
	want := `http://host:1/v1/completions, model M
open loop, poisson, 4 requests/s; prompts of 256 tokens, answers of 1..9; 2 prefixes of 64 tokens; words; seed 3
40 of 40 requests sent in 10.25 s: 30 succeeded, 10 failed; 7680 prompt tokens, 150 output tokens
2.93 requests/s, 14.6 output tokens/s, 764 tokens/s with prompts; at most 12 requests in flight
goodput 1.95 requests/s: 20 requests (50.0%) within 0.05 s between tokens

                   ms  mean   p50  p90   p99   max  values
  time to first token   100  90.0  200  1500  2000      30

9 × status 429: "busy\n"
1 × timeout: 1m0s
the generator fell behind: requests were sent late by 20.0 ms (p99) and 500 ms (max)
answers with fewer tokens than requested: 2
answers without usage: 1; their events count as tokens, their prompts as none
`
	if got := out.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
