package accel

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
)

// A sequence of a model with Gated DeltaNets has one recurrent state beside its pages, which is valid at one position. The device
// has places for the states of all batch slots, and spare ones. They hold the current states of sequences, and checkpoints.
// A checkpoint is a copy of a state. The engine makes one at each multiple of Options.Checkpoint, where prompt chunks end, and
// one at the end of a sequence that is forked at its end. A new state takes a free place, or the place of the state that was
// used least recently.
//
// A fork has no current state. A sequence loses its own if it is truncated, if a pass fails, or if another state takes the place. Before its
// next row, the engine copies the last checkpoint and computes the tokens from there again, as a prompt. This gives the same bits, and it writes
// the keys and values that are there already.

// recurrentState is a state after a number of positions.
type recurrentState struct {
	place      int // on the device; noPlace: it was lost
	position   int
	checkpoint bool // it is not changed, and sequences that were forked share it
	sequences  int  // that have the checkpoint
	used       int  // statePool.step of its last use
}

const noPlace = -1

// statePool knows which state is in each place. A place may be given to another state while queued passes use it,
// because they run first.
type statePool struct {
	places []*recurrentState // nil: free
	step   int               // counts steps and swaps, for the least recently used
}

// take gives a new state a place. If none is free, the state that was used least recently loses its place. A checkpoint displaces only
// checkpoints. A current state also displaces current states that this step does not use. except is never displaced. take returns nil if
// no state can be displaced, which happens to checkpoints alone: a step has fewer current states than there are places.
func (p *statePool) take(position int, checkpoint bool, except *recurrentState) *recurrentState {
	at := noPlace
	for i, s := range p.places {
		if s == nil {
			at = i
			break
		}
		busy := !s.checkpoint && (checkpoint || s.used == p.step)
		if !busy && s != except && (at == noPlace || s.used < p.places[at].used) {
			at = i
		}
	}
	if at == noPlace {
		return nil
	}
	p.drop(p.places[at])
	s := &recurrentState{place: at, position: position, checkpoint: checkpoint, used: p.step}
	p.places[at] = s
	return s
}

// drop frees the place of a state; nil is none.
func (p *statePool) drop(s *recurrentState) {
	if s != nil && s.place != noPlace {
		p.places[s.place] = nil
		s.place = noPlace
	}
}

// recurrent reports whether sequences have states.
func (e *Engine) recurrent() bool { return len(e.recurrentStates.places) > 0 }

// recurrentStateReady reports whether the sequence's current state is on the device and that of its length, or the model has no
// recurrent states.
func (s *sequence) recurrentStateReady() bool {
	return !s.engine.recurrent() || s.current != nil && s.current.place != noPlace && s.current.position == s.length
}

// dropRecurrentStates drops each state that a failed pass may have written.
func (p *pass) dropRecurrentStates() {
	for i := range p.rows {
		p.engine.recurrentStates.drop(p.rows[i].sequence.current)
	}
	for _, c := range p.checkpoints {
		p.engine.recurrentStates.drop(c)
	}
}

// truncateHistory keeps the first n tokens and the checkpoints among them.
func (s *sequence) truncateHistory(n int) {
	if s.engine.recurrent() {
		s.past = slices.Clip(s.past[:min(n, len(s.past))]) // forks share the array, so appending must copy it
		s.setCheckpoints(s.checkpointsUntil(n))
	}
}

// checkpointsUntil returns the checkpoints of the first n positions that are not lost.
func (s *sequence) checkpointsUntil(n int) (list []*recurrentState) {
	for _, c := range s.checkpoints {
		if c.place != noPlace && c.position <= n {
			list = append(list, c)
		}
	}
	return list
}

// ResumesAt implements model.Resumer.
func (s *sequence) ResumesAt(n int) int {
	if !s.engine.recurrent() || n == s.length && s.recurrentStateReady() {
		return n
	}
	if next := n - n%s.engine.options.Checkpoint; next > s.length { // the sequence will have a checkpoint there
		return next
	}
	at := 0
	for _, c := range s.checkpointsUntil(n) {
		at = max(at, c.position)
	}
	return at
}

