package modelbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// bench is a run over all cases.
type bench struct {
	eng    model.Engine
	o      *Options
	work   Work
	random *rand.Rand

	prompts []Result // of the Prefill cases that were measured, the shortest first
	group   *group   // of the last case; nil: none
}

func newBench(eng model.Engine, o *Options) *bench {
	return &bench{eng: eng, o: o, work: WorkOf(eng.Model()), random: rand.New(rand.NewPCG(1, 2))}
}

// measure measures or skips a case. Its sequences stay open for the next case.
func (b *bench) measure(ctx context.Context, c Case) (Result, error) {
	res := Result{Case: c}
	if res.Skipped = b.skipReason(c); res.Skipped != "" {
		return res, nil
	}
	if err := b.timeCase(ctx, &res); err != nil {
		b.closeGroup()
		return res, err
	}
	if c.Kind == Prefill {
		b.prompts = append(b.prompts, res)
	}
	res.setWork(b.work, b.o.KV)
	res.judge(b.o.Limits)
	return res, nil
}

// timeCase runs the case of a result, and sets its times and energy.
func (b *bench) timeCase(ctx context.Context, res *Result) error {
	g, err := b.open(ctx, res.Case)
	if err != nil {
		return err
	}
	if res.Passes, err = b.passes(ctx, g); err != nil {
		return err
	}
	each, energy, err := b.repeat(ctx, g, res.Passes)
	if err != nil {
		return err
	}
	res.setRepeats(each)
	res.setEnergy(energy, float64(res.tokens()*(res.Passes+res.untimed())))
	return nil
}

// maxPreparation is how long the preparation of a case may take, in budgets.
const maxPreparation = 10

// skipReason returns why a case cannot be measured, or "".
func (b *bench) skipReason(c Case) string {
	limit := b.eng.Model().Config.Context
	if need := b.o.need(c); need > limit {
		return fmt.Sprintf("needs %d positions; the context has %d", need, limit)
	}
	if most := b.o.Sequences; most > 0 && c.Sequences > most {
		return fmt.Sprintf("the engine steps %d sequences together", most)
	}
	if r := b.o.Cache; r.Pages > 0 {
		each := (b.o.capacity(c, limit) + r.PageTokens - 1) / r.PageTokens
		if need := c.Sequences * each; need > r.Pages {
			return fmt.Sprintf("needs room for %d positions; the KV cache has %d", need*r.PageTokens, r.Pages*r.PageTokens)
		}
	}
	each := max(c.fill(), c.Prompt)
	if rate := b.promptRate(each); rate > 0 {
		seconds := float64(each*(c.Sequences-b.reusable(c))) / rate
		if seconds > maxPreparation*b.o.Budget.Seconds() {
			return fmt.Sprintf("its prompts would take about %.0f s", seconds)
		}
	}
	return ""
}

// promptRate returns the measured tokens/s of the shortest prompt of at least n tokens, or else
// of the longest one; 0: none was measured.
func (b *bench) promptRate(n int) (rate float64) {
	for _, r := range b.prompts {
		if rate = r.Rate; r.Prompt >= n {
			break
		}
	}
	return rate
}

// reusable returns how many of the open sequences the case continues with.
func (b *bench) reusable(c Case) int {
	g := b.group
	if g == nil || c.Kind != Batch || g.measured.Kind != Batch || g.measured.Depth != c.Depth || len(g.sequences) > c.Sequences {
		return 0
	}
	return len(g.sequences)
}

// passes returns how many forward passes one repeat has.
func (b *bench) passes(ctx context.Context, g *group) (int, error) {
	if g.measured.Kind == Prefill {
		return 1, nil
	}
	room := g.sequences[0].Cap() - g.measured.fill() - g.measured.untimed()
	if b.o.Steps > 0 {
		return min(b.o.Steps, room), nil
	}
	var each time.Duration
	for range 3 { // the first ones load kernels and capture graphs
		took, err := b.once(ctx, g, 1)
		if err != nil {
			return 0, err
		}
		each = max(time.Duration(took.Seconds*float64(time.Second)), 1)
	}
	perRepeat := b.o.Budget / time.Duration(b.o.Repeats+1) // one is the warm-up
	return int(min(max(1, perRepeat/each), time.Duration(room))), nil
}

// repeat runs the passes several times from the same state, after a warm-up. It returns
// the timed repeats, and the energy of timed and untimed ones.
func (b *bench) repeat(ctx context.Context, g *group, passes int) (each []Repeat, e energyUse, err error) {
	if _, err := b.once(ctx, g, passes); err != nil {
		return nil, energyUse{}, err
	}
	s := b.startEnergy()
	for range b.o.Repeats {
		took, err := b.once(ctx, g, passes)
		if err != nil {
			return nil, energyUse{}, err
		}
		each = append(each, took)
		if b.o.now().Sub(s.begin) >= b.o.Budget {
			break
		}
	}
	runs := len(each)
	for ; s.needsMore(b.o.now()); runs++ {
		if _, err := b.once(ctx, g, passes); err != nil {
			return nil, energyUse{}, err
		}
	}
	return each, s.stop(runs), nil
}

