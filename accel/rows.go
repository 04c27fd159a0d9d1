package accel

import (
	"encoding/binary"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// The pinned memory of rows holds what a step is told of them, the pages that are promised
// to their sequences, and the tokens that were chosen, which kernels write there: those of
// steps, and those of prompts, [headRows, 2] each. A step may be queued before the token of the
// one before is read: a row's are by turns at the parity of its length, so that neither the
// host nor the device counts steps.

// inputBytes is the size of what a step is told of its rows.
func (s *shape) inputBytes() int { return 4 * 3 * s.stepRows }

// stepTokens, promptTokens and rowsBytes are where the tokens of steps begin, where those of
// prompts do, and the size of all.
func (s *shape) stepTokens() int   { return s.promisedAt(s.stepRows) }
func (s *shape) promptTokens() int { return s.stepTokens() + 4*2*s.headRows }
func (s *shape) rowsBytes() int    { return s.promptTokens() + 4*2*s.headRows }

// placeTokens says where kernels leave tokens: the pinned memory of rows is there.
func (l *layout) placeTokens(at ptxgen.Address) {
	l.buffers.stepTokens = at + ptxgen.Address(l.stepTokens())
	l.buffers.promptTokens = at + ptxgen.Address(l.promptTokens())
}

// stepToken is where a step of a row at a position leaves its token.
func (s *shape) stepToken(row, position int) int {
	return s.stepTokens() + 4*(2*row+(position+1)%2)
}

// promptToken is where the token of a row of a prompt's logits is.
func (s *shape) promptToken(row int) int { return s.promptTokens() + 4*2*row }

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

// chosen is the token that a kernel left in the pinned memory of rows, once the host has waited
// for it; -1 where there is none.
func (e *Engine) chosen(at int) int {
	return int(int32(binary.LittleEndian.Uint32(e.rowsHost.Bytes()[at:]))) // NoIndex is -1
}