// setCheckpoints replaces the checkpoints. One that no sequence has frees its place.
func (s *sequence) setCheckpoints(list []*recurrentState) {
	for _, c := range list {
		c.sequences++
	}
	for _, c := range s.checkpoints {
		if c.sequences--; c.sequences == 0 {
			s.engine.recurrentStates.drop(c)
		}
	}
	s.checkpoints = list
}

// lastCheckpoint returns the last checkpoint that is not lost, and notes that this step uses it; nil: there is none.
func (s *sequence) lastCheckpoint() *recurrentState {
	s.setCheckpoints(s.checkpointsUntil(s.length))
	if len(s.checkpoints) == 0 {
		return nil
	}
	last := s.checkpoints[len(s.checkpoints)-1]
	last.used = s.engine.recurrentStates.step
	return last
}

// checkpointAtEnd copies the current state if it is that after n positions, so that a fork of n positions begins with it.
func (s *sequence) checkpointAtEnd(n int) error {
	e := s.engine
	if n == 0 || n < s.length || !e.recurrent() || !s.recurrentStateReady() {
		return nil
	}
	if last := s.lastCheckpoint(); last != nil && last.position == n {
		return nil
	}
	c := e.recurrentStates.take(n, true, nil)
	if c == nil {
		return nil
	}
	if err := e.copyRecurrentState(c, s.current); err != nil {
		e.recurrentStates.drop(c)
		return e.deviceFailed(err)
	}
	s.setCheckpoints(append(s.checkpointsUntil(n), c))
	for _, p := range e.inFlight {
		if slices.ContainsFunc(p.rows, func(r row) bool { return r.sequence == s }) {
			p.checkpoints = append(p.checkpoints, c)
		}
	}
	return nil
}

// appendTokens appends the tokens of a row to those of its sequence. Rows of Choose have none.
func (r *row) appendTokens() {
	s := r.sequence
	if !s.engine.recurrent() || r.n == 0 {
		return
	}
	if len(r.tokens) == 0 {
		t := int32(sampling.NoToken)
		if r.startNext.pass == nil {
			t = int32(r.startNext.token)
		}
		s.past = append(s.past, t)
	}
	for _, t := range r.tokens {
		s.past = append(s.past, int32(t))
	}
}

// learnToken notes the token of a row that only the device knew, when its pass has ended.
func (r *row) learnToken() {
	s := r.sequence
	if s.engine.recurrent() && r.n > 0 && len(r.tokens) == 0 && r.start < len(s.past) && s.past[r.start] == sampling.NoToken {
		s.past[r.start] = int32(r.startNext.token)
	}
}

// awaitTokens waits for passes in flight if one of the first n tokens of the sequence is not known. It returns an error if one
// of them was never chosen.
func (s *sequence) awaitTokens(n int) error {
	e := s.engine
	for len(e.inFlight) > 0 && slices.Contains(s.past[:min(n, len(s.past))], sampling.NoToken) {
		if err := e.finish(e.inFlight[0]); err != nil {
			return err
		}
	}
	if i := slices.Index(s.past[:min(n, len(s.past))], sampling.NoToken); i >= 0 {
		return fmt.Errorf("accel: the token at position %d is unknown: no logit was larger than -Inf", i)
	}
	return nil
}

// checkRecurrentStates returns an error if the device has too few places for the states of a step. One place is reserved for a
// checkpoint that is being copied.
func (e *Engine) checkRecurrentStates(rows int) error {
	if most := len(e.recurrentStates.places) - 1; e.recurrent() && rows > most {
		return fmt.Errorf("accel: step of %d sequences with recurrent states; it can have up to %d", rows, most)
	}
	return nil
}

