package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// The same command prints the same text; another seed gives another text.
func TestGenerateIsRepeatable(t *testing.T) {
	first := succeed(t, "", "generate", "--max-tokens", "30", "Well, Prince,")
	if !strings.HasPrefix(first.out, "Well, Prince,") || !strings.HasSuffix(first.out, "\n") {
		t.Errorf("output %q", first.out)
	}
	if !strings.Contains(first.err, "prompt: 5 tokens") || !strings.Contains(first.err, "generated: ") || strings.Count(first.err, "tokens/s") != 2 {
		t.Errorf("standard error %q has no speeds", first.err)
	}
	if again := succeed(t, "", "generate", "--max-tokens", "30", "Well, Prince,", "--seed", "1"); again.out != first.out {
		t.Errorf("output %q, then %q", first.out, again.out)
	}
	if other := succeed(t, "", "generate", "--max-tokens", "30", "Well, Prince,", "--seed", "2"); other.out == first.out {
		t.Error("another seed gives the same text")
	}
	if file := succeed(t, "", "generate", "--max-tokens", "30", "Well, Prince,", "--model", tinyModel); file.out != first.out {
		t.Errorf("the embedded model gives %q, its file %q", first.out, file.out)
	}
}

func TestGeneratePrompt(t *testing.T) {
	greedy := []string{"generate", "--temperature", "0", "--max-tokens", "5"}
	want := succeed(t, "", append(greedy, "The prince")...).out
	tests := []struct {
		name, reason string
		stdin        string
		args         []string
	}{
		{"standard input", "without an argument", "The prince\n", nil},
		{"dash", "- is standard input", "The prince", []string{"-"}},
		{"Windows line", "the line ending is not part of the prompt", "The prince\r\n", []string{"-"}},
		{"after --", "an argument after flags", "", []string{"--", "The prince"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := succeed(t, tt.stdin, append(greedy, tt.args...)...).out; got != want {
				t.Errorf("%s: %q, want %q", tt.reason, got, want)
			}
		})
	}
	if r := succeed(t, "", append(greedy, "")...); strings.TrimSpace(r.out) == "" {
		t.Errorf("an empty prompt is BOS alone; got %q", r.out)
	}
}

func TestGenerateWithoutEcho(t *testing.T) {
	args := []string{"generate", "--temperature", "0", "-n", "9", "Well, Prince,"}
	text := strings.TrimPrefix(succeed(t, "", args...).out, "Well, Prince,")
	if got := succeed(t, "", append(args, "--no-echo")...).out; got != text {
		t.Errorf("--no-echo prints %q, want %q", got, text)
	}
}

// TestGenerateJSON: the output is one object on one line.
func TestGenerateJSON(t *testing.T) {
	args := []string{"generate", "--temperature", "0", "-n", "9", "Well, Prince,"}
	text := strings.TrimSuffix(strings.TrimPrefix(succeed(t, "", args...).out, "Well, Prince,"), "\n")
	word := strings.Fields(text)[3]
	before, _, _ := strings.Cut(text, word)
	tests := []struct {
		name   string
		args   []string
		want   string
		tokens int
		reason string
	}{
		{"to the limit", nil, text, 9, "length"},
		{"stop string", []string{"--stop", word}, before, -1, "stop"},
		{"no tokens", []string{"--max-tokens", "0"}, "", 0, "length"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := succeed(t, "", append(append(args, "--json"), tt.args...)...)
			var got struct {
				Text            string
				FinishReason    string  `json:"finish_reason"`
				PromptTokens    int     `json:"prompt_tokens"`
				GeneratedTokens int     `json:"generated_tokens"`
				Rate            float64 `json:"prompt_tokens_per_second"`
			}
			if err := json.Unmarshal([]byte(r.out), &got); err != nil || strings.Count(r.out, "\n") != 1 {
				t.Fatalf("%v: %q", err, r.out)
			}
			if got.Text != tt.want || got.FinishReason != tt.reason || tt.tokens >= 0 && got.GeneratedTokens != tt.tokens {
				t.Errorf("%+v, want text %q, %d tokens, %s", got, tt.want, tt.tokens, tt.reason)
			}
			if tt.tokens != 0 && (got.PromptTokens != 5 || got.Rate <= 0) {
				t.Errorf("%+v, want a prompt of 5 tokens and its speed", got)
			}
		})
	}
	long := strings.Repeat("war and peace ", 600)
	refused(t, runCommand(t, long, "generate", "--json"), exitError, "prompt", "context limit")
}

// TestEnvironment: variables replace defaults, and flags replace variables.
func TestEnvironment(t *testing.T) {
	args := []string{"generate", "-n", "1", "x"}
	for _, tt := range []struct{ name, variable, value, want string }{
		{"model", "LOCKSTEP_MODEL", "missing.gguf", "missing.gguf"},
		{"empty model", "LOCKSTEP_MODEL", "", "LOCKSTEP_MODEL"},
		{"device", "LOCKSTEP_DEVICE", "tpu", "--device"},
		{"cache format", "LOCKSTEP_KV", "q8", "LOCKSTEP_KV"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(tt.variable, tt.value)
			if r := runCommand(t, "", args...); r.status == exitOK || r.out != "" || !strings.Contains(r.err, tt.want) {
				t.Errorf("status %d, standard error %q, want one with %q", r.status, r.err, tt.want)
			}
		})
	}
	t.Setenv("LOCKSTEP_MODEL", "missing.gguf")
	succeed(t, "", append(args, "--model", tinyModel)...)
	t.Setenv("LOCKSTEP_ADDR", "nowhere")
	refused(t, runCommand(t, "", "serve"), exitUsage, "--addr: \"nowhere\"")
	t.Setenv("LOCKSTEP_ADDR", "127.0.0.1:0")
	t.Setenv("LOCKSTEP_API_KEY_FILE", "no-keys")
	refused(t, runCommand(t, "", "serve"), exitError, "--api-key-file: open no-keys")
}

