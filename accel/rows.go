package accel

import (
	"encoding/binary"

	"github.com/lockstep-go/lockstep/driver"
)

// The pinned memory of rows holds what a step is told of them, the pages that are promised
// to their sequences, and the tokens that were chosen for them in slots: those of steps go
// to two by turns, because a step may be queued before the tokens of the one before are
// read, and those of prompts to a third.
const (
	promptSlot = 2
	slots      = 3
)

// inputBytes is the size of what a step is told of its rows.
func (s *shape) inputBytes() int { return 4 * 3 * s.stepRows }

// slotAt is where a slot begins; with the number of slots, the size of all.
func (s *shape) slotAt(slot int) int { return s.promisedAt(s.stepRows) + 4*slot*s.headRows }

// stageRows brings the tables of a step's rows up to date, and writes what the device is
// told of them where the step takes it from. Rows beyond them have length 0. The device
// has come to the end of the last step that was told something.
func (e *Engine) stageRows(rows []row) error {
	n := e.stepRows
	input := e.rowsHost.Bytes()[:e.inputBytes()]
	clear(input)
	put := func(array, i, value int) { binary.LittleEndian.PutUint32(input[4*(array*n+i):], uint32(value)) }
	for i, r := range rows {
		put(0, i, r.token)
		put(1, i, r.position)
		put(2, i, r.position+1)
		if err := e.tables.write(e.stream, e.buffers.stepTables, i, r.session.pages); err != nil {
			return err
		}
	}
	return nil
}

// writeRows queues telling the device what was staged.
func (e *Engine) writeRows() error {
	return e.stream.WriteAsync(driver.Address(e.buffers.stepInput), e.rowsHost, 0, e.inputBytes())
}

// readStep queues reading the tokens of a step, if it chooses any, into the slot whose turn it is.
func (e *Engine) readStep(p *program) error {
	if !p.head {
		return nil
	}
	e.slot = 1 - e.slot
	return e.readTokens(p.rows, e.slot)
}

// readTokens queues reading the tokens chosen for the first n rows of logits.
func (e *Engine) readTokens(n, slot int) error {
	return e.stream.ReadAsync(e.rowsHost, e.slotAt(slot), driver.Address(e.buffers.token), 4*n)
}

// chosen is the token of a row that was read, once the stream has come so far; -1 where
// there is none.
func (e *Engine) chosen(slot, row int) int {
	data := e.rowsHost.Bytes()[e.slotAt(slot)+4*row:]
	return int(int32(binary.LittleEndian.Uint32(data))) // NoIndex is -1
}
