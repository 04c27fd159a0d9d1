package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
)

// trace records the timings of a generation. A nil trace records nothing.
type trace struct {
	emulated bool            // kernel times count warp instructions, 1 ns each
	prompt   time.Duration   // of all passes of the prompt
	steps    []time.Duration // of the other passes
	inPrompt bool            // whether the pass that runs is of the prompt
	kernels  struct{ prompt, decode kernelTimes }
}

// kernelTimes sums kernel times by operation.
type kernelTimes struct {
	passes int
	total  time.Duration
	ops    map[string]*opTime
}

type opTime struct {
	op       string
	launches int
	took     time.Duration
	kernels  []string // such as one per weight format
}

// timed is an accel.Options.Timer.
func (t *trace) timed(pass accel.Timing) {
	times := &t.kernels.decode
	if t.inPrompt {
		times = &t.kernels.prompt
	}
	times.add(pass)
}

// pass announces a pass of the generation's only sequence.
func (t *trace) pass(rows []model.Row) {
	if t != nil {
		t.inPrompt = rows[0].Prompt
	}
}

// passed records a pass of the generation's only sequence.
func (t *trace) passed(rows []model.Row, took time.Duration) {
	switch {
	case t == nil:
	case rows[0].Prompt:
		t.prompt += took
	default:
		t.steps = append(t.steps, took)
	}
}

func (k *kernelTimes) add(pass accel.Timing) {
	if k.ops == nil {
		k.ops = map[string]*opTime{}
	}
	k.passes++
	for i, s := range pass.Launches {
		o := k.ops[s.Op]
		if o == nil {
			o = &opTime{op: s.Op}
			k.ops[s.Op] = o
		}
		o.launches++
		o.took += pass.Durations[i]
		k.total += pass.Durations[i]
		if !slices.Contains(o.kernels, s.Kernel) {
			o.kernels = append(o.kernels, s.Kernel)
		}
	}
}

// print writes the tables.
func (t *trace) print(e *env, s generate.Stats) {
	if t == nil || t.prompt == 0 {
		return
	}
	t.printPhases(e.errw, s)
	t.printSteps(e.errw)
	all := func(passes ...time.Duration) string {
		if t.emulated {
			return "1 ns per warp instruction"
		}
		return "of " + ms(sum(passes)) + " ms"
	}
	t.kernels.prompt.print(e.errw, "kernels of the prompt", all(t.prompt))
	t.kernels.decode.print(e.errw, "kernels of the steps, launched without a graph", all(t.steps...))
}

func (t *trace) printPhases(out io.Writer, s generate.Stats) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(what string, d time.Duration, note string) { fmt.Fprintf(w, "%s\t%s\t%s\n", what, ms(d), note) }
	fmt.Fprintln(w, "\nfirst token\tms\t")
	line("waited", s.Waited, "")
	line("prefill", s.Prefill, fmt.Sprintf("  %d tokens, %.1f tokens/s", s.PromptTokens-s.ReusedTokens, s.PrefillRate()))
	line("total", s.FirstToken, "")
	w.Flush()
}

// stepsPerLine is the number of step times per line.
const stepsPerLine = 10

func (t *trace) printSteps(out io.Writer) {
	if len(t.steps) == 0 {
		return
	}
	order := slices.Sorted(slices.Values(t.steps))
	fmt.Fprintf(out, "\n%d steps: median %s ms, least %s, most %s\n", len(t.steps), ms(order[(len(order)-1)/2]), ms(order[0]), ms(order[len(order)-1]))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for first := 0; first < len(t.steps); first += stepsPerLine {
		fmt.Fprintf(w, "%d\t", first+1)
		for _, d := range t.steps[first:min(first+stepsPerLine, len(t.steps))] {
			fmt.Fprintf(w, "%s\t", ms(d))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// print writes the operations, the longest first.
func (k *kernelTimes) print(out io.Writer, what, of string) {
	if k.passes == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s: %d passes, %s ms, %s\n", what, k.passes, ms(k.total), of)
	list := make([]*opTime, 0, len(k.ops))
	for _, o := range k.ops {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b *opTime) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.op, b.op))
	})
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "operation\tlaunches\tms\tshare\tµs/launch\tkernel")
	for _, o := range list {
		slices.Sort(o.kernels)
		fmt.Fprintf(w, "%s\t%d\t%s\t%.1f%%\t%.1f\t%s\n", o.op, o.launches, ms(o.took),
			100*float64(o.took)/float64(max(k.total, 1)), float64(o.took.Nanoseconds())/1e3/float64(o.launches), strings.Join(o.kernels, ", "))
	}
	w.Flush()
}

func sum(list []time.Duration) (all time.Duration) {
	for _, d := range list {
		all += d
	}
	return all
}

// ms formats a time in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }
