package modelbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// bench is a run over all cases.
type bench struct {
	eng    model.Engine
	o      *Options
	work   Work
	random *rand.Rand
	rate   float64 // tokens of a prompt a second, so far as is known; 0: it is not
}

// measure measures a case, unless it cannot be.
func (b *bench) measure(ctx context.Context, c Case) (Result, error) {
	res := Result{Case: c, Bytes: b.work.Bytes(c.tokens()), FLOP: b.work.FLOP(c.tokens(), c.heads())}
	if res.Skipped = b.obstacle(c); res.Skipped != "" {
		return res, nil
	}
	if err := b.warm(ctx, c); err != nil {
		return res, err
	}
	g, err := b.open(ctx, c)
	defer g.close()
	if err != nil {
		return res, err
	}
	if res.Passes, err = b.passes(ctx, g); err != nil {
		return res, err
	}
	each, spent, err := b.repeat(ctx, g, res.Passes)
	if err != nil {
		return res, err
	}
	res.setRepeats(each)
	res.energy(spent, float64(c.tokens()*(res.Passes+c.untimed())))
	if c.Kind == Prefill {
		b.rate = res.Rate
	}
	res.judge(b.o.Limits)
	return res, nil
}

// warm makes the engine ready for a case's steps: not all sequences always come together.
func (b *bench) warm(ctx context.Context, c Case) error {
	if b.o.Warm == nil || c.Kind == Prefill {
		return nil
	}
	rows := []int{c.Sequences}
	for n := 1; n < c.Sequences; n *= 2 {
		rows = append(rows, n)
	}
	return b.o.Warm(ctx, b.o.capacity(c, b.eng.Model().Config.Context), rows...)
}

// patience is how many budgets may go by before anything is timed.
const patience = 10

// obstacle is why a case cannot be measured here.
func (b *bench) obstacle(c Case) string {
	limit := b.eng.Model().Config.Context
	if need := b.o.need(c); need > limit {
		return fmt.Sprintf("needs %d positions; the context has %d", need, limit)
	}
	if most := b.o.Sequences; most > 0 && c.Sequences > most {
		return fmt.Sprintf("the engine steps %d sequences together", most)
	}
	if r := b.o.Room; r.Pages > 0 {
		each := (b.o.capacity(c, limit) + r.PagePositions - 1) / r.PagePositions
		if need := c.Sequences * each; need > r.Pages {
			return fmt.Sprintf("needs room for %d positions; the KV cache has %d", need*r.PagePositions, r.Pages*r.PagePositions)
		}
	}
	if b.rate > 0 {
		before := float64(max(c.fill(), c.Prompt)*c.Sequences) / b.rate
		if before > patience*b.o.Budget.Seconds() {
			return fmt.Sprintf("the first pass would take about %.0f s", before)
		}
	}
	return ""
}

// passes chooses how many passes are timed together.
func (b *bench) passes(ctx context.Context, g *group) (int, error) {
	if g.Kind == Prefill {
		return 1, nil
	}
	room := g.sessions[0].Cap() - g.fill() - g.untimed()
	if b.o.Steps > 0 {
		return min(b.o.Steps, room), nil
	}
	var each time.Duration
	for range 3 { // the first make kernels, and graphs for as many rows as have come together
		took, err := b.once(ctx, g, 1)
		if err != nil {
			return 0, err
		}
		each = max(time.Duration(took.Seconds*float64(time.Second)), 1)
	}
	share := b.o.Budget / time.Duration(b.o.Repeats+1)
	return int(min(max(1, share/each), time.Duration(room))), nil
}

// repeat runs passes several times, always from the same state, after once for warming
// up. It gives the timed ones, and the energy of these and more.
func (b *bench) repeat(ctx context.Context, g *group, passes int) (each []Repeat, e spent, err error) {
	if _, err := b.once(ctx, g, passes); err != nil {
		return nil, spent{}, err
	}
	s := b.spend()
	for range b.o.Repeats {
		took, err := b.once(ctx, g, passes)
		if err != nil {
			return nil, spent{}, err
		}
		each = append(each, took)
		if b.o.now().Sub(s.begin) >= b.o.Budget {
			break
		}
	}
	runs := len(each)
	for ; s.wants(b.o.now()); runs++ {
		if _, err := b.once(ctx, g, passes); err != nil {
			return nil, spent{}, err
		}
	}
	return each, s.end(runs), nil
}

// untimed is how many passes come before those that are timed, two steps of decoding: the
// first may be computed as a prompt, or wait for a step that an engine has begun in vain
// behind the last of the passes before; in the second all sequences come together.
func (c Case) untimed() int {
	if c.Kind == Prefill {
		return 0
	}
	return 2
}

// once makes passes from where the cache is filled, and times those behind the untimed.
func (b *bench) once(ctx context.Context, g *group, passes int) (r Repeat, err error) {
	if err := g.rewind(); err != nil {
		return r, err
	}
	for range g.untimed() { // each for all: who is ahead of others does not wait at the end
		if err := g.run(ctx, 1); err != nil {
			return r, err
		}
	}
	before := b.counts()
	start := b.o.now()
	if err := g.run(ctx, passes); err != nil {
		return r, err
	}
	r.Seconds = max(b.o.now().Sub(start), 1).Seconds()
	// At once: a device that has nothing to do changes its clocks.
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
	Case
	sessions []model.Session
	first    [][]int // what each is fed first after it was filled: a token, or the prompt
	next     [][]int // what each is fed next
}

// open makes the sequences and fills them with random tokens.
func (b *bench) open(ctx context.Context, c Case) (*group, error) {
	g := &group{Case: c}
	capacity := b.o.capacity(c, b.eng.Model().Config.Context)
	for range c.Sequences {
		s, err := b.eng.NewSession(capacity)
		if err != nil {
			return g, err
		}
		g.sessions = append(g.sessions, s)
		g.first = append(g.first, b.tokens(max(1, c.Prompt)))
		if n := c.fill(); n > 0 {
			if _, err := s.Forward(ctx, b.tokens(n), model.WantNothing); err != nil {
				return g, err
			}
		}
	}
	return g, nil
}

// tokens are random ones.
func (b *bench) tokens(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = b.random.IntN(b.eng.Model().Config.Vocab)
	}
	return list
}

func (g *group) close() {
	for _, s := range g.sessions {
		s.Close()
	}
}

// rewind forgets what came after the filling.
func (g *group) rewind() error {
	g.next = slices.Clone(g.first)
	for _, s := range g.sessions {
		if err := s.Truncate(g.fill()); err != nil {
			return err
		}
	}
	return nil
}

// run makes n passes of every sequence at the same time, each fed with the greedy
// choice of the one before. The first error ends all.
func (g *group) run(ctx context.Context, n int) error {
	if len(g.sessions) == 1 {
		return g.steps(ctx, 0, n)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range g.sessions {
		wg.Go(func() {
			if err := g.steps(ctx, i, n); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// steps makes n passes of sequence i.
func (g *group) steps(ctx context.Context, i, n int) error {
	for range n {
		out, err := g.sessions[i].Forward(ctx, g.next[i], model.WantGreedy)
		if err != nil {
			return err
		}
		g.next[i] = []int{out.Greedy}
	}
	return nil
}
