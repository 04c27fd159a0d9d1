package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// server runs lockstep serve until stop, which returns its status and what else it wrote to
// standard error.
func server(t *testing.T, args ...string) (url string, stop func() (int, string)) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	read, write := io.Pipe()
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, append([]string{"serve", "--device", "cpu", "--addr", "127.0.0.1:0"}, args...), strings.NewReader(""), io.Discard, write)
		write.Close()
	}()
	lines := bufio.NewReader(read)
	before := ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("it says %q, error %v", before+line, err)
		}
		if _, at, ok := strings.Cut(strings.TrimSpace(line), " at "); ok {
			url = at
			break
		}
		before += line
	}
	rest := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(lines)
		rest <- before + string(text)
	}()
	return url, func() (int, string) {
		cancel(interrupt{os.Interrupt})
		return <-status, <-rest
	}
}

func post(t *testing.T, url, body, key string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(text)
}

// TestServe: without flags the embedded model is served; an interrupt ends it with status 0.
func TestServe(t *testing.T) {
	url, stop := server(t)
	const want = " I have been told that I was in the army."
	status, answer := post(t, url+"/v1/completions", `{"model":"lockstep-tiny","prompt":"Well, Prince,","temperature":0,"max_tokens":12}`, "")
	if status != 200 || !strings.Contains(answer, want[:20]) {
		t.Errorf("status %d: %s", status, answer)
	}
	code, log := stop()
	if code != exitOK || !strings.Contains(log, "path=/v1/completions") || !strings.Contains(log, "stopped") {
		t.Errorf("exit status %d, standard error %q", code, log)
	}
}

func TestServeFlags(t *testing.T) {
	keys := put(t, "keys", "# of the test\n\nsecret\nother\n")
	url, stop := server(t, "--model", tinyModel, "--name", "mine", "--api-key-file", keys, "--log", "json", "--timeout", "1m", "--allow-host", "mine.example")
	for key, want := range map[string]int{"": 401, "wrong": 401, "secret": 200, "other": 200} {
		if status, answer := post(t, url+"/v1/completions", `{"model":"mine","prompt":"Well","max_tokens":1}`, key); status != want {
			t.Errorf("key %q: status %d: %s", key, status, answer)
		}
	}
	for host, want := range map[string]int{"mine.example": 200, "other.example": 403} {
		r, err := http.NewRequest("GET", url+"/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		if w.StatusCode != want {
			t.Errorf("host %s: status %d, want %d", host, w.StatusCode, want)
		}
	}
	code, log := stop()
	if code != exitOK || !strings.Contains(log, `"path":"/v1/completions"`) || strings.Contains(log, "secret") {
		t.Errorf("exit status %d, standard error %q", code, log)
	}
}

// TestServePromptBudget: a prompt of 9 tokens takes three steps of 3, and the last one gives a token.
func TestServePromptBudget(t *testing.T) {
	for budget, want := range map[string]string{"0": `"steps":1,`, "3": `"steps":3,`} {
		url, stop := server(t, "--log", "none", "--prompt-budget", budget)
		if status, answer := post(t, url+"/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":1,"ignore_eos":true}`, ""); status != 200 {
			t.Fatalf("status %d: %s", status, answer)
		}
		w, err := http.Get(url + "/load")
		if err != nil {
			t.Fatal(err)
		}
		load, err := io.ReadAll(w.Body)
		w.Body.Close()
		if err != nil || !strings.Contains(string(load), want) {
			t.Errorf("budget %s: %s, %v, want %s", budget, load, err, want)
		}
		stop()
	}
	refused(t, runCommand(t, "", "serve", "--prompt-budget", "-1"), exitUsage, "--prompt-budget: -1, want 0 or more")
}

// TestServePrepares: on a GPU the kernels are loaded before the server takes requests.
func TestServePrepares(t *testing.T) {
	if testing.Short() {
		t.Skip("emulates a model")
	}
	_, stop := server(t, "--log", "none", "--device", "emu")
	if code, log := stop(); code != exitOK || !strings.HasPrefix(log, "prepared kernels and graphs in ") {
		t.Errorf("exit status %d, standard error %q", code, log)
	}
}

func TestServeErrors(t *testing.T) {
	url, stop := server(t, "--log", "none")
	defer stop()
	taken := strings.TrimPrefix(url, "http://")
	for _, tt := range []struct{ name, flag, value, want string }{
		{"address in use", "--addr", taken, "--addr: "},
		{"no key file", "--api-key-file", "missing", "--api-key-file: open missing"},
		{"no keys", "--api-key-file", put(t, "keys", "# none\n"), "keys: no key"},
		{"key with a space", "--api-key-file", put(t, "keys", "good\na b\n"), "line 2"},
		{"no model", "--model", "missing.gguf", "missing.gguf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"serve", "--device", "cpu", tt.flag, tt.value}
			if tt.flag != "--addr" {
				args = append(args, "--addr", "127.0.0.1:0")
			}
			refused(t, runCommand(t, "", args...), exitError, tt.want)
		})
	}
}

// TestServeFinishes: a stream that runs at the time of an interrupt comes to its end.
func TestServeFinishes(t *testing.T) {
	url, stop := server(t, "--log", "none", "--grace", "1m")
	w, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"Well","max_tokens":60,"stream":true,"ignore_eos":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	events := bufio.NewReader(w.Body)
	if _, err := events.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan string, 1)
	go func() {
		code, log := stop()
		stopped <- fmt.Sprint(code, log)
	}()
	rest, err := io.ReadAll(events)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("error %v: %s", err, rest)
	}
	select {
	case got := <-stopped:
		if got != "0" {
			t.Errorf("exit status and standard error %q", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("it does not stop")
	}
}
