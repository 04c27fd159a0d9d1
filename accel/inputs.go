package accel

import (
	"encoding/binary"
	"slices"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
)

// stepInputs sends the inputs of forward passes, and says where the device writes the tokens that it
// chooses. It knows which inputs the device has, so that it sends only changes.
//
// The device holds for each batch slot r of decode steps
//
//	tokens[r]     the token that a step computes
//	positions[r]  its position
//	lengths[r]    that position plus 1; 0 if the slot is inactive
//	tables[r]     the page table of the slot's sequence
//	sampling[r]   the index of its sampling state, if the step samples
//	recurrent[r]  the index of its recurrent state, if the model has any
//
// A step over slots 0 to n-1 that computes logits leaves the chosen token in tokens[r] and
// advances positions[r] and lengths[r] of active slots. So the next step of the same sequences
// needs no inputs, except for new pages. A step does not change the slots from n on.
//
// Pinned memory holds inputs, and what the device chose, as u32:
//
//	inputs         [banks, bankLen]
//	step tokens    [logit rows, 2]         of decode steps, by slot
//	prompt tokens  [banks, logit rows, 2]  chosen after prompts; token i is in [i][0]
//	saved tokens   [banks, slots, 2]       chosen from Buffers.SavedLogits, by sampling state
//	results        for each of the tokens, [sample.ResultWords]
//
// Each of the maxInFlight passes has a bank. A pass begins after the host has waited for the last
// pass of its bank, so the device has read the inputs there. A decode step writes the token of slot r
// to [r][0] or [r][1], by the parity of the slot's length, even if the slot is inactive. Before a
// launch that would overwrite a token that the host has not read, the host waits for the device and
// reads all tokens.
type stepInputs struct {
	stream driver.Stream
	memory driver.Pinned
	layout *plan.Layout

	bank       int // of the pass that is being queued
	used       int // values of the bank that it has sent
	promptRows int // prompt tokens of the bank that it uses

	slots          []slotState
	samplingStates []samplingState
	scratch        []uint32

	// Decode steps with logits are numbered from 1.
	lastStep  int   // the last that was launched
	readStep  int   // the last one that has ended and has its tokens on the host
	writtenBy []int // [2·slots]: the last that writes each step token
}

// slotState is what the device holds for a batch slot.
type slotState struct {
	sequence      *sequence // nil: none, or unknown
	length        int       // lengths[r]; -1: unknown
	table         []uint32  // the known beginning of tables[r]
	samplingIndex int       // sampling[r]; -1: unknown
	recurrent     int64     // its state of Gated DeltaNets; -1: unknown
}

// batchToken is a token of a row in a forward pass.
type batchToken struct {
	row      *row
	index    int // of the token in the row
	sequence *sequence
	position int
	slot     int // batch slot; in a prompt chunk, the index of the token in the chunk
	token    int // or deviceToken or copiedToken
	from     int // with copiedToken: the token's offset in stepInputs.memory
}

const (
	deviceToken = -1 // the device has the token in the slot
	copiedToken = -2 // the device has chosen it in another slot, or will, and copies it
)

// bankLen is the number of values of a bank. Of each batch slot it has room for a token, a position, a length, the indices of its recurrent and
// sampling states, and a position and a length for Engine.Choose. It also has room for a prompt chunk, for masks, and for 4096 values of page
// tables and sampling parameters. If a bank is full, send writes to the device without it, which may wait.
func bankLen(l *plan.Layout) int {
	return 7*l.Slots + l.ChunkInputLen() + l.Slots*l.MaskLen() + 4096
}

// stepInputBytes is the size of the pinned memory. The functions below return offsets in it.
func stepInputBytes(l *plan.Layout) int { return resultOffset(l, savedTokenOffset(l, maxInFlight)) }

func stepTokenOffset(l *plan.Layout) int { return 4 * maxInFlight * bankLen(l) }
func promptTokenOffset(l *plan.Layout, bank int) int {
	return stepTokenOffset(l) + 4*2*l.LogitRows*(1+bank)
}
func savedTokenOffset(l *plan.Layout, bank int) int {
	return promptTokenOffset(l, maxInFlight) + 4*2*l.Slots*bank
}

// resultOffset returns the offset of the result that belongs to the token at an offset.
func resultOffset(l *plan.Layout, token int) int {
	results := (savedTokenOffset(l, maxInFlight) + 7) / 8 * 8
	return results + sample.ResultWords*(token-stepTokenOffset(l))
}

