package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Test models.
const (
	silentModel = "../../golden/arch/llama-gqa.gguf"
	tinyModel   = "../../golden/model/lockstep-tiny.gguf"
)

// result is the outcome of a command.
type result struct {
	status   int
	out, err string
}

// runCommand runs the command in this process.
func runCommand(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return runContext(t.Context(), stdin, args...)
}

func runContext(ctx context.Context, stdin string, args ...string) result {
	var out, errw bytes.Buffer
	status := run(ctx, args, strings.NewReader(stdin), &out, &errw)
	return result{status, out.String(), errw.String()}
}

// succeed runs a command and requires status 0.
func succeed(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	r := runCommand(t, stdin, args...)
	if r.status != exitOK {
		t.Fatalf("lockstep %q: status %d, standard error %q", args, r.status, r.err)
	}
	return r
}

// refused checks that a command failed with a status and without output, and that its one
// line of standard error begins with the command's name and contains each of want.
func refused(t *testing.T, r result, status int, want ...string) {
	t.Helper()
	if r.status != status || r.out != "" {
		t.Errorf("status %d, want %d; standard output %q", r.status, status, r.out)
	}
	if !strings.HasPrefix(r.err, "lockstep: ") || strings.Count(r.err, "\n") != 1 || !strings.HasSuffix(r.err, "\n") {
		t.Errorf("standard error is not one line of the program's: %q", r.err)
	}
	for _, w := range want {
		if !strings.Contains(r.err, w) {
			t.Errorf("standard error %q has no %q", r.err, w)
		}
	}
}

