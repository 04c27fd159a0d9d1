package accel

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
)

// tables are the pages of the rows of decoding, as the device has them: only what
// differs is written.
type tables struct {
	width int
	rows  [][]uint32
	bytes []byte
}

func newTables(s *shape) tables {
	return tables{width: s.maxPages, rows: make([][]uint32, s.stepRows)}
}

// write brings row i of the device's tables up to date.
func (t *tables) write(s driver.Stream, at uint64, i int, pages []uint32) error {
	have := t.rows[i]
	same := 0
	for same < len(have) && same < len(pages) && have[same] == pages[same] {
		same++
	}
	if same == len(pages) {
		return nil
	}
	t.bytes = appendU32s(t.bytes[:0], pages[same:])
	t.rows[i] = append(have[:same], pages[same:]...)
	err := s.Write(t.entry(at, i, same), t.bytes)
	if err != nil {
		t.rows[i] = have[:0] // nothing is known of the row
	}
	return err
}

func appendU32s(to []byte, list []uint32) []byte {
	for _, x := range list {
		to = binary.LittleEndian.AppendUint32(to, x)
	}
	return to
}

// grid is how many pages the attention of decoding goes over, where the longest sequence
// has so many positions: a power of two, so that few graphs serve all lengths.
func (s *shape) grid(positions int) int { return min(ceilPow2(ceilDiv(positions, page)), s.maxPages) }

// step queues up to stepRows positions with the kernels of decoding, each row by itself:
// positions of one sequence, or of several. The lock is held.
func (e *Engine) step(ctx context.Context, rows []row, head bool) error {
	p := pass{rows: rowsOf(len(rows)), long: rows[0].session.long, head: head}
	deepest := 0
	for _, r := range rows {
		deepest = max(deepest, r.position+1)
	}
	p.pages = e.grid(deepest)
	e.forget()
	prog, err := e.program(p)
	if err == nil {
		err = e.stageRows(rows)
	}
	if err == nil {
		e.countStep(len(rows))
		e.ahead.again = prog
		err = e.runStep(ctx, prog, rows)
	}
	return e.failed(err)
}

func (e *Engine) countStep(rows int) {
	e.stats.Steps++
	e.stats.StepTokens += rows
	e.stats.LargestBatch = max(e.stats.LargestBatch, rows)
}

func (e *Engine) runStep(ctx context.Context, p *program, rows []row) error {
	if e.o.Tap == nil {
		return e.queue(p)
	}
	if err := e.writeRows(); err != nil {
		return err
	}
	return e.tapped(ctx, p, rows)
}

// chunk computes positions of one sequence with the kernels of prefill. The lock is held.
func (e *Engine) chunk(ctx context.Context, rows []row) error {
	s := rows[0].session
	last := rows[len(rows)-1].position
	input := make([]uint32, e.maxPages, e.maxPages+chunkHead+2*len(rows))
	copy(input, s.pages)
	input = append(input, uint32(last+1), 0, uint32(len(rows)))
	for _, r := range rows {
		input = append(input, uint32(r.token))
	}
	for _, r := range rows {
		input = append(input, uint32(r.position))
	}
	err := e.stream.Write(driver.Address(e.buffers.chunk), appendU32s(nil, input))
	if err == nil {
		e.stats.Chunks++
		e.stats.ChunkTokens += len(rows)
		err = e.runPrompt(ctx, pass{rows: len(rows), fast: true, long: s.long}, rows)
	}
	return e.failed(err)
}

func (e *Engine) runPrompt(ctx context.Context, p pass, rows []row) error {
	if !e.keeps(p) && e.o.Tap == nil && e.o.Timer == nil {
		e.stats.EagerPasses++
		return e.launchParts(p)
	}
	prog, err := e.program(p)
	if err != nil {
		return err
	}
	return e.runChunk(ctx, prog, rows)
}

func (e *Engine) runChunk(ctx context.Context, p *program, rows []row) error {
	if e.o.Tap != nil {
		return e.tapped(ctx, p, rows)
	}
	e.stats.EagerPasses++
	return e.launch(p)
}

// launch queues the launches of a program.
func (e *Engine) launch(p *program) error {
	if e.o.Timer != nil {
		return e.timed(p)
	}
	return e.stream.Launch(p.launches...)
}

// head queues the logits of rows of a chunk, whose place in it is first. However many
// there are, it is done as for a step. The lock is held.
func (e *Engine) head(ctx context.Context, rows []row, first int) error {
	b := e.planner(pass{rows: len(rows)}, e.kernels)
	b.logitsOf(b.x+uint64(4*first*e.cfg.Hidden), len(rows), rowInputs{choices: b.buffers.promptTokens})
	if b.err != nil {
		return e.failed(b.err)
	}
	return e.failed(e.runChunk(ctx, newProgram(b.pass, b.steps), rows))
}

// failed says where an error came from.
func (e *Engine) failed(err error) error {
	if err == nil {
		return nil
	}
	// What was queued may still be at work with memory that the next pass writes.
	_ = e.stream.Synchronize()
	e.forget()
	if lost := e.dev.Err(); lost != nil {
		err = lost
	}
	return fmt.Errorf("accel: %w", err)
}