// newStepInputs uses pinned memory of stepInputBytes and tells the layout where decode steps
// write tokens.
func newStepInputs(l *plan.Layout, stream driver.Stream, pinned driver.Pinned) *stepInputs {
	setTokenAddress(l, ptx.Address(pinned.Address()))
	in := &stepInputs{stream: stream, memory: pinned, layout: l, slots: make([]slotState, l.Slots), samplingStates: make([]samplingState, l.Slots), writtenBy: make([]int, 2*l.Slots)}
	in.invalidate()
	return in
}

func setTokenAddress(l *plan.Layout, at ptx.Address) {
	l.Buffers.StepTokens = at + ptx.Address(stepTokenOffset(l))
	l.Buffers.StepResults = at + ptx.Address(resultOffset(l, stepTokenOffset(l)))
}

// invalidate marks everything that the device holds as unknown.
func (in *stepInputs) invalidate() {
	for i := range in.slots {
		in.slots[i] = slotState{length: -1, samplingIndex: -1, recurrent: -1, table: in.slots[i].table[:0]}
	}
	for i := range in.samplingStates {
		in.samplingStates[i].stale = true
	}
}

// begin uses a bank from its beginning. The last pass of the bank must have ended.
func (in *stepInputs) begin(bank int) { in.bank, in.used, in.promptRows = bank, 0, 0 }

// token returns the token at an offset of the pinned memory; -1 if no logit was larger than
// -Inf. The host must have waited for its pass.
func (in *stepInputs) token(offset int) int {
	return int(int32(binary.LittleEndian.Uint32(in.memory.Bytes()[offset:])))
}

// send queues a copy of values to the device. If the bank is full, it may wait for earlier
// copies.
func (in *stepInputs) send(to driver.Address, values []uint32) error {
	if in.used+len(values) > bankLen(in.layout) {
		return in.stream.Write(to, appendU32s(nil, values))
	}
	at := 4 * (in.bank*bankLen(in.layout) + in.used)
	in.used += len(values)
	data := in.memory.Bytes()[at:]
	for i, x := range values {
		binary.LittleEndian.PutUint32(data[4*i:], x)
	}
	return in.stream.WriteAsync(to, in.memory, at, 4*len(values))
}

// input returns the address of element i of an array of the step inputs: 0 tokens, 1 positions,
// 2 lengths.
func (in *stepInputs) input(array, i int) driver.Address {
	return driver.Address(in.layout.Buffers.StepInput + ptx.Address(4*(array*in.layout.Slots+i)))
}

// tokenOffset returns where a decode step writes the token of a slot with a length.
func (in *stepInputs) tokenOffset(slot, length int) int {
	return stepTokenOffset(in.layout) + 4*(2*slot+length%2)
}

// reserveTokens returns the offset of n prompt tokens that no earlier prompt of the step uses. ok is
// false if there are too few.
func (in *stepInputs) reserveTokens(n int) (offset int, ok bool) {
	if in.promptRows+n > in.layout.LogitRows {
		return 0, false
	}
	offset = promptTokenOffset(in.layout, in.bank) + 4*2*in.promptRows
	in.promptRows += n
	return offset, true
}

// unread reports whether a decode step of a slot with a length would overwrite a token that the host
// has not read.
func (in *stepInputs) unread(slot, length int) bool {
	return in.writtenBy[2*slot+length%2] > in.readStep
}

// hasInputs reports whether the slot of a sequence has the inputs of its next decode step, except for
// the token and new pages.
func (in *stepInputs) hasInputs(s *sequence) bool {
	return s.slot < len(in.slots) && in.slots[s.slot].sequence == s && in.slots[s.slot].length == s.length+1
}

// assignSlots gives each sequence of a decode step a slot below n: its own, else the first free one
// with no unread token, else the first free one.
func (in *stepInputs) assignSlots(batch []batchToken, n int) {
	var used [maxSlots]bool
	for i := range batch {
		b := &batch[i]
		if b.slot = b.sequence.slot; b.slot < n && in.slots[b.slot].sequence == b.sequence {
			used[b.slot] = true
		} else {
			b.slot = noSlot
		}
	}
	for i := range batch {
		b := &batch[i]
		if b.slot != noSlot {
			continue
		}
		for r := range n {
			if !used[r] && (b.slot == noSlot || !in.unread(r, b.position+1)) {
				if b.slot = r; !in.unread(r, b.position+1) {
					break
				}
			}
		}
		used[b.slot] = true
	}
}

// overwrites reports whether a decode step over n slots would overwrite a token that the host
// has not read.
func (in *stepInputs) overwrites(batch []batchToken, n int) bool {
	var length [maxSlots]int
	for _, b := range batch {
		length[b.slot] = b.position + 1
	}
	for r := range n {
		if in.unread(r, length[r]) {
			return true
		}
	}
	return false
}