// put writes a file into a new directory and returns its path.
func put(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name, reason string
		args         string
		want         string
	}{
		{"nothing", "a command is needed", "", "generate"},
		{"unknown command", "there is none", "frobnicate", "frobnicate"},
		{"unknown flag", "there is none", "generate --nope", "--nope"},
		{"flag without a value", "the line ends", "generate --model", "--model: the value is missing"},
		{"flag before a flag", "the value may be missing", "generate --model --kv f16", "--model: the value is missing before --kv"},
		{"flag before a short flag", "it may be the value", "generate --stop -x a", "--stop: the value is missing before -x; if that is the value, write --stop=-x"},
		{"two prompts", "quotes were forgotten", "generate a b", "unexpected argument b"},
		{"negative length", "there is no such length", "generate --max-tokens -5 x", "--max-tokens: -5, want 0 or more"},
		{"negative length after =", "the other spelling", "generate --max-tokens=-5 x", "--max-tokens: -5"},
		{"length in words", "no number", "generate --max-tokens=ten x", "--max-tokens: \"ten\", want a whole number"},
		{"length over an int", "no number that fits", "generate --max-tokens=99999999999999999999 x", "--max-tokens: 99999999999999999999 is out of range"},
		{"negative temperature", "below zero", "generate --temperature=-1 x", "--temperature: -1"},
		{"negative temperature apart", "a number, no flag", "generate --temperature -.5 x", "--temperature: -0.5, want 0"},
		{"temperature in words", "no number", "generate --temperature warm x", "--temperature: \"warm\", want a number"},
		{"temperature NaN", "NaN compares as false", "generate --temperature=nan x", "--temperature: NaN"},
		{"infinite temperature", "not a temperature", "generate --temperature=inf x", "--temperature: +Inf"},
		{"probability 2", "above one", "generate --top-p 2 x", "--top-p: 2, want 0 to 1"},
		{"probability NaN", "NaN compares as false", "generate --min-p nan x", "--min-p: NaN"},
		{"negative top-k", "below zero", "generate --top-k=-1 x", "--top-k: -1"},
		{"penalty 0", "would divide by zero", "generate --repeat-penalty 0 x", "--repeat-penalty: 0"},
		{"negative seed", "seeds count from zero", "generate --seed -1 x", "--seed: \"-1\", want a whole number of 0 or more"},
		{"negative length in short", "below zero", "generate -n -5 x", "--max-tokens: -5"},
		{"system message alone", "nothing would show it to the model", "generate --system Short x", "--system: it needs --chat"},
		{"empty stop", "it would end every text", "generate --stop= x", "--stop"},
		{"no tokens", "the flag is needed", "logits --out x.npy", "--tokens"},
		{"empty tokens", "nothing to compute", "logits --tokens= --out x.npy", "--tokens"},
		{"tokens not numbers", "x is not a number", "logits --tokens 1,x --out x.npy", "--tokens"},
		{"no output", "the flag is needed", "logits --tokens 1", "--out"},
		{"text and lines", "ambiguous", "tokenize --jsonl hello", "--jsonl"},
		{"no file", "the argument is needed", "inspect", "<file>"},
		{"unknown type", "the choices are named", "quantize --in a --out b --type q9", "q4_k_m"},
		{"type without encoder", "the choices are named", "quantize --in a --out b --type iq4_xs", "choose one of f32, f16"},
		{"unknown preset", "the choices are named", "synth --preset llama-9 --quant q8_0 --out x", "llama-3.2-1b, llama-3.1-8b"},
		{"unknown quantization", "the choices are named", "synth --preset gpt2 --quant q9 --out x", "q4_k_m"},
		{"negative layers", "below zero", "synth --preset gpt2 --quant q8_0 --out x --layers=-1", "--layers: -1"},
		{"too many layers", "above the limit", "synth --preset gpt2 --quant q8_0 --out x --layers 513", "--layers: 513, want 1 to 512"},
		{"window of one", "no room for a prediction", "perplexity --text x --context 1", "--context: 1"},
		{"argument of golden", "it takes none", "golden now", "now"},
		{"no UTF-8", "the parser would change it", "generate --stop \xff x", "argument 3"},
		{"empty model", "a variable that is not set", "generate --model= x", "--model"},
		{"empty output", "a variable that is not set", "logits --tokens 1 --out=", "--out"},
		{"empty input", "a variable that is not set", "quantize --in= --out x --type f16", "--in"},
		{"empty text", "a variable that is not set", "perplexity --text=", "--text"},
		{"unknown device", "the choices are named", "generate --device tpu x", "auto"},
		{"unknown cache format", "the choices are named", "perplexity --text main.go --kv q8", "--kv: \"q8\", want f16, bf16 or f32"},
		{"empty cache format", "a variable that is not set", "generate --kv= x", "--kv"},
		{"plan for no sequence", "below one", "plan --sequences 0", "--sequences: 0, want 1 to 256"},
		{"plan for too many sequences", "above the limit", "plan --sequences 257", "--sequences: 257, want 1 to 256"},
		{"plan for a negative context", "below zero", "plan --positions=-1", "--positions: -1"},
		{"plan for a negative chunk", "below zero", "plan --chunk=-1", "--chunk: -1"},
		{"answers of negative length", "below zero", "chat -n -1", "--max-tokens: -1"},
		{"argument of chat", "messages come from standard input", "chat hello", "hello"},
		{"address without a port", "not an address", "serve --addr localhost", "--addr: \"localhost\", want a form such as 127.0.0.1:8080"},
		{"empty address", "a variable that is not set", "serve --addr=", "--addr"},
		{"port in words", "no number", "serve --addr :web", "--addr"},
		{"negative grace", "below zero", "serve --grace=-1s", "--grace: -1s, want 0 or more"},
		{"negative timeout", "below zero", "serve --timeout=-1s", "--timeout: -1s"},
		{"no requests", "below one", "serve --max-requests 0", "--max-requests: 0, want 1 or more"},
		{"no sequences to serve", "below one", "serve --max-sequences 0", "--max-sequences: 0, want 1 to 256"},
		{"too many sequences to serve", "above what an engine steps", "serve --max-sequences 257", "--max-sequences: 257, want 1 to 256"},
		{"unknown log format", "the choices are named", "serve --log xml", "--log"},
		{"origin with a path", "not an origin", "serve --origin https://a.example/x", "--origin: \"https://a.example/x\""},
		{"host with a port", "a port is not compared", "serve --allow-host a.example:80", "--allow-host: \"a.example:80\", want a name"},
		{"empty key file", "a variable that is not set", "serve --api-key-file=", "--api-key-file"},
		{"launches of the CPU", "there are none", "plan --device cpu --launches", "--device cpu"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, runCommand(t, "", strings.Fields(tt.args)...), exitUsage, tt.want)
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	all := succeed(t, "", "--help")
	for f := range reflect.TypeFor[cli]().Fields() {
		c := strings.ToLower(f.Name)
		if _, isCommand := f.Tag.Lookup("cmd"); !isCommand {
			continue
		}
		if !strings.Contains(all.out, c) {
			t.Errorf("--help does not name %s", c)
		}
		if r := succeed(t, "", c, "--help"); !strings.Contains(r.out, "Usage: lockstep "+c) || r.err != "" {
			t.Errorf("%s --help: %q, standard error %q", c, r.out, r.err)
		}
	}
	if r := succeed(t, "", "--version"); !strings.HasPrefix(r.out, "lockstep ") {
		t.Errorf("--version: %q", r.out)
	}
}

