package accel

import (
	"encoding/binary"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// stepInputs holds the inputs and results of decode steps in pinned memory, as u32:
//
//	tokens, positions, lengths  [3, slots]       copied to the device before a step
//	reserved                    [slots]          pages for the step that runs ahead
//	step tokens                 [logit rows, 2]  written by Argmax in decode steps
//	prompt tokens               [logit rows, 2]  written by Argmax in prompts
//
// A step can be queued before the host has read the token of the previous one. So slot r
// uses [r][0] and [r][1] alternately, by the parity of its length.
//
// It also holds a copy of the device's page tables, so that only changes are copied.
type stepInputs struct {
	memory    driver.Pinned
	layout    *plan.Layout
	tables    [][]uint32 // per slot: its page table as the device has it
	tableData []byte     // scratch memory of writeTable
}

func stepInputBytes(l *plan.Layout) int { return promptTokenOffset(l) + 4*2*l.LogitRows }

func reservedOffset(l *plan.Layout) int    { return 4 * 3 * l.Slots }
func stepTokenOffset(l *plan.Layout) int   { return reservedOffset(l) + 4*l.Slots }
func promptTokenOffset(l *plan.Layout) int { return stepTokenOffset(l) + 4*2*l.LogitRows }

// newStepInputs uses pinned memory of stepInputBytes and tells the layout where kernels
// write tokens.
func newStepInputs(l *plan.Layout, pinned driver.Pinned) *stepInputs {
	setTokenAddresses(l, ptx.Address(pinned.Address()))
	return &stepInputs{memory: pinned, layout: l, tables: make([][]uint32, l.Slots)}
}

func setTokenAddresses(l *plan.Layout, at ptx.Address) {
	l.Buffers.StepTokens = at + ptx.Address(stepTokenOffset(l))
	l.Buffers.PromptTokens = at + ptx.Address(promptTokenOffset(l))
}

// stepToken returns the token that a decode step chose for a slot at a position; -1 if no
// logit was larger than -Inf. The host must have waited for the step.
func (in *stepInputs) stepToken(slot, position int) int {
	return in.token(stepTokenOffset(in.layout) + 4*(2*slot+(position+1)%2))
}

// promptToken returns the greedy token of a row of a prompt's logits.
func (in *stepInputs) promptToken(row int) int {
	return in.token(promptTokenOffset(in.layout) + 4*2*row)
}

func (in *stepInputs) token(offset int) int {
	return int(int32(binary.LittleEndian.Uint32(in.memory.Bytes()[offset:])))
}

// stage brings the page tables of a batch up to date and writes its tokens, positions and
// lengths to the pinned memory. Slots beyond the batch get length 0. Call it only after the
// device has read the inputs of the previous step.
func (in *stepInputs) stage(s driver.Stream, batch []slot) error {
	data := in.memory.Bytes()[:reservedOffset(in.layout)]
	clear(data)
	put := func(array, i, value int) {
		binary.LittleEndian.PutUint32(data[4*(array*in.layout.Slots+i):], uint32(value))
	}
	for i, b := range batch {
		put(0, i, b.token)
		put(1, i, b.position)
		put(2, i, b.position+1)
		if err := in.writeTable(s, i, b.session.table.Pages); err != nil {
			return err
		}
	}
	return nil
}

// send queues copying the staged inputs to the device.
func (in *stepInputs) send(s driver.Stream) error {
	return s.WriteAsync(driver.Address(in.layout.Buffers.StepInput), in.memory, 0, reservedOffset(in.layout))
}

// writeTable copies the part of a slot's page table that differs from the device's.
func (in *stepInputs) writeTable(s driver.Stream, slot int, pages []uint32) error {
	have := in.tables[slot]
	same := 0
	for same < len(have) && same < len(pages) && have[same] == pages[same] {
		same++
	}
	if same == len(pages) {
		return nil
	}
	in.tableData = appendU32s(in.tableData[:0], pages[same:])
	in.tables[slot] = append(have[:same], pages[same:]...)
	err := s.Write(in.tableEntry(slot, same), in.tableData)
	if err != nil {
		in.tables[slot] = have[:0] // the device's table is unknown
	}
	return err
}

// tableEntry returns the address of entry i of a slot's page table.
func (in *stepInputs) tableEntry(slot, i int) driver.Address {
	return driver.Address(in.layout.Buffers.StepTables + ptx.Address(4*(slot*in.layout.MaxPages+i)))
}

// stageReserved writes the page that is reserved for a slot's next position to the pinned
// memory. The device reads it before the next call for the slot overwrites it: a sequence
// needs another page only after 64 steps, and the host waits for the first step of a batch
// of other sequences.
func (in *stepInputs) stageReserved(slot int, page uint32) {
	binary.LittleEndian.PutUint32(in.memory.Bytes()[reservedOffset(in.layout)+4*slot:], page)
}

// sendReserved queues copying the reserved page of a slot to entry i of its page table.
func (in *stepInputs) sendReserved(s driver.Stream, slot, i int) error {
	at := reservedOffset(in.layout) + 4*slot
	if err := s.WriteAsync(in.tableEntry(slot, i), in.memory, at, 4); err != nil {
		return err
	}
	in.tables[slot] = append(in.tables[slot][:i], binary.LittleEndian.Uint32(in.memory.Bytes()[at:]))
	return nil
}

func appendU32s(to []byte, list []uint32) []byte {
	for _, x := range list {
		to = binary.LittleEndian.AppendUint32(to, x)
	}
	return to
}
