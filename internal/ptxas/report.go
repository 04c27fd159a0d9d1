package ptxas

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Report is what ptxas -v says of an entry, with any functions that are compiled
// beside it.
type Report struct {
	Registers   int      // a thread
	Stack       int      // bytes of local memory a thread, spills among them
	SpillStores int      // bytes a thread writes to spill registers
	SpillLoads  int      // bytes a thread reads back
	Shared      int      // bytes of static shared memory a block
	Barriers    int      // named barriers; 0 from a ptxas that does not count them
	Warnings    []string // those that name this entry, and those that name none
}

var (
	entryLine  = regexp.MustCompile(`Compiling entry function '([^']+)'`)
	identifier = regexp.MustCompile(`[\w$%]+`)
	// Among what ptxas calls mere information, numbered advisories tell of lost speed, such as serialized wgmma.
	warningLine = regexp.MustCompile(`^ptxas (?:.*; )?(?:warning *: *(.+)|info *: *(\(C\d+\).+))$`)
)

// figures are the numbers in the lines about an entry. The two that are required
// keep a change of format from passing for a kernel that costs nothing.
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

// parse reads what ptxas -v prints. Lines and numbers that it does not know are
// passed over; an entry without its required figures is an error.
func parse(out []byte) (map[string]Report, error) {
	text := string(out)
	heads := entryLine.FindAllStringSubmatchIndex(text, -1)
	reports := make(map[string]Report, len(heads))
	for i, head := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		name := text[head[2]:head[3]]
		report, err := readFigures(text[head[1]:end])
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

// readFigures reads the lines about one entry. A figure that is printed for several
// functions is their sum.
func readFigures(section string) (Report, error) {
	var r Report
	for _, f := range figures {
		found := f.pattern.FindAllStringSubmatch(section, -1)
		if found == nil && f.required {
			return Report{}, fmt.Errorf("no %s in what it prints: %q", f.name, section)
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

// addWarning gives a warning to the entries that it names, or else to all: none is lost.
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
