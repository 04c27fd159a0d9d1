package ptxas

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Report holds the numbers of ptxas -v for an entry and the functions that are compiled with it.
type Report struct {
	Registers   int      // per thread
	Stack       int      // bytes of local memory per thread, including spills
	SpillStores int      // bytes that a thread writes to spill registers
	SpillLoads  int      // bytes that a thread reads back
	Shared      int      // bytes of static shared memory per CTA
	Barriers    int      // named barriers; 0 if ptxas does not report them
	Warnings    []string // warnings that name this entry, or no entry
}

var (
	entryLine  = regexp.MustCompile(`Compiling entry function '([^']+)'`)
	identifier = regexp.MustCompile(`[\w$%]+`)
	// Numbered info lines are performance warnings, such as serialized wgmma.
	warningLine = regexp.MustCompile(`^ptxas (?:.*; )?(?:warning *: *(.+)|info *: *(\(C\d+\).+))$`)
)

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

// parse parses the output of ptxas -v. It ignores unknown lines. An entry without its required
// figures is an error.
func parse(out []byte) (map[string]Report, error) {
	text := string(out)
	matches := entryLine.FindAllStringSubmatchIndex(text, -1)
	reports := make(map[string]Report, len(matches))
	for i, match := range matches {
		end := len(text)
		if i+1 < len(matches) {
			end = matches[i+1][0]
		}
		name := text[match[2]:match[3]]
		report, err := readFigures(text[match[1]:end])
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", name, err)
		}
		reports[name] = report
	}
	for _, warning := range readWarnings(text) {
		addWarning(reports, warning)
	}
	return reports, nil
}

// readFigures parses the lines about one entry. It adds the figures of several functions.
func readFigures(section string) (Report, error) {
	var r Report
	for _, f := range figures {
		found := f.pattern.FindAllStringSubmatch(section, -1)
		if found == nil && f.required {
			return Report{}, fmt.Errorf("the output has no %s: %q", f.name, section)
		}
		for _, m := range found {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				return Report{}, fmt.Errorf("%s: %w", f.name, err)
			}
			*f.field(&r) += n
		}
	}
	return r, nil
}

func readWarnings(text string) []string {
	var warnings []string
	for line := range strings.Lines(text) {
		if m := warningLine.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			warnings = append(warnings, m[1]+m[2])
		}
	}
	return warnings
}

// addWarning adds a warning to the entries that it names, or to all entries if it names none.
func addWarning(reports map[string]Report, warning string) {
	named := map[string]bool{}
	for _, word := range identifier.FindAllString(warning, -1) {
		if _, ok := reports[word]; ok {
			named[word] = true
		}
	}
	for name, r := range reports {
		if named[name] || len(named) == 0 {
			r.Warnings = append(r.Warnings, warning)
			reports[name] = r
		}
	}
}
