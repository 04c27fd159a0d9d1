package accel

import (
	"encoding/binary"
	"math"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
)

// samplingState is a place on the device for the parameters of a sequence and the counts of its
// tokens. A sequence keeps its place until another needs it: the batch slot, the pages of the
// sequence and swapping do not matter. The device counts the tokens that it chooses.
type samplingState struct {
	sequence *sequence // nil: free
	stale    bool      // the device lacks the parameters or some counts
	step     int       // the last that used it
}

// chooseOnDevice lets the device choose the token of a row, if it can. It waits for steps that
// choose tokens of the sequence if the device needs the counts of these tokens.
func (r *row) chooseOnDevice() error {
	s := r.sequence
	if s.argmax {
		r.device = true
		return nil
	}
	if len(s.params.Bias) > plan.MaxBiases {
		return nil
	}
	in := s.engine.inputs
	if r.state = in.stateOf(s, s.engine.steps); r.state == noState {
		return nil
	}
	r.device = true
	if in.states[r.state].stale && s.params.Penalizes() {
		return s.settle()
	}
	return nil
}

// stateOf returns the state of a sequence in a step. A sequence without one gets the state that was
// not used for the longest time; noState: this step uses all.
func (in *stepInputs) stateOf(s *sequence, step int) int {
	if s.state == noState || in.states[s.state].sequence != s {
		at := 0
		for i := range in.states {
			if in.states[i].step < in.states[at].step {
				at = i
			}
		}
		if in.states[at].step == step {
			return noState
		}
		in.states[at], s.state = samplingState{sequence: s, stale: true}, at
	}
	in.states[s.state].step = step
	return s.state
}

// dropState gives up the sequence's state.
func (s *sequence) dropState() {
	if in := s.engine.inputs; s.state != noState && in.states[s.state].sequence == s {
		in.states[s.state] = samplingState{}
	}
	s.state = noState
}

// staleState notes that the host has counted a token that the device has not.
func (s *sequence) staleState() {
	if in := s.engine.inputs; s.state != noState && in.states[s.state].sequence == s && s.params.Penalizes() {
		in.states[s.state].stale = true
	}
}

// uploadStates sends the stale states of a step's rows.
func (e *Engine) uploadStates(p *pass) error {
	for i := range p.rows {
		r := &p.rows[i]
		if r.state == noState || !e.inputs.states[r.state].stale {
			continue
		}
		if err := e.inputs.sendState(r.state, r.sequence); err != nil {
			return err
		}
		e.inputs.states[r.state].stale = false
	}
	return nil
}

// sendState sends the parameters, biases and counts of a sequence.
func (in *stepInputs) sendState(state int, s *sequence) error {
	b := &in.layout.Buffers
	words := s.params.Words()
	if err := in.send(driver.Address(b.SampleParams+ptx.Address(4*sample.ParamWords*state)), words[:]); err != nil {
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
	counts := s.sampler.Counts()
	if counts == nil {
		return nil
	}
	return in.stream.Write(driver.Address(b.SampleCounts+ptx.Address(4*len(counts)*state)), appendU32s(nil, counts))
}

// sendStates sends the states of the slots of a step, if the device has others.
func (in *stepInputs) sendStates(at []*slotToken) error {
	changed := false
	for r, b := range at {
		if b == nil {
			continue
		}
		state := b.state()
		if state == noState {
			state = in.layout.GreedyState()
		}
		changed = changed || in.slots[r].state != state
		in.slots[r].state = state
	}
	if !changed {
		return nil
	}
	in.scratch = in.scratch[:0]
	for _, s := range in.slots {
		in.scratch = append(in.scratch, uint32(s.state))
	}
	return in.send(driver.Address(in.layout.Buffers.SampleInput), in.scratch)
}

// state returns the sampling state of a row of one token, which a decode step uses; else noState.
func (b *slotToken) state() int {
	if b.row.single() {
		return b.row.state
	}
	return noState
}

// last reports whether it is the row's last token, which another token follows.
func (b *slotToken) last() bool { return b.row.computesLogits() && b.index == b.row.n-1 }

// sampledAlone reports whether the token after the row is sampled by launches of its own.
func (r *row) sampledAlone() bool { return r.state != noState && !r.single() }

// sampleAlone queues choosing the token after the last token of a row.
func (e *Engine) sampleAlone(p *pass, b *slotToken) error {
	at, err := e.promptTokens(p, 1)
	if err != nil {
		return err
	}
	in, length := e.inputs, b.position+1
	in.scratch = append(in.scratch[:0], uint32(b.row.state), uint32(b.position), uint32(length))
	if err := in.send(driver.Address(e.layout.Buffers.SampleInput+ptx.Address(4*e.layout.Slots)), in.scratch); err != nil {
		return err
	}
	memory := ptx.Address(in.memory.Address())
	commands, err := e.layout.Sample(b.slot, memory+ptx.Address(at), memory+ptx.Address(resultOffset(e.layout, at)), e.kernels)
	if err != nil {
		return err
	}
	b.row.tokenAt = at + 4*(length%2)
	return e.launch(p, newLaunchList(plan.Shape{Tokens: 1}, commands, false), []slotToken{*b})
}

// choice returns the token at a row's offset, with its log-probabilities. The host must have waited
// for its pass.
func (in *stepInputs) choice(r *row) sampling.Choice {
	c, p := sampling.Choice{Token: in.token(r.tokenAt)}, &r.sequence.params
	if r.state == noState || c.Token == noToken || !p.LogProb && p.TopLogProbs == 0 {
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
