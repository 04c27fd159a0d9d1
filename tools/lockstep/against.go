package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// againstFlag is the --against flag.
type againstFlag struct {
	Against path `help:"Also print how many times faster each result is than in an earlier run, from the --json of that run." placeholder:"F"`
}

// earlierRun is the report of --against.
type earlierRun[R any] struct {
	file   path
	report R
}

// readEarlier reads the file of --against. benchmark and version are those of the report that it
// must have. Without the flag, readEarlier returns nil.
func readEarlier[R any](f againstFlag, benchmark string, version int) (*earlierRun[R], error) {
	if f.Against == "" {
		return nil, nil
	}
	text, err := readTextFile(string(f.Against))
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	run := earlierRun[R]{file: f.Against}
	var header struct {
		Benchmark string
		Version   int
	}
	err = json.Unmarshal(text, &header)
	switch {
	case err != nil:
		return nil, run.refuse("%w", err)
	case header.Benchmark == "":
		return nil, run.refuse("no field \"benchmark\", want the --json of bench %s", benchmark)
	case header.Benchmark != benchmark:
		return nil, run.refuse("results of bench %s, want those of bench %s", printable(header.Benchmark), benchmark)
	case header.Version != version:
		return nil, run.refuse("version %d of the file format, want %d", header.Version, version)
	}
	if err := json.Unmarshal(text, &run.report); err != nil {
		return nil, run.refuse("%w", err)
	}
	return &run, nil
}

// refuse returns an error about the file.
func (r *earlierRun[R]) refuse(format string, args ...any) error {
	return fmt.Errorf("--against: %s: %w", r.file, fmt.Errorf(format, args...))
}

// header explains the column of ratios in one line. facts describe the earlier run.
func (r *earlierRun[R]) header(facts ...string) string {
	for i, f := range facts {
		facts[i] = printable(f)
	}
	return fmt.Sprintf("ratio: speed of this run to that of %s (%s); above 1 is faster", printable(string(r.file)), strings.Join(facts, ", "))
}

// ratioText formats a ratio; 0 is unknown.
func ratioText(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio)
}