// restoreRecurrentStates computes the current states that rows of a pass have lost.
func (e *Engine) restoreRecurrentStates(p *pass) error {
	if !e.recurrent() || p.isChoose {
		return nil
	}
	e.recurrentStates.step++
	for i := range p.rows {
		if s := p.rows[i].sequence; s.recurrentStateReady() {
			s.current.used = e.recurrentStates.step
		} else {
			s.lastCheckpoint() // so that other states take its place last
		}
	}
	for i := range p.rows {
		if s := p.rows[i].sequence; !s.recurrentStateReady() {
			if err := e.restoreRecurrentState(p, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreRecurrentState copies the last checkpoint of a sequence, and computes the tokens behind it again.
func (e *Engine) restoreRecurrentState(p *pass, s *sequence) error {
	e.recurrentStates.drop(s.current)
	if last := s.lastCheckpoint(); last != nil {
		s.current = e.recurrentStates.take(last.position, false, last)
		if err := e.copyRecurrentState(s.current, last); err != nil {
			return err
		}
	} else {
		s.current = e.recurrentStates.take(0, false, nil) // kernels know that it is 0 there
	}
	r := row{sequence: s, prompt: true, start: s.current.position, samplingIndex: noSamplingState, choice: sampling.Choice{Token: sampling.NoToken}, tokenAt: noOffset}
	for _, t := range s.past[r.start:s.length] {
		r.tokens = append(r.tokens, int(t))
	}
	if r.n = len(r.tokens); r.n == 0 {
		return nil
	}
	again := &pass{engine: e, ctx: p.ctx, rows: []row{r}, checkpoints: p.checkpoints}
	err := e.queueChunks(again, s.longRope)
	p.checkpoints = again.checkpoints
	return err
}

// copyRecurrentState queues a copy of a state.
func (e *Engine) copyRecurrentState(to, from *recurrentState) error {
	l := e.layout
	return e.stream.Copy(driver.Address(l.StateAt(to.place)), driver.Address(l.StateAt(from.place)), int64(l.StateBytes()))
}

// advanceRecurrentStates notes that a forward pass is queued, and queues the checkpoints that its sequences have reached.
func (e *Engine) advanceRecurrentStates(p *pass, batch []batchToken) error {
	if !e.recurrent() {
		return nil
	}
	for i := range batch {
		s, position := batch[i].sequence, batch[i].position+1
		s.current.position = position
		if position%e.options.Checkpoint != 0 {
			continue
		}
		c := e.recurrentStates.take(position, true, nil)
		if c == nil {
			continue
		}
		s.setCheckpoints(append(s.checkpointsUntil(position-1), c))
		p.checkpoints = append(p.checkpoints, c)
		if err := e.copyRecurrentState(c, s.current); err != nil {
			return err
		}
	}
	return nil
}

// startsChunk reports whether a prompt chunk must begin at a position.
func (e *Engine) startsChunk(position int) bool {
	return e.recurrent() && position%e.options.Checkpoint == 0
}

// recurrentPlace returns the place of the current state of a sequence, as kernels take it: deltanet.NoState if the model has none.
func (e *Engine) recurrentPlace(s *sequence) uint32 {
	if !e.recurrent() {
		return deltanet.NoState
	}
	return uint32(s.current.place)
}

// saveRecurrentState returns the current state; nil if there is none.
func (s *sequence) saveRecurrentState() ([]byte, error) {
	if !s.engine.recurrent() || !s.recurrentStateReady() {
		return nil, nil
	}
	l := s.engine.layout
	host := make([]byte, l.StateBytes())
	return host, s.engine.stream.Read(host, driver.Address(l.StateAt(s.current.place)))
}

// loadRecurrentState makes what saveRecurrentState returned the current state.
func (s *sequence) loadRecurrentState(host []byte) error {
	if host == nil {
		return nil
	}
	e := s.engine
	e.recurrentStates.drop(s.current)
	e.recurrentStates.step++
	s.current = e.recurrentStates.take(s.length, false, nil)
	return e.stream.Write(driver.Address(e.layout.StateAt(s.current.place)), host)
}
