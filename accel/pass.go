package accel

import (
	"context"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

const (
	maxSteps    = 2            // steps that can be in flight
	maxInFlight = 2 * maxSteps // passes that can be in flight: held choices can follow each step
)

// pass is a call of Engine.Step or Engine.Choose. It implements model.Pass. The next pass of the same
// bank reuses its slices.
type pass struct {
	engine   *Engine
	ctx      context.Context
	isChoose bool // a call of Engine.Choose
	rows     []row
	forks    []fork

	checkpoints []*recurrentState // that it makes
	event       driver.Event      // recorded behind its launches
	lastStep    int               // stepInputs.lastStep when it was queued

	values  []float32 // memory of the logits and hidden states of rows
	results []model.Result
	ended   bool
	err     error
}

// fork is a sequence that was forked from that of a row while the pass was in flight.
type fork struct {
	sequence *sequence
	start    int // positions of the row's sequence before the pass
}

// newPass returns an empty pass. It reuses the slices of the last pass of the same bank, which has
// ended, and drops the results of that pass.
func (e *Engine) newPass(ctx context.Context) *pass {
	old := e.recent[e.bank]
	clear(old.rows) // those of a pass that was never queued
	clear(old.results)
	p := &pass{engine: e, ctx: ctx, rows: old.rows[:0], forks: old.forks[:0], event: old.event, values: old.values[:0], results: old.results[:0]}
	e.recent[e.bank] = p
	e.inputs.begin(e.bank)
	return p
}

// reserve allocates the pages that rows need. After an error each sequence has the pages that it
// had before.
func (p *pass) reserve() error {
	for i := range p.rows {
		r := &p.rows[i]
		if err := r.sequence.reserve(r.start + r.n); err != nil {
			p.releasePages()
			return err
		}
	}
	return nil
}

// releasePages gives up the pages that the step added.
func (p *pass) releasePages() {
	for i := range p.rows {
		r := &p.rows[i]
		r.sequence.shrink(r.startPages * attention.PageTokens)
	}
}

// allocate gives each row the memory of its results.
func (p *pass) allocate() {
	vocab, width := p.engine.model.Config.Vocab, p.engine.model.Config.Hidden
	need := func(r *row) (logits, hidden int) {
		switch {
		case r.want == model.WantHidden:
			hidden = r.n * width
		case r.want == model.WantAll:
			logits = r.n * vocab
		case r.n == 0: // a choice
		case r.want == model.WantLogits, r.computesLogits() && !r.onDevice && r.samplingIndex == noSamplingState:
			logits = vocab
		}
		return logits, hidden
	}
	total := 0
	for i := range p.rows {
		logits, hidden := need(&p.rows[i])
		total += logits + hidden
	}
	if total > cap(p.values) || total < cap(p.values)/4 { // the engine must not keep the memory of its largest pass
		p.values = make([]float32, total)
	}
	p.values = p.values[:total]
	rest := p.values
	for i := range p.rows {
		r := &p.rows[i]
		logits, hidden := need(r)
		r.logits, r.hidden, rest = rest[:logits:logits], rest[logits:][:hidden:hidden], rest[logits+hidden:]
		if logits > 0 {
			r.lastLogits = r.logits[logits-vocab:]
		}
	}
}

// commit appends the rows to their sequences.
func (p *pass) commit() {
	e := p.engine
	for i := range p.rows {
		r := &p.rows[i]
		s := r.sequence
		r.appendTokens()
		s.length += r.n
		s.next, s.heldBy = nextToken{token: sampling.NoToken}, nil
		if c := &r.startNext; c.pass != nil && c.pass.ended { // another row waited for it
			c.pass, c.token = nil, c.pass.rows[c.row].choice.Token
		}
		switch {
		case !r.computesLogits():
		case r.hold:
			s.heldBy, s.heldOnDevice = p, r.choosesFromSaved()
		default:
			s.next = nextToken{pass: p, row: i, inSlot: r.onDevice && r.decodes()}
		}
	}
	if !p.isChoose && e.stepsInFlight() > 0 {
		e.stats.AsyncSteps++
	}
	e.inFlight = append(e.inFlight, p)
	e.bank = (e.bank + 1) % maxInFlight
}

// Wait implements model.Pass. If an earlier step fails, all later ones in flight fail too.
func (p *pass) Wait() ([]model.Result, error) {
	if err := p.engine.finish(p); err != nil {
		return nil, err
	}
	return p.results, nil
}

// finish waits for a pass and those before it, and takes their results.
func (e *Engine) finish(p *pass) error {
	for !p.ended {
		q := e.inFlight[0]
		if err := q.event.Synchronize(); err != nil {
			e.failAll(err)
			break
		}
		e.inFlight = slices.Delete(e.inFlight, 0, 1)
		e.interruptIf(e.inFlight...)
		e.inputs.readStep = max(e.inputs.readStep, q.lastStep)
		q.readTokens()
		if e.reads.owner == q {
			e.reads.take(e.staging)
		}
		q.end()
	}
	return p.err
}

// stepsInFlight returns the number of steps in flight.
func (e *Engine) stepsInFlight() (n int) {
	for _, p := range e.inFlight {
		if !p.isChoose {
			n++
		}
	}
	return n
}

// drain waits for all passes. Their errors are those of Wait.
func (e *Engine) drain() {
	for len(e.inFlight) > 0 {
		_ = e.finish(e.inFlight[0])
	}
}

// readAll waits for the device and reads all tokens and values that it has written for the host: for
// passes in flight and for p, which is being queued.
func (e *Engine) readAll(p *pass) error {
	if err := e.stream.Synchronize(); err != nil {
		return err
	}
	for _, q := range e.inFlight {
		q.readTokens()
	}
	p.readTokens()
	e.reads.take(e.staging)
	e.inputs.readStep = e.inputs.lastStep
	return nil
}

// readTokens reads the tokens that the device has chosen for the rows.
func (p *pass) readTokens() {
	for i := range p.rows {
		if r := &p.rows[i]; r.tokenAt != noOffset {
			r.choice, r.tokenAt = p.engine.inputs.choice(r), noOffset
		}
	}
}

// end makes the results of a pass that has ended on the device. It chooses the tokens that the device
// did not.
func (p *pass) end() {
	p.ended = true
	for i := range p.rows {
		r := &p.rows[i]
		s := r.sequence
		r.learnToken()
		out := model.Result{Hidden: r.hidden}
		if r.want == model.WantLogits || r.want == model.WantAll {
			out.Logits = r.logits
		}
		switch out.Token = sampling.NoToken; {
		case r.onDevice:
			out.Choice = r.choice
			s.count(out.Token)
		case !r.computesLogits():
		case !r.hold:
			out.Choice = s.choose(r.lastLogits, r.start+r.n, r.mask)
		case s.heldBy == p && r.samplingIndex == noSamplingState:
			s.heldLogits = append(s.heldLogits[:0], r.lastLogits...)
		}
		r.choice = out.Choice // also one that the host made: a later pass may fail and restore it
		if s.next.pass == p {
			s.next.pass, s.next.token = nil, out.Token
		}
		p.results = append(p.results, out)
	}
	for _, q := range p.engine.inFlight { // if q fails, its sequences continue with the tokens of p
		for i := range q.rows {
			if c := &q.rows[i].startNext; c.pass == p {
				c.pass, c.token = nil, p.rows[c.row].choice.Token
			}
		}
	}
	p.release()
}

// release drops what the rows of a pass that has ended refer to, such as masks. Other passes may still read how a token
// was chosen.
func (p *pass) release() {
	for i, r := range p.rows {
		p.rows[i] = row{onDevice: r.onDevice, choice: r.choice, tokenAt: r.tokenAt}
	}
	clear(p.forks)
	p.checkpoints = nil
}

// forked notes that f was forked from s while the pass is in flight, if f has positions of the pass.
func (p *pass) forked(s, f *sequence) {
	add := func(of *sequence, start int) {
		if of == s && f.length > start {
			p.forks = append(p.forks, fork{f, start})
		}
	}
	for i := range p.forks {
		add(p.forks[i].sequence, p.forks[i].start)
	}
	for i := range p.rows {
		add(p.rows[i].sequence, p.rows[i].start)
	}
}
