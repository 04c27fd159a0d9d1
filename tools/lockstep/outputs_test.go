package main

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// commandsWithOutput has a command for every flag of type outPath. O is the output.
var commandsWithOutput = []string{
	"logits --tokens 1,2 --out O",
	"quantize --in " + tinyModel + " --type q4_0 --out O",
	"synth --preset gpt2 --quant q4_0 --layers 1 --out O",
	"ptx --kernel rmsnorm --out O",
	"bench model --model " + silentModel + " --device cpu --json O",
	"bench model --model " + silentModel + " --device cpu --plot O",
	"bench kernels --json O",
	"bench sampling --model " + silentModel + " --json O",
	"bench serve --url http://127.0.0.1:1 --rate 1 --json O",
	"bench serve --url http://127.0.0.1:1 --rate 1 --plot O",
	"diff --model " + silentModel + " --device emu --html O",
	"diff --model " + silentModel + " --device emu --json O",
}

// withOutput returns the arguments of a command and the flag of its output.
func withOutput(command, out string) (args []string, flag string) {
	args = strings.Fields(command)
	last := len(args) - 1
	args[last] = out
	return args, args[last-1]
}

// Every command refuses an output that it cannot write or must not replace, before it
// computes. The error names the flag and the path.
func TestBadOutputs(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	tests := []struct{ name, reason, path, want string }{
		{"no such directory", "it is not created", filepath.Join(dir, "none", "out"), "no such file or directory"},
		{"directory", "it is not replaced", dir, "is a directory: want a regular file"},
		{"standard output", "a shell would mean it", "-", "-: want a regular file, not standard output"},
		{"model", "its loss is expensive", put(t, "model.gguf", "GGUF"), "is a GGUF model"},
		{"device", "others need it", os.DevNull, "is a device: want a regular file"},
		{"pipe", "its reader waits", pipe, "is a pipe: want a regular file"},
	}
	if err := mkfifo(pipe); err != nil {
		tests = tests[:len(tests)-1]
	}
	for _, tt := range tests {
		for _, command := range commandsWithOutput {
			name, _, _ := strings.Cut(command, " ")
			args, flag := withOutput(command, tt.path)
			if tt.name == "model" && (name == "quantize" || name == "synth") {
				continue // they may replace a model
			}
			t.Run(tt.name+"/"+name+flag, func(t *testing.T) {
				before, statErr := os.Lstat(tt.path)
				status := exitError
				if tt.path == "-" {
					status = exitUsage
				}
				want := tt.want
				if runtime.GOOS == "windows" && tt.name == "no such directory" {
					want = ""
				}
				refused(t, runCommand(t, "", args...), status, flag, tt.path, want)
				if after, err := os.Lstat(tt.path); statErr == nil && (err != nil || !os.SameFile(before, after)) {
					t.Errorf("%s: it is replaced (%v)", tt.reason, err)
				}
			})
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Outputs have the type outPath, and the tests above cover each.
func TestOutputFlags(t *testing.T) {
	missing := map[string]bool{}
	var visit func(command string, node reflect.Type)
	visit = func(command string, node reflect.Type) {
		for f := range node.Fields() {
			name := strings.ToLower(f.Name)
			_, isCommand := f.Tag.Lookup("cmd")
			switch {
			case f.Type == reflect.TypeFor[outPath]():
				missing[command+"--"+name] = true
			case f.Type == reflect.TypeFor[path]() && slices.Contains([]string{"out", "json", "html", "plot"}, name):
				t.Errorf("%s--%s: want the type outPath", command, name)
			case isCommand:
				visit(command+name+" ", f.Type)
			}
		}
	}
	visit("", reflect.TypeFor[cli]())
	if len(missing) == 0 {
		t.Error("no command has an output")
	}
	for _, command := range commandsWithOutput {
		args, flag := withOutput(command, "")
		key := args[0] + " " + flag
		if args[0] == "bench" {
			key = args[0] + " " + args[1] + " " + flag
		}
		delete(missing, key)
	}
	for key := range missing {
		t.Errorf("commandsWithOutput lacks %s", key)
	}
}

// An output is refused if it is another output, an input or standard output, under whatever
// name.
func TestOutputsAreDistinct(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, err := range []error{
		os.WriteFile("in", []byte("text"), 0o600), os.Link("in", "hard"), os.Symlink("in", "soft"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	stdout, err := os.Create("stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	tests := []struct {
		name, reason string
		outputs      []output
		want         string
	}{
		{"input", "the same name", []output{{flag: "--out", file: "in"}}, "--out: in is the input in"},
		{"input by another path", "the same file", []output{{flag: "--out", file: outPath(filepath.Join(dir, "in"))}}, "is the input in"},
		{"input by a hard link", "the same file", []output{{flag: "--out", file: "hard"}}, "--out: hard is the input in"},
		{"input by a symbolic link", "the link is followed", []output{{flag: "--out", file: "soft"}}, "--out: soft is the input in"},
		{"two outputs", "the second would replace the first", []output{{flag: "--a", file: "new"}, {flag: "--b", file: "./new"}}, "--b: ./new is the file of --a"},
		{"two links", "one file", []output{{flag: "--a", file: "stdout"}, {flag: "--b", file: outPath(filepath.Join(dir, "stdout"))}}, "--a: stdout is standard output"},
		{"nothing", "both flags are absent", []output{{flag: "--a"}, {flag: "--b"}}, ""},
		{"two files", "both are new", []output{{flag: "--a", file: "a"}, {flag: "--b", file: "b"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := (&env{out: stdout}).checkOutputs(tt.outputs, "in", "")
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: error %v, want %q", tt.reason, err, tt.want)
			}
		})
	}
}

// An interrupt leaves the previous output file and no other.
func TestWritersInterrupted(t *testing.T) {
	for _, command := range []string{
		"quantize --in " + tinyModel + " --type q4_0 --out",
		"synth --preset llama-3.1-8b --quant q8_0 --out",
		"logits --tokens 1,2 --out",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		out := put(t, "out", "precious")
		r := runContext(ctx, "", append(strings.Fields(command), out)...)
		if r.status != exitError || r.err != "lockstep: interrupted\n" {
			t.Errorf("%s: status %d, %q", command, r.status, r.err)
		}
		checkPrecious(t, out)
	}
}
