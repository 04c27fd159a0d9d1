package accel

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
)

// samplingState is a place on the device for the parameters of a sequence, the counts of its tokens,
// and its logits while it holds a choice. A sequence keeps its state until another sequence needs it, also if it changes
// its batch slot or is swapped out. The device counts the tokens that it chooses.
type samplingState struct {
	sequence *sequence // nil: free
	stale    bool      // the device lacks the parameters or some counts
	masked   bool      // the parameters on the device have the flag sample.Masked
	lastCall int       // the last call of Step or Choose that used it
}

// holdsChoice reports whether the place has the logits of a held choice.
func (s *samplingState) holdsChoice() bool {
	return s.sequence != nil && s.sequence.heldBy != nil && s.sequence.heldOnDevice
}

// chooseOnDevice decides whether the device chooses the token of a row or, with hold, keeps its
// logits. If so, it gives the row a sampling state unless the sequence is greedy. If the device
// needs the counts of tokens that are not chosen yet, it waits for them.
func (r *row) chooseOnDevice() error {
	s := r.sequence
	if s.argmax && !r.hold {
		r.onDevice = true
		return nil
	}
	if len(s.params.Bias) > plan.MaxBiases {
		return nil
	}
	if r.samplingIndex = s.engine.inputs.acquireSamplingState(s, s.engine.calls); r.samplingIndex == noSamplingState || r.hold {
		return nil
	}
	r.onDevice = true
	return r.waitForCounts()
}

// waitForCounts waits for the tokens that a stale state must count.
func (r *row) waitForCounts() error {
	s := r.sequence
	if s.engine.inputs.samplingStates[r.samplingIndex].stale && s.params.Penalizes() {
		return s.waitForTokens()
	}
	return nil
}

// acquireSamplingState returns the state of a sequence, for a call of Step. A sequence without one gets the least
// recently used, or noSamplingState if rows of this call and held choices use all.
func (in *stepInputs) acquireSamplingState(s *sequence, call int) int {
	if s.samplingIndex == noSamplingState {
		at := noSamplingState
		for i := range in.samplingStates {
			if x := &in.samplingStates[i]; x.lastCall < call && !x.holdsChoice() && (at == noSamplingState || x.lastCall < in.samplingStates[at].lastCall) {
				at = i
			}
		}
		if at == noSamplingState {
			return noSamplingState
		}
		if last := in.samplingStates[at].sequence; last != nil {
			last.samplingIndex = noSamplingState
		}
		in.samplingStates[at], s.samplingIndex = samplingState{sequence: s, stale: true}, at
	}
	in.samplingStates[s.samplingIndex].lastCall = call
	return s.samplingIndex
}

// dropSamplingState gives up the sequence's sampling state.
func (s *sequence) dropSamplingState() {
	if s.samplingIndex != noSamplingState {
		s.engine.inputs.samplingStates[s.samplingIndex] = samplingState{}
		s.samplingIndex = noSamplingState
	}
}

// staleSamplingState notes that the host has counted a token that the device has not.
func (s *sequence) staleSamplingState() {
	if s.samplingIndex != noSamplingState && s.params.Penalizes() {
		s.engine.inputs.samplingStates[s.samplingIndex].stale = true
	}
}