// writerFunc is a function as standard output.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStandardOutputFails: a closed pipe ends the command without an error; other errors of
// standard output are reported.
func TestStandardOutputFails(t *testing.T) {
	commands := [][]string{
		{"generate", "--max-tokens", "20", "Well,"},
		{"tokenize", "hello"},
		{"inspect", silentModel},
		{"inspect", "--json", silentModel},
		{"--help"},
	}
	gone := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
	for _, args := range commands {
		var errw bytes.Buffer
		status := run(t.Context(), args, strings.NewReader(""), writerFunc(func([]byte) (int, error) { return 0, gone }), &errw)
		if status != exitOK || strings.Contains(errw.String(), "lockstep:") {
			t.Errorf("%q into a closed pipe: status %d, %q", args, status, errw.String())
		}
		errw.Reset()
		full := writerFunc(func([]byte) (int, error) { return 0, errors.New("disk full") })
		if args[0] == "--help" {
			continue // kong drops the error
		}
		status = run(t.Context(), args, strings.NewReader(""), full, &errw)
		refused(t, result{status, "", errw.String()}, exitError, "standard output", "disk full")
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("cable cut") }

func TestStandardInputFails(t *testing.T) {
	for _, args := range [][]string{{"generate"}, {"tokenize"}, {"tokenize", "--jsonl"}} {
		var out, errw bytes.Buffer
		status := run(t.Context(), args, brokenReader{}, &out, &errw)
		refused(t, result{status, out.String(), errw.String()}, exitError, "standard input", "cable cut")
	}
}

var _ io.Reader = brokenReader{}

// An interrupt ends a command that waits for standard input.
func TestInterruptWhileReading(t *testing.T) {
	for _, args := range [][]string{{"generate"}, {"tokenize"}, {"tokenize", "--jsonl"}} {
		ctx, cancel := context.WithCancel(t.Context())
		in, hold := io.Pipe()
		defer hold.Close()
		time.AfterFunc(10*time.Millisecond, cancel)
		var out, errw bytes.Buffer
		status := run(ctx, args, in, &out, &errw)
		refused(t, result{status, out.String(), errw.String()}, exitError, "interrupted")
	}
}

// endless is /dev/zero.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestTextWithoutEnd(t *testing.T) {
	if _, err := readText(endless{}); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("error %v", err)
	}
}

// A file name in an error message cannot control the terminal.
func TestErrorsArePrintable(t *testing.T) {
	r := runCommand(t, "", "inspect", "no\x1b[2Jsuch\nfile")
	refused(t, r, exitError, `no\x1b[2Jsuch`)
}