func TestGenerateLength(t *testing.T) {
	if r := succeed(t, "", "generate", "--max-tokens", "0", "Well,"); r.out != "Well,\n" || !strings.Contains(r.err, "generated: 0 tokens") {
		t.Errorf("no tokens: %q, %q", r.out, r.err)
	}
	long := strings.Repeat("war and peace ", 300)
	if r := succeed(t, long, "generate"); !strings.Contains(r.err, "generated: ") {
		t.Errorf("near the end of the context: %q", r.err)
	}
	refused(t, runCommand(t, long+long, "generate"), exitError, "prompt", "context limit", "more than 1024 tokens", "1024 positions")
	refused(t, runCommand(t, "", "generate", "--max-tokens", "1023", "Well,"), exitError, "--max-tokens", "context limit", "1024")
	refused(t, runCommand(t, "", "generate", "--max-tokens", "9223372036854775807", "Well,"), exitError, "context limit", "1024")
}

func TestGenerateStops(t *testing.T) {
	args := []string{"generate", "--temperature", "0", "--max-tokens", "40", "Well, Prince,"}
	whole := succeed(t, "", args...).out
	words := strings.Fields(whole[len("Well, Prince,"):])
	stop := words[4]
	at := strings.Index(whole[len("Well, Prince,"):], stop) + len("Well, Prince,")
	r := succeed(t, "", append(args, "--stop", "never to be seen", "--stop", stop)...)
	if want := strings.TrimSuffix(whole[:at], "\n") + "\n"; r.out != want {
		t.Errorf("stopped before %q: %q, want %q", stop, r.out, want)
	}
	if comma := succeed(t, "", append(args, "--stop", "x,y z")...); comma.out != whole {
		t.Errorf("a stop string with a comma was split: %q", comma.out)
	}
}

// tinyKeys returns a writer with the metadata of the embedded model, and that model's file.
func tinyKeys(t *testing.T) (w *gguf.Writer, f *gguf.File) {
	t.Helper()
	m, err := golden.Model()
	if err != nil {
		t.Fatal(err)
	}
	f = m.File
	w = gguf.NewWriter()
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		if err := w.Set(key, v); err != nil {
			t.Fatal(err)
		}
	}
	return w, f
}

func writeGGUF(t *testing.T, w *gguf.Writer) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// withTemplate returns the path of the embedded model with a chat template.
func withTemplate(t *testing.T, template string) string {
	t.Helper()
	w, f := tinyKeys(t)
	if err := w.Set("tokenizer.chat_template", template); err != nil {
		t.Fatal(err)
	}
	for _, tensor := range f.Tensors() {
		if err := w.Add(tensor.Info()); err != nil {
			t.Fatal(err)
		}
	}
	return writeGGUF(t, w)
}

func TestGenerateChat(t *testing.T) {
	refused(t, runCommand(t, "", "generate", "--chat", "hello"), exitError, "--chat", "no chat template")

	path := withTemplate(t, `{{ bos_token }}{% for m in messages %}{{ m.role }}: "{{ m.content }}"{% endfor %}{% if add_generation_prompt %} said{% endif %}`)
	greedy := []string{"generate", "--temperature", "0", "--max-tokens", "8"}
	chat := succeed(t, "", append(greedy, "--chat", "--model", path, "hello")...)
	plain := succeed(t, "", append(greedy, `user: "hello" said`)...)
	if want := strings.TrimPrefix(plain.out, `user: "hello" said`); chat.out != want {
		t.Errorf("the answer is %q, want %q without the rendered template", chat.out, want)
	}

	system := succeed(t, "", append(greedy, "--chat", "-m", path, "--system", "Be brief", "hello")...)
	plain = succeed(t, "", append(greedy, "--no-echo", `system: "Be brief"user: "hello" said`)...)
	if system.out != plain.out || system.out == chat.out {
		t.Errorf("with a system message the answer is %q, want %q", system.out, plain.out)
	}

	bad := withTemplate(t, `{% for m in messages %}`)
	refused(t, runCommand(t, "", "generate", "--chat", "--model", bad, "hello"), exitError, "--chat", bad)
}

// After an interrupt, the line is complete and the status is 1.
func TestGenerateInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errw bytes.Buffer
	writes := 0
	w := writerFunc(func(p []byte) (int, error) {
		if writes++; writes == 6 {
			cancel()
		}
		return out.Write(p)
	})
	status := run(ctx, []string{"generate", "--max-tokens", "500", "Well, Prince,"}, nil, w, &errw)
	if status != exitError || errw.String() != "lockstep: interrupted\n" {
		t.Errorf("status %d, standard error %q", status, errw.String())
	}
	text := out.String()
	if writes > 8 || !strings.HasPrefix(text, "Well, Prince,") || !strings.HasSuffix(text, "\n") {
		t.Errorf("%d writes: %q", writes, text)
	}
	whole := succeed(t, "", "generate", "--max-tokens", "500", "Well, Prince,")
	if !strings.HasPrefix(whole.out, strings.TrimSuffix(text, "\n")) {
		t.Errorf("the output %q is not a prefix of the text", text)
	}
}

func TestPromptLongerThanTheContext(t *testing.T) {
	r := runCommand(t, strings.Repeat("word ", 2000), "generate")
	refused(t, r, exitError, "prompt:", "1024")
	if strings.Contains(r.err, "--max-tokens") {
		t.Errorf("%q blames a flag that was not given", r.err)
	}
}
