package main

import (
	"cmp"
	"context"
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
	forwards []time.Duration // of the prompt, then of each step
	prompt   kernelTimes
	decode   kernelTimes
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

// kernels is an accel.Options.Timer. Calls do not overlap, as a generation has one
// sequence.
func (t *trace) kernels(pass accel.Timing) {
	times := &t.decode
	if len(t.forwards) == 0 {
		times = &t.prompt
	}
	times.add(pass)
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

// watch wraps an engine to time each Forward of its sessions.
func (t *trace) watch(eng model.Engine) model.Engine {
	if t == nil {
		return eng
	}
	return watched{eng, t}
}

type watched struct {
	model.Engine
	trace *trace
}

func (w watched) NewSession(capacity int) (model.Session, error) {
	s, err := w.Engine.NewSession(capacity)
	if err != nil {
		return nil, err
	}
	return watchedSession{s, w.trace}, nil
}

type watchedSession struct {
	model.Session
	trace *trace
}

func (s watchedSession) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	begin := time.Now()
	out, err := s.Session.Forward(ctx, tokens, want)
	s.trace.forwards = append(s.trace.forwards, time.Since(begin))
	return out, err
}

// print writes the tables.
func (t *trace) print(e *env, s generate.Stats) {
	if t == nil || len(t.forwards) == 0 {
		return
	}
	t.printPhases(e.errw, s)
	t.printSteps(e.errw, s)
	all := func(forwards ...time.Duration) string {
		if t.emulated {
			return "1 ns per warp instruction"
		}
		return "of " + ms(sum(forwards)) + " ms"
	}
	t.prompt.print(e.errw, "kernels of the prompt", all(t.forwards[0]))
	t.decode.print(e.errw, "kernels of the steps, launched without a graph", all(t.forwards[1:]...))
}

func (t *trace) printPhases(out io.Writer, s generate.Stats) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(what string, d time.Duration, note string) { fmt.Fprintf(w, "%s\t%s\t%s\n", what, ms(d), note) }
	fmt.Fprintln(w, "\nfirst token\tms\t")
	line("prepare", s.Prepare, "")
	line("prefill", s.Prefill, fmt.Sprintf("  %d tokens, %.1f tokens/s", s.PromptTokens-s.ReusedTokens, s.PrefillRate()))
	if s.Store > 0 {
		line("store", s.Store, "  into the prefix cache")
	}
	line("sample", max(0, s.FirstToken-s.Prepare-s.Prefill-s.Store), "")
	line("total", s.FirstToken, "")
	w.Flush()
}

// stepsPerLine is the number of step times per line.
const stepsPerLine = 10

func (t *trace) printSteps(out io.Writer, s generate.Stats) {
	steps := t.forwards[1:]
	if len(steps) == 0 {
		return
	}
	order := slices.Sorted(slices.Values(steps))
	fmt.Fprintf(out, "\n%d steps: median %s ms, least %s, most %s; sampling %s ms in total\n",
		len(steps), ms(order[(len(order)-1)/2]), ms(order[0]), ms(order[len(order)-1]), ms(max(0, s.Decode-sum(steps))))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for first := 0; first < len(steps); first += stepsPerLine {
		fmt.Fprintf(w, "%d\t", first+1)
		for _, d := range steps[first:min(first+stepsPerLine, len(steps))] {
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
