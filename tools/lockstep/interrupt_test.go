//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is the command in a process of its own.
type process struct {
	*exec.Cmd
	dir string // for temporary files, with the named pipe "pipe"
	in  io.WriteCloser
	err chan string // all of standard error, after its end
}

// start starts the command with a shell as sh -c script, which calls it "$0". $DIR in script
// is a new directory.
func start(t *testing.T, script string) process {
	t.Helper()
	p := process{dir: t.TempDir(), err: make(chan string, 1)}
	if err := mkfifo(filepath.Join(p.dir, "pipe")); err != nil {
		t.Fatal(err)
	}
	p.Cmd = exec.Command("sh", "-c", script, os.Args[0])
	p.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+p.dir, "DIR="+p.dir)
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	errw, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(30*time.Second, func() { p.Process.Kill() })
	t.Cleanup(func() { hang.Stop(); p.Process.Kill() })
	line := make([]byte, len(startedText))
	if _, err := io.ReadFull(errw, line); err != nil || string(line) != startedText {
		t.Fatalf("it says %q, %v", line, err)
	}
	go func() {
		rest, _ := io.ReadAll(errw)
		p.err <- string(rest)
	}()
	return p
}

// end waits for the process and returns its standard error.
func (p process) end() (string, error) {
	text := <-p.err
	return text, p.Wait()
}

// files returns the names in a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A signal ends the command with 128 plus its number, whatever the command is doing, and
// leaves no file. Without the signal each of these commands would run for minutes.
func TestSignals(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	text := put(t, "text", strings.Repeat("It was the best of times. ", 20000))
	long := "5" + strings.Repeat(",5", 900)
	tests := []struct {
		name, reason string
		signal       syscall.Signal
		args         string
		writes       bool // a file, before the signal
		status       int
	}{
		{"blocked", "the system call knows no context", syscall.SIGINT, "perplexity --text $DIR/pipe", false, 130},
		{"terminated", "as systemd does", syscall.SIGTERM, "perplexity --text $DIR/pipe", false, 143},
		{"hung up", "the terminal is closed", syscall.SIGHUP, "perplexity --text $DIR/pipe", false, 129},
		{"standard input", "nothing comes", syscall.SIGINT, "tokenize", false, 130},
		{"perplexity", "a long text", syscall.SIGINT, "perplexity --device cpu --text " + text, false, 130},
		{"prompt", "one pass of the emulator takes minutes", syscall.SIGINT, "logits --device emu --out $DIR/out --tokens " + long, false, 130},
		{"text", "many steps of the emulator", syscall.SIGINT, "generate --device emu --max-tokens 1000 Well,", false, 130},
		{"diff", "the emulator and the reference", syscall.SIGINT, "diff --device emu --json $DIR/out --html $DIR/out2 --tokens " + long, false, 130},
		{"bench", "a case takes minutes", syscall.SIGINT, "bench --device emu --json $DIR/out --plot $DIR/out2 --prompts 500", false, 130},
		{"synth", "a file of gigabytes is written", syscall.SIGINT, "synth --preset llama-3.1-8b --quant f16 --out $DIR/out", true, 130},
		{"stuck writer", "its temporary file is removed", syscall.SIGINT, stuckCommand + " $DIR/out", true, 130},
		{"preset", "its model is a temporary file", syscall.SIGINT, "bench --device cpu --preset llama-3.1-8b --quant f16", true, 130},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, `exec "$0" `+tt.args)
			for range 3000 {
				time.Sleep(10 * time.Millisecond)
				found, err := filepath.Glob(filepath.Join(p.dir, ".lockstep-*.tmp"))
				if err != nil {
					t.Fatal(err)
				}
				if !tt.writes || len(found) > 0 {
					break
				}
			}
			time.Sleep(200 * time.Millisecond)
			sent := time.Now()
			if err := p.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			text, err := p.end()
			if p.ProcessState.ExitCode() != tt.status || !strings.HasSuffix(text, interruptedText+"\n") {
				t.Errorf("%s: %v, want status %d; standard error %q", tt.reason, err, tt.status, text)
			}
			if took := time.Since(sent); took > 10*time.Second { // for a loaded machine; it is less than one
				t.Errorf("it ended after %v", took)
			}
			if left := files(t, p.dir); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// An interrupt that a script sends to a command in the background ends it, although shells
// start it with interrupts ignored.
func TestInterruptInBackground(t *testing.T) {
	p := start(t, `trap "" INT; exec "$0" tokenize`)
	go func() { // again, in case it came too early
		for p.Process.Signal(syscall.SIGINT) == nil {
			time.Sleep(50 * time.Millisecond)
		}
	}()
	if text, err := p.end(); p.ProcessState.ExitCode() != 130 {
		t.Errorf("%v; standard error %q", err, text)
	}
}

// A command under nohup survives the end of its terminal.
func TestIgnoredSignal(t *testing.T) {
	p := start(t, `trap "" HUP; exec "$0" tokenize`)
	time.Sleep(50 * time.Millisecond)
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	io.WriteString(p.in, "hello")
	p.in.Close()
	if text, err := p.end(); err != nil || text != "" {
		t.Errorf("%v; standard error %q", err, text)
	}
}

// A killed benchmark of a preset leaves no model behind.
func TestBenchPresetKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a model of 40 MB")
	}
	p := start(t, `exec "$0" bench --device cpu --preset gpt2 --quant q4_k_m --layers 1 --depths= --prompts= --batches=1000 --budget 1h`)
	made := false
	for range 30000 {
		left := len(files(t, p.dir))
		if made = made || left > 1; made && left == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	p.Process.Kill()
	text, err := p.end()
	if left := files(t, p.dir); !made || len(left) != 1 || p.ProcessState.ExitCode() != -1 {
		t.Errorf("a file was made: %v; left behind: %v; %v, %q", made, left, err, text)
	}
}