// stage queues copies of those inputs of a decode step over n slots that the device lacks; with
// sampled, those of sampling states too.
//
// With programmatic dependent launch, a kernel reads lengths and positions before earlier kernels have ended, which may still write
// them. It never starts before a queued copy has run. So stage always queues one if ordered is set. Graphs need none: they start
// after all earlier work.
func (in *stepInputs) stage(batch []batchToken, n int, sampled, ordered bool) error {
	var at [maxSlots]*batchToken
	for i := range batch {
		at[batch[i].slot] = &batch[i]
	}
	changed := ordered
	for r := range n {
		length := 0
		if b := at[r]; b != nil {
			length = b.position + 1
			if err := in.sendTable(r, b.sequence); err != nil {
				return err
			}
		} else {
			in.slots[r].sequence = nil
		}
		changed = changed || in.slots[r].length != length
		in.slots[r].length = length
	}
	if changed {
		if err := in.sendLengths(); err != nil {
			return err
		}
	}
	if err := in.sendRecurrentStates(at[:n]); err != nil {
		return err
	}
	if err := in.sendTokens(at[:n]); err != nil || !sampled {
		return err
	}
	return in.sendSamplingStates(at[:n])
}

// sendLengths sends positions and lengths of all slots.
func (in *stepInputs) sendLengths() error {
	slots := len(in.slots)
	in.scratch = slices.Grow(in.scratch[:0], 2*slots)[:2*slots]
	clear(in.scratch)
	for r, s := range in.slots {
		if s.length > 0 {
			in.scratch[r], in.scratch[slots+r] = uint32(s.length-1), uint32(s.length)
		}
	}
	return in.send(in.input(1, 0), in.scratch)
}

// sendRecurrentStates sends which states of Gated DeltaNets the slots of a step have, if the device has others.
func (in *stepInputs) sendRecurrentStates(at []*batchToken) error {
	to := in.layout.Buffers.StepStates
	if to == 0 {
		return nil
	}
	changed := false
	for r, b := range at {
		state := int64(deltanet.NoState)
		if b != nil {
			state = int64(b.sequence.engine.recurrentPlace(b.sequence))
		}
		changed = changed || in.slots[r].recurrent != state
		in.slots[r].recurrent = state
	}
	if !changed {
		return nil
	}
	in.scratch = in.scratch[:0]
	for _, s := range in.slots {
		in.scratch = append(in.scratch, uint32(s.recurrent))
	}
	return in.send(driver.Address(to), in.scratch)
}

// sendTokens sends the tokens that the host knows, neighbors together, and copies those that
// the device chose in another slot.
func (in *stepInputs) sendTokens(at []*batchToken) error {
	for r := 0; r < len(at); r++ {
		b := at[r]
		switch {
		case b == nil || b.token == deviceToken:
		case b.token == copiedToken:
			if err := in.stream.WriteAsync(in.input(0, r), in.memory, b.from, 4); err != nil {
				return err
			}
		default:
			first := r
			in.scratch = in.scratch[:0]
			for ; r < len(at) && at[r] != nil && at[r].token >= 0; r++ {
				in.scratch = append(in.scratch, uint32(at[r].token))
			}
			if err := in.send(in.input(0, first), in.scratch); err != nil {
				return err
			}
			r--
		}
	}
	return nil
}

// sendTable sends the part of a sequence's page table that differs from the slot's.
func (in *stepInputs) sendTable(r int, s *sequence) error {
	slot := &in.slots[r]
	if slot.sequence != s || s.slot != r {
		s.sentPages = 0
	}
	slot.sequence = s
	pages, same := s.table.Pages, s.sentPages
	for same < len(slot.table) && same < len(pages) && slot.table[same] == pages[same] {
		same++
	}
	s.sentPages, s.slot = len(pages), r
	if same == len(pages) {
		return nil
	}
	slot.table = append(slot.table[:same], pages[same:]...)
	return in.send(driver.Address(in.layout.Buffers.StepTables+ptx.Address(4*(r*in.layout.MaxPages+same))), pages[same:])
}

// launched notes that a decode step over n slots with logits is queued. It will advance the active
// slots and write their tokens.
func (in *stepInputs) launched(n int) {
	in.lastStep++
	for r := range n {
		if length := in.slots[r].length; length > 0 {
			in.writtenBy[2*r+length%2] = in.lastStep
			in.slots[r].length++
		}
	}
}

func appendU32s(to []byte, list []uint32) []byte {
	for _, x := range list {
		to = binary.LittleEndian.AppendUint32(to, x)
	}
	return to
}
