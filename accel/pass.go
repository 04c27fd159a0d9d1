package accel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const (
	maxSteps    = 2            // steps that can be queued and not waited for
	maxInFlight = 2 * maxSteps // such passes: held choices can follow each step
)

// pass is a queued step or call of Engine.Choose. It implements model.Pass. The next pass of the
// same bank reuses its slices.
type pass struct {
	engine  *Engine
	ctx     context.Context
	choices bool // of Engine.Choose
	rows    []row
	forks   []fork
	event   driver.Event // its end
	launch  int          // the last decode pass when it was queued

	values  []float32 // logits and states of the rows
	results []model.Result
	ended   bool
	err     error
}

// fork is a sequence that was forked from a row's while the step was in flight.
type fork struct {
	sequence *sequence
	before   int // positions before the step
}

// newPass returns an empty pass. It reuses the slices of the last pass of the same bank, which has
// ended.
func (e *Engine) newPass(ctx context.Context) *pass {
	old := e.recent[e.bank]
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
		if err := r.sequence.reserve(r.before + r.n); err != nil {
			p.release()
			return err
		}
	}
	return nil
}

// release gives up the pages that the step added.
func (p *pass) release() {
	for i := range p.rows {
		r := &p.rows[i]
		r.sequence.shrink(r.pages * attention.PageTokens)
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
		case r.want == model.WantLogits, r.computesLogits() && !r.device && r.state == noState:
			logits = vocab
		}
		return logits, hidden
	}
	total := 0
	for i := range p.rows {
		logits, hidden := need(&p.rows[i])
		total += logits + hidden
	}
	p.values = slices.Grow(p.values, total)[:total]
	rest := p.values
	for i := range p.rows {
		r := &p.rows[i]
		logits, hidden := need(r)
		r.logits, r.hidden, rest = rest[:logits:logits], rest[logits:][:hidden:hidden], rest[logits+hidden:]
		if logits > 0 {
			r.last = r.logits[logits-vocab:]
		}
	}
}