// uploadSamplingStates sends the sampling states of the rows for which the device chooses in this pass:
// parameters and counts, masks, and replacement logits. It leaves out what the device already has.
func (e *Engine) uploadSamplingStates(p *pass) error {
	in, b := e.inputs, &e.layout.Buffers
	for i := range p.rows {
		r := &p.rows[i]
		if r.samplingIndex == noSamplingState || r.hold {
			continue
		}
		state, masked := &in.samplingStates[r.samplingIndex], r.mask != nil
		var err error
		switch {
		case state.stale:
			err = in.sendSamplingState(r.samplingIndex, r.sequence, masked)
		case state.masked != masked:
			err = in.sendParams(r.samplingIndex, r.sequence, masked)
		}
		if err != nil {
			return err
		}
		state.stale, state.masked = false, masked
		if masked {
			if err := in.send(driver.Address(b.SampleMasks)+driver.Address(4*len(r.mask)*r.samplingIndex), r.mask); err != nil {
				return err
			}
		}
		if r.replacement != nil {
			if err := e.stream.Write(driver.Address(b.SavedLogits)+driver.Address(4*len(r.replacement)*r.samplingIndex), appendFloats(nil, r.replacement)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendParams sends the parameters of a sequence.
func (in *stepInputs) sendParams(state int, s *sequence, masked bool) error {
	words := s.params.Words()
	if masked {
		words[0] |= sample.Masked
	}
	return in.send(driver.Address(in.layout.Buffers.SampleParams+ptx.Address(4*sample.ParamWords*state)), words[:])
}

// sendSamplingState sends the parameters, biases and counts of a sequence.
func (in *stepInputs) sendSamplingState(state int, s *sequence, masked bool) error {
	b := &in.layout.Buffers
	if err := in.sendParams(state, s, masked); err != nil {
		return err
	}
	if len(s.params.Bias) > 0 {
		in.scratch = in.scratch[:0]
		for id, bias := range s.params.Bias {
			in.scratch = append(in.scratch, uint32(id), math.Float32bits(bias))
		}
		if err := in.send(driver.Address(b.SampleBiases+ptx.Address(8*plan.MaxBiases*state)), in.scratch); err != nil {
			return err
		}
	}
	if !s.params.Penalizes() {
		return nil
	}
	counts := s.sampler.Counts()
	return in.stream.Write(driver.Address(b.SampleCounts+ptx.Address(4*len(counts)*state)), appendU32s(nil, counts))
}

// sendSamplingStates sends the indices of the sampling states of all slots, if a slot of the step has another one.
func (in *stepInputs) sendSamplingStates(at []*batchToken) error {
	changed := false
	for r, b := range at {
		if b == nil {
			continue
		}
		state := b.samplingIndex()
		if state == noSamplingState {
			state = in.layout.GreedyState()
		}
		changed = changed || in.slots[r].samplingIndex != state
		in.slots[r].samplingIndex = state
	}
	if !changed {
		return nil
	}
	in.scratch = in.scratch[:0]
	for _, s := range in.slots {
		in.scratch = append(in.scratch, uint32(s.samplingIndex))
	}
	return in.send(driver.Address(in.layout.Buffers.SampleInput), in.scratch)
}

// samplingIndex returns the sampling state by which a decode step chooses; noSamplingState: the largest logit.
func (b *batchToken) samplingIndex() int {
	if !b.row.choosesFromSaved() {
		return b.row.samplingIndex
	}
	return noSamplingState
}

// isLast reports whether it is the row's last token, and another token is chosen after it.
func (b *batchToken) isLast() bool { return b.row.computesLogits() && b.index == b.row.n-1 }

// choosesFromSaved reports whether the row's token is chosen from saved logits, by chooseFromSaved: at
// the end of the step or, with hold, in a pass of Engine.Choose.
func (r *row) choosesFromSaved() bool {
	return r.samplingIndex != noSamplingState && (r.hold || !r.decodes())
}

// saveLogits queues copying the logits of the last token of a row to the row's state.
func (e *Engine) saveLogits(b *batchToken) error {
	l, bytes := &e.layout.Buffers, 4*e.model.Config.Vocab
	return e.stream.Copy(driver.Address(l.SavedLogits)+driver.Address(bytes*b.row.samplingIndex), driver.Address(l.Logits)+driver.Address(bytes*b.slot), int64(bytes))
}

// chooseFromSaved queues the choices of rows without hold from saved logits.
func (e *Engine) chooseFromSaved(p *pass) error {
	in, slots, states := e.inputs, e.layout.Slots, 0
	in.scratch = slices.Grow(in.scratch[:0], 2*slots)[:2*slots]
	clear(in.scratch)
	at := savedTokenOffset(e.layout, in.bank)
	for i := range p.rows {
		if r := &p.rows[i]; r.choosesFromSaved() && !r.hold {
			length := r.start + r.n
			in.scratch[r.samplingIndex], in.scratch[slots+r.samplingIndex] = uint32(length-1), uint32(length)
			r.tokenAt = at + 4*(2*r.samplingIndex+length%2)
			states = max(states, r.samplingIndex+1)
		}
	}
	if states == 0 {
		return nil
	}
	if err := in.send(driver.Address(e.layout.Buffers.ChooseInput), in.scratch); err != nil {
		return err
	}
	memory := ptx.Address(in.memory.Address())
	commands, err := e.layout.Choose(states, memory+ptx.Address(at), memory+ptx.Address(resultOffset(e.layout, at)), e.kernels)
	if err != nil {
		return err
	}
	return e.launch(p, newLaunchList(plan.Shape{Tokens: states}, commands, false), nil)
}

// choice returns the token at a row's offset, with its log-probabilities. The host must have waited
// for its pass.
func (in *stepInputs) choice(r *row) sampling.Choice {
	c, p := sampling.Choice{Token: in.token(r.tokenAt)}, &r.sequence.params
	if r.samplingIndex == noSamplingState || c.Token == sampling.NoToken || !p.LogProb && p.TopLogProbs == 0 {
		return c
	}
	result := in.memory.Bytes()[resultOffset(in.layout, r.tokenAt):]
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(result[4*i:]) }
	most, sum := math.Float32frombits(word(1)), binary.LittleEndian.Uint64(result[8:])
	logProb := func(i int) float32 { return sampling.LogProbOf(math.Float32frombits(word(i)), most, sum) }
	if p.LogProb {
		c.LogProb = logProb(0)
	}
	for i := 4; i < 4+2*p.TopLogProbs && word(i) != sample.NoIndex; i += 2 {
		c.Top = append(c.Top, sampling.LogProb{Token: int(word(i)), LogProb: logProb(i + 1)})
	}
	return c
}
