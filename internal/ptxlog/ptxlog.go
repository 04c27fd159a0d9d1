// Package ptxlog reads what NVIDIA's assembler says about kernels: the output of ptxas -v, and the
// log of the driver's compiler, which contains the same lines. [Report.Check] is the one rule that
// decides which kernels are slow.
package ptxlog

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Report is what the assembler says about an entry and the functions that are compiled with it.
type Report struct {
	Registers   int       // per thread
	Stack       int       // bytes of local memory per thread, including spills
	SpillStores int       // bytes that a thread writes to spill registers
	SpillLoads  int       // bytes that a thread reads back
	Shared      int       // bytes of static shared memory per CTA
	Barriers    int       // named barriers; 0 if the assembler does not report them
	Warnings    []Warning // those that name this entry, or no entry
}

// Check returns an error with the kernel's name if the assembler made the kernel slow: the kernel
// uses local memory or has a warning. Its results are still right. No kernel of this module declares
// local memory, so all of it is spilled registers or a stack frame.
func (r Report) Check(kernel string) error {
	var faults []string
	switch {
	case r.SpillStores+r.SpillLoads > 0:
		faults = append(faults, fmt.Sprintf("%d bytes of spill stores, %d bytes of spill loads", r.SpillStores, r.SpillLoads))
	case r.Stack > 0:
		faults = append(faults, fmt.Sprintf("%d bytes of local memory per thread", r.Stack))
	}
	for _, w := range r.Warnings {
		faults = append(faults, w.String())
	}
	if faults == nil {
		return nil
	}
	return fmt.Errorf("kernel %s is slow: %s", kernel, strings.Join(faults, "; "))
}

var (
	entryDirective = regexp.MustCompile(`(?m)^[ \t]*(?:\.(?:visible|weak)[ \t]+)?\.entry[ \t]+([\w$%]+)`)
	entryLine      = regexp.MustCompile(`Compiling entry function '([^']+)'`)
	identifier     = regexp.MustCompile(`[\w$%]+`)
)

// Entries returns the names of the entries of a PTX text.
func Entries(text []byte) []string {
	var names []string
	for _, m := range entryDirective.FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

// figures are the numbers of an entry. Some are required, so that a change of the output's format
// cannot look like a kernel without spills.
var figures = []struct {
	name     string
	pattern  *regexp.Regexp
	field    func(*Report) *int
	required bool
}{
	{"registers", regexp.MustCompile(`[Uu]sed (\d+) registers`), func(r *Report) *int { return &r.Registers }, true},
	{"stack frame", regexp.MustCompile(`(\d+) bytes stack frame`), func(r *Report) *int { return &r.Stack }, false},
	{"spill stores", regexp.MustCompile(`(\d+) bytes spill stores`), func(r *Report) *int { return &r.SpillStores }, true},
	{"spill loads", regexp.MustCompile(`(\d+) bytes spill loads`), func(r *Report) *int { return &r.SpillLoads }, true},
	{"shared memory", regexp.MustCompile(`(\d+) bytes smem`), func(r *Report) *int { return &r.Shared }, false},
	{"barriers", regexp.MustCompile(`(\d+) barriers`), func(r *Report) *int { return &r.Barriers }, false},
}

// Parse returns a report for each entry of the text that was assembled. It ignores unknown lines. If
// a required figure is missing, it returns an error beside the reports.
func Parse(out []byte, entries []string) (map[string]Report, error) {
	reports := make(map[string]Report, len(entries))
	sections := sections(string(out))
	var errs []error
	for _, name := range entries {
		report, err := readFigures(sections[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %s: %w", name, err))
		}
		reports[name] = report
	}
	for line := range strings.Lines(string(out)) {
		if w, ok := parseWarning(strings.TrimRight(line, "\r\n")); ok {
			addWarning(reports, w)
		}
	}
	return reports, errors.Join(errs...)
}

// sections returns the lines about each entry. It leaves out lines of the driver's linker, which
// repeat figures. They begin with "info", those of the assembler with "ptxas" or white space.
func sections(out string) map[string]string {
	sections := map[string]string{}
	name := ""
	for line := range strings.Lines(out) {
		if m := entryLine.FindStringSubmatch(line); m != nil {
			name = m[1]
		} else if name != "" && !strings.HasPrefix(line, "info") {
			sections[name] += line
		}
	}
	return sections
}

// readFigures parses the lines about one entry. It adds the figures of several functions.
func readFigures(section string) (Report, error) {
	var r Report
	var errs []error
	for _, f := range figures {
		found := f.pattern.FindAllStringSubmatch(section, -1)
		if found == nil && f.required {
			errs = append(errs, fmt.Errorf("the output has no %s: %q", f.name, section))
		}
		for _, m := range found {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
			}
			*f.field(&r) += n
		}
	}
	return r, errors.Join(errs...)
}

// addWarning adds a warning to the entries that its text names, or to all entries if it names none.
func addWarning(reports map[string]Report, w Warning) {
	named := map[string]bool{}
	for _, word := range identifier.FindAllString(w.Text, -1) {
		if _, ok := reports[word]; ok {
			named[word] = true
		}
	}
	for name, r := range reports {
		if named[name] || len(named) == 0 {
			r.Warnings = append(r.Warnings, w)
			reports[name] = r
		}
	}
}
