// Command skipcheck reads the output of go test -json and prints it as go test does: a line per
// package, and the output of tests that failed. It then lists the skipped tests with their
// reasons.
//
//	go test -json ./... | go run ./internal/skipcheck
//
// It ends with status 1 if a test failed, or if a test passed although each of its subtests
// was skipped: nothing was tested, so the test must skip itself.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	ok, err := check(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "skipcheck: %v\n", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// event is a line of go test -json, documented by go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build that failed
	Test       string
	Output     string
}

// test is a test or subtest of a package.
type test struct{ pkg, name string }

// results are the tests that ended.
type results struct {
	action map[test]string // pass, fail or skip
	output map[test]string // of tests that run or were skipped
	order  []test
}

// check reads events up to the end of in. It returns false if a test failed or tested nothing.
func check(in io.Reader, out io.Writer) (ok bool, err error) {
	r := results{action: map[test]string{}, output: map[test]string{}}
	ok = true
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return false, fmt.Errorf("line %d: want the output of go test -json: %w", n, err)
		}
		if e.Action == "fail" || e.Action == "build-fail" {
			ok = false
		}
		r.add(e, out)
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	r.printSkipped(out)
	empty := r.empty()
	for _, t := range empty {
		fmt.Fprintf(out, "FAIL %s %s: it passed, although each of its subtests was skipped\n", t.pkg, t.name)
	}
	return ok && len(empty) == 0, nil
}

// add records an event, and prints what go test would print without -v.
func (r *results) add(e event, out io.Writer) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		io.WriteString(out, e.Output)
	case "output":
		switch {
		case e.Test != "":
			r.output[t] += e.Output
		case e.Output != "PASS\n":
			io.WriteString(out, e.Output)
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			return
		}
		r.action[t] = e.Action
		r.order = append(r.order, t)
		if e.Action == "fail" {
			io.WriteString(out, r.output[t])
		}
		if e.Action != "skip" {
			delete(r.output, t)
		}
	}
}

// printSkipped lists the skipped tests by package.
func (r *results) printSkipped(out io.Writer) {
	for _, t := range r.sorted() {
		if r.action[t] == "skip" {
			fmt.Fprintf(out, "skip %s %s: %s\n", t.pkg, t.name, reason(r.output[t]))
		}
	}
}

// reason returns what a skipped test logged.
func reason(output string) string {
	var logged []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			logged = append(logged, line)
		}
	}
	return strings.Join(logged, "; ")
}

// empty returns the tests that passed although each of their subtests was skipped.
func (r *results) empty() (list []test) {
	subtests, skipped := map[test]int{}, map[test]int{}
	for _, t := range r.order {
		parent, found := r.parent(t)
		if !found {
			continue
		}
		subtests[parent]++
		if r.action[t] == "skip" {
			skipped[parent]++
		}
	}
	for _, t := range r.sorted() {
		if r.action[t] == "pass" && subtests[t] > 0 && subtests[t] == skipped[t] {
			list = append(list, t)
		}
	}
	return list
}

// parent returns the test that t is a subtest of. The name of a subtest may have slashes of its own.
func (r *results) parent(t test) (test, bool) {
	for {
		end := strings.LastIndex(t.name, "/")
		if end < 0 {
			return test{}, false
		}
		t.name = t.name[:end]
		if r.action[t] != "" {
			return t, true
		}
	}
}

func (r *results) sorted() []test {
	return slices.SortedStableFunc(slices.Values(r.order), func(a, b test) int { return strings.Compare(a.pkg, b.pkg) })
}