// untimed returns the passes before the timed ones of a repeat. Decoding has two, after which
// the device runs ahead of the host.
func (c Case) untimed() int {
	if c.Kind == Prefill {
		return 0
	}
	return 2
}

// once runs one repeat: it truncates the cache to its filled positions, runs the untimed
// passes, and then runs and times the given number of passes.
func (b *bench) once(ctx context.Context, g *group, passes int) (r Repeat, err error) {
	if err := g.rewind(); err != nil {
		return r, err
	}
	if err := b.run(ctx, g, g.measured.untimed()); err != nil {
		return r, err
	}
	before := b.counts()
	start := b.o.now()
	if err := b.run(ctx, g, passes); err != nil {
		return r, err
	}
	r.Seconds = max(b.o.now().Sub(start), 1).Seconds()
	// Read the clocks at once: an idle device lowers them.
	if b.o.Condition != nil {
		r.Condition = b.o.Condition()
	}
	if before != nil {
		counted := b.counts().since(*before)
		r.Counts = &counted
	}
	return r, nil
}

// group is the sequences of a case.
type group struct {
	measured  Case
	sequences []model.Sequence
	first     [][]int     // first input of each sequence after rewind: a token, or the prompt
	rows      []model.Row // of the next step
}

// open returns the sequences of a case, filled with random tokens of their own. It continues
// with the open ones or closes them.
func (b *bench) open(ctx context.Context, c Case) (*group, error) {
	filled := b.reusable(c)
	if filled == 0 {
		b.closeGroup()
		b.group = &group{}
	}
	g := b.group
	g.measured = c
	capacity := b.o.capacity(c, b.eng.Model().Config.Context)
	for len(g.sequences) < c.Sequences {
		s, err := b.eng.NewSequence(capacity)
		if err != nil {
			return nil, err
		}
		g.sequences = append(g.sequences, s)
		g.first = append(g.first, b.tokens(max(1, c.Prompt)))
	}
	return g, b.fill(ctx, g.sequences[filled:], c.fill())
}

// fill appends n random tokens to each sequence, in steps of as many prompt tokens as the engine
// takes.
func (b *bench) fill(ctx context.Context, list []model.Sequence, n int) error {
	most := b.eng.Limits().PromptTokens
	var rows []model.Row
	room := most // for prompt tokens in the next step
	step := func() error {
		pass, err := b.eng.Step(ctx, rows)
		if err != nil {
			return err
		}
		rows, room = nil, most
		_, err = pass.Wait()
		return err
	}
	for _, s := range list {
		for left := n; left > 0; {
			row := model.Row{Sequence: s, Tokens: b.tokens(min(left, room)), Prompt: true}
			rows = append(rows, row)
			left -= len(row.Tokens)
			if room -= len(row.Tokens); room > 0 {
				continue
			}
			if err := step(); err != nil {
				return err
			}
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return step()
}

// tokens returns n random tokens.
func (b *bench) tokens(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = b.random.IntN(b.eng.Model().Config.Vocab)
	}
	return list
}

// closeGroup closes the open sequences.
func (b *bench) closeGroup() {
	if b.group == nil {
		return
	}
	for _, s := range b.group.sequences {
		s.Close()
	}
	b.group = nil
}

// rewind truncates each sequence to its filled positions.
func (g *group) rewind() error {
	g.rows = nil
	for i, s := range g.sequences {
		if err := s.Truncate(g.measured.fill()); err != nil {
			return err
		}
		g.rows = append(g.rows, model.Row{Sequence: s, Tokens: g.first[i], Prompt: g.measured.Kind == Prefill, Want: model.WantToken})
	}
	return nil
}

// run runs n steps of all sequences. Each step continues with the tokens that the one before it
// chose, and is queued before that one is waited for.
func (b *bench) run(ctx context.Context, g *group, n int) error {
	if g.measured.Kind == Prefill {
		for range n {
			if _, err := model.Forward(ctx, b.eng, g.rows[0]); err != nil {
				return err
			}
		}
		return nil
	}
	var last model.Pass
	for i := range n + 1 {
		var next model.Pass
		if i < n {
			var err error
			if next, err = b.eng.Step(ctx, g.rows); err != nil {
				return err
			}
			for i := range g.rows {
				g.rows[i].Tokens = nil
			}
		}
		if last != nil {
			if _, err := last.Wait(); err != nil {
				return err
			}
		}
		last = next
	}
	return nil
}
