package main

import (
	"strings"
	"testing"
)

// events returns a stream of go test -json for package p. Each line is an action, a test and an
// output.
func events(lines ...string) string {
	var out strings.Builder
	for _, line := range lines {
		f := strings.SplitN(line, " ", 3)
		out.WriteString(`{"Action":"` + f[0] + `","Package":"p"`)
		if len(f) > 1 && f[1] != "" {
			out.WriteString(`,"Test":"` + f[1] + `"`)
		}
		if len(f) > 2 {
			out.WriteString(`,"Output":"` + f[2] + `\n"`)
		}
		out.WriteString("}\n")
	}
	return out.String()
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name, reason string
		in           string
		ok           bool
		want         string
	}{
		{"passed", "its output is not shown", events("run T", "output T noise", "pass T", "output  PASS", "output  ok p 0.1s", "pass"), true, "ok p 0.1s\n"},
		{"failed", "its output is shown", events("output T why", "fail T", "output  FAIL p 0.1s", "fail"), false, "why\nFAIL p 0.1s\n"},
		{"not built", "there is no test", `{"Action":"build-output","ImportPath":"p","Output":"syntax\n"}` + "\n" + `{"Action":"build-fail","ImportPath":"p"}`, false, "syntax\n"},
		{"package failed", "it panicked outside of a test", events("output  panic: x", "fail"), false, "panic: x\n"},
		{"skipped", "a skipped test says so itself", events("output T === RUN T", "output T     a_test.go:1: no GPU", "output T --- SKIP: T", "skip T"), true,
			"skip p T: a_test.go:1: no GPU\n"},
		{"some subtests skipped", "one ran", events("output T/a     no", "skip T/a", "pass T/b", "pass T"), true, "skip p T/a: no\n"},
		{"all subtests skipped", "nothing ran", events("output T/a     no", "skip T/a", "output T/b     no", "skip T/b", "pass T"), false,
			"skip p T/a: no\nskip p T/b: no\nFAIL p T: it passed, although each of its subtests was skipped\n"},
		{"parent skipped too", "it is honest", events("output T/a     no", "skip T/a", "output T     all", "skip T"), true, "skip p T/a: no\nskip p T: all\n"},
		{"slash in a name", "the parent is T", events("output T/a/b     no", "skip T/a/b", "pass T"), false,
			"skip p T/a/b: no\nFAIL p T: it passed, although each of its subtests was skipped\n"},
		{"all of a subtest skipped", "the subtest is the parent", events("output T/a/b     no", "skip T/a/b", "pass T/a", "pass T/c", "pass T"), false,
			"skip p T/a/b: no\nFAIL p T/a: it passed, although each of its subtests was skipped\n"},
		{"equal names", "another package's subtests are its own", events("pass T/a", "pass T") + strings.ReplaceAll(events("output T/a     no", "skip T/a", "pass T"), `"p"`, `"q"`), false,
			"skip q T/a: no\nFAIL q T: it passed, although each of its subtests was skipped\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			ok, err := check(strings.NewReader(tt.in), &out)
			if err != nil || ok != tt.ok || out.String() != tt.want {
				t.Errorf("%s: %v, %v, output\n%swant\n%s", tt.reason, ok, err, out.String(), tt.want)
			}
		})
	}
	if _, err := check(strings.NewReader("ok p 0.1s\n"), &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("text instead of JSON: error %v", err)
	}
}