// commit appends the rows to their sequences.
func (p *pass) commit() {
	e := p.engine
	for i := range p.rows {
		r := &p.rows[i]
		s := r.sequence
		s.length += r.n
		s.chosen, s.holding = choice{token: noToken}, nil
		if c := &r.chosen; c.pass != nil && c.pass.ended { // another row waited for it
			c.pass, c.token = nil, c.pass.rows[c.row].token
		}
		switch {
		case !r.computesLogits():
		case r.hold:
			s.holding, s.kept = p, r.keeps()
		default:
			s.chosen = choice{pass: p, row: i, onDevice: r.device && r.single()}
		}
	}
	if !p.choices && e.stepsInFlight() > 0 {
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
		e.inputs.read = max(e.inputs.read, q.launch)
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
		if !p.choices {
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

// settle waits for the device and reads what it has written for the host: for passes in flight,
// and for a pass that is being queued.
func (e *Engine) settle(p *pass) error {
	if err := e.stream.Synchronize(); err != nil {
		return err
	}
	for _, q := range e.inFlight {
		q.readTokens()
	}
	p.readTokens()
	e.reads.take(e.staging)
	e.inputs.read = e.inputs.launches
	return nil
}

// readTokens reads the tokens that the device has chosen for the rows.
func (p *pass) readTokens() {
	for i := range p.rows {
		if r := &p.rows[i]; r.tokenAt != noOffset {
			r.choice = p.engine.inputs.choice(r)
			r.token, r.tokenAt = r.choice.Token, noOffset
		}
	}
}

// end makes the results of a pass that the device has computed.
func (p *pass) end() {
	p.ended = true
	for i := range p.rows {
		r := &p.rows[i]
		s := r.sequence
		out := model.Result{Hidden: r.hidden}
		if r.want == model.WantLogits || r.want == model.WantAll {
			out.Logits = r.logits
		}
		switch out.Token = noToken; {
		case r.device:
			out.Choice = r.choice
			s.count(out.Token)
		case !r.computesLogits():
		case !r.hold:
			out.Choice = s.choose(r.last, r.before+r.n, r.mask)
		case s.holding == p && r.state == noState:
			s.held = append(s.held[:0], r.last...)
		}
		if s.chosen.pass == p {
			s.chosen.pass, s.chosen.token = nil, out.Token
		}
		p.results = append(p.results, out)
	}
	for _, q := range p.engine.inFlight { // if q fails, its sequences continue with the tokens of p
		for i := range q.rows {
			if c := &q.rows[i].chosen; c.pass == p {
				c.pass, c.token = nil, p.rows[c.row].token
			}
		}
	}
}

// forked notes that f has been forked from s while the pass is in flight.
func (p *pass) forked(s, f *sequence) {
	add := func(of *sequence, before int) {
		if of == s && f.length > before {
			p.forks = append(p.forks, fork{f, before})
		}
	}
	for i := range p.forks {
		add(p.forks[i].sequence, p.forks[i].before)
	}
	for i := range p.rows {
		add(p.rows[i].sequence, p.rows[i].before)
	}
}

// failAll ends the passes in flight with an error. It waits for the stream, because queued work
// may still use memory that the next pass writes.
func (e *Engine) failAll(err error) {
	if waited := e.stream.Synchronize(); errors.Is(errors.Join(err, waited), driver.ErrInterrupted) {
		e.interrupted = true
	}
	e.forget()
	list := e.inFlight
	e.inFlight = nil
	for i, p := range slices.Backward(list) {
		p.restore()
		p.ended, p.err = true, p.failure(err)
		if i > 0 && p.ctx.Err() == nil {
			p.err = fmt.Errorf("accel: an earlier step failed: %w", err)
		}
	}
	e.interruptIf()
}

// forget drops what the host knows about the device's inputs, and the reads that are queued. The
// stream must be idle.
func (e *Engine) forget() {
	e.inputs.forget()
	e.inputs.read = e.inputs.launches
	e.reads.reset()
}

// restore gives each sequence the length and the pages that it had before the pass, unless it
// was truncated further since.
func (p *pass) restore() {
	for i := range p.rows {
		r := &p.rows[i]
		s := r.sequence
		if s.holding == p {
			s.holding = nil
		}
		if !s.closed && s.length >= r.before {
			s.length, s.chosen = r.before, r.chosen
			s.shrink(r.pages * attention.PageTokens)
		}
	}
	for _, f := range p.forks {
		if s := f.sequence; !s.closed && s.length > f.before {
			s.length, s.chosen = f.before, choice{token: noToken}
			s.shrink(f.before)
		}
	}
}

// failure returns the error of a pass. If the device is lost, it returns that error instead. If
// the context of the pass ended, and a kernel stopped for it, that is the error.
func (p *pass) failure(err error) error {
	if lost := p.engine.dev.Err(); lost != nil {
		err = lost
	} else if ended := p.ctx.Err(); ended != nil && errors.Is(err, driver.ErrInterrupted) {
		return ended
	}
	return fmt.Errorf("accel: %w", err)
}

// abort drops a pass that is being queued. Passes in flight fail only if their work may be lost.
func (e *Engine) abort(p *pass, err error) error {
	waited := e.stream.Synchronize()
	p.release()
	switch {
	case e.dev.Err() != nil || errors.Is(errors.Join(err, waited), driver.ErrInterrupted):
		e.failAll(errors.Join(err, waited))
	case waited == nil:
		for _, q := range e.inFlight {
			q.readTokens()
		}
		if e.reads.owner != p {
			e.reads.take(e.staging)
		}
		e.forget()
	default:
		e.inputs.forget()
		if e.reads.owner == p {
			e.reads.reset()
		}
	}
	return p.failure(err)
}

// hostReads are copies from the device to host memory through the staging buffer. They belong to
// one pass at a time.
type hostReads struct {
	owner *pass
	list  []hostRead
	used  int // bytes of the staging buffer
}

type hostRead struct {
	to []float32
	at int // offset in the staging buffer
}

// read queues reading floats. They are there when the pass has ended.
func (e *Engine) read(p *pass, to []float32, from ptx.Address) error {
	if e.reads.owner != p && len(e.reads.list) > 0 {
		if err := e.settle(p); err != nil {
			return err
		}
	}
	e.reads.owner = p
	for len(to) > 0 {
		n := min(len(to), (len(e.staging.Bytes())-e.reads.used)/4)
		if n == 0 {
			if err := e.settle(p); err != nil {
				return err
			}
			continue
		}
		if err := e.stream.ReadAsync(e.staging, e.reads.used, driver.Address(from), 4*n); err != nil {
			return err
		}
		e.reads.list = append(e.reads.list, hostRead{to[:n], e.reads.used})
		e.reads.used += 4 * n
		to, from = to[n:], from+ptx.Address(4*n)
	}
	return nil
}

// take decodes what has been read. The device must have copied it.
func (r *hostReads) take(staging driver.Pinned) {
	for _, x := range r.list {
		decodeFloats(x.to, staging.Bytes()[x.at:])
	}
	r.reset()
}

func (r *hostReads) reset() { r.list, r.used = r.list[:0], 0 }

func appendFloats(to []byte, list []float32) []byte {
	for _, x := range list {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(x))
	}
	return to
}

func decodeFloats(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}
