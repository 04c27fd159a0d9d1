package accel

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/lockstep-go/lockstep/accel/internal/graph"
	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// slot is what a batch slot holds in one forward pass: a token of a session.
type slot struct {
	session  *session
	token    int
	position int
}

// pass is a planned forward pass: it can run any number of times.
type pass struct {
	shape    plan.Shape
	commands []plan.Command
	list     *graph.List
}

func newPass(s plan.Shape, commands []plan.Command, capture bool) *pass {
	launches := make([]driver.Launch, 0, len(commands))
	for _, c := range commands {
		launches = append(launches, c.Launch)
	}
	return &pass{shape: s, commands: commands, list: graph.NewList(launches, capture)}
}

// pass returns the pass of a shape. It plans each shape once, except prompt chunks shorter
// than Options.Chunk, whose shapes rarely recur.
func (e *Engine) pass(s plan.Shape) (*pass, error) {
	if p := e.passes[s]; p != nil {
		return p, nil
	}
	commands, err := e.layout.Commands(s, e.kernels)
	if err != nil {
		return nil, err
	}
	p := newPass(s, commands, !s.Prefill && e.options.graphs())
	if e.recurs(s) {
		e.passes[s] = p
	}
	return p, nil
}

// recurs reports whether passes of a shape are frequent enough to store their plan.
func (e *Engine) recurs(s plan.Shape) bool { return !s.Prefill || s.Tokens == e.options.Chunk }

// step queues a decode step: one token of each of several sequences, or several tokens of
// one. The mutex is held.
func (e *Engine) step(ctx context.Context, batch []slot, logits bool) error {
	longest := 0
	for _, b := range batch {
		longest = max(longest, b.position+1)
	}
	e.discardAhead()
	p, err := e.pass(plan.Shape{
		Tokens: plan.CeilPow2(len(batch)), LongRope: batch[0].session.longRope, Pages: e.layout.PagesFor(longest), Logits: logits,
	})
	if err == nil {
		err = e.inputs.stage(e.stream, batch)
	}
	if err == nil {
		e.countStep(len(batch))
		e.async.pass = p
		err = e.runStep(ctx, p, batch)
	}
	return e.failed(err)
}

func (e *Engine) countStep(tokens int) {
	e.stats.Steps++
	e.stats.StepTokens += tokens
	e.stats.LargestBatch = max(e.stats.LargestBatch, tokens)
}

func (e *Engine) runStep(ctx context.Context, p *pass, batch []slot) error {
	if e.options.Tap == nil {
		return e.queueStep(p)
	}
	if err := e.inputs.send(e.stream); err != nil {
		return err
	}
	return e.tapped(ctx, p, batch)
}

// queueStep queues a decode step whose inputs are staged. Its first call captures the graph.
// If the capture fails, steps of this shape run eagerly from then on; Stats counts that.
func (e *Engine) queueStep(p *pass) error {
	if err := e.capture(p); err != nil {
		return err
	}
	e.async.start = time.Now() // after the capture, which can take as long as many steps
	if err := e.inputs.send(e.stream); err != nil {
		return err
	}
	if p.list.Captured() {
		e.stats.GraphLaunches++
		return p.list.Launch(e.stream)
	}
	return e.launch(p)
}

// capture captures the graph of a pass, once. Only a lost device is an error.
func (e *Engine) capture(p *pass) error {
	if p.list.Captured() {
		return nil
	}
	if err := p.list.Capture(e.stream); err != nil {
		if e.dev.Err() != nil {
			return err
		}
		e.stats.CaptureFailures++
		e.stats.CaptureError = err
	}
	if p.list.Captured() {
		e.opened.add(p.list)
		e.stats.Captures++
	}
	return nil
}

// launch queues a pass kernel by kernel.
func (e *Engine) launch(p *pass) error {
	e.stats.EagerPasses++
	if e.options.Timer != nil {
		return e.timed(p)
	}
	return p.list.Launch(e.stream)
}

// chunk queues a prompt chunk of one sequence with the prefill kernels. The mutex is held.
func (e *Engine) chunk(ctx context.Context, batch []slot) error {
	s := batch[0].session
	tokens := make([]int, len(batch))
	for i, b := range batch {
		tokens[i] = b.token
	}
	input := e.layout.ChunkInput(s.table.Pages, tokens, batch[0].position)
	err := e.stream.Write(driver.Address(e.layout.Buffers.Chunk), appendU32s(nil, input))
	if err == nil {
		e.stats.Chunks++
		e.stats.ChunkTokens += len(batch)
		err = e.runChunk(ctx, plan.Shape{Tokens: len(batch), Prefill: true, LongRope: s.longRope}, batch)
	}
	return e.failed(err)
}

func (e *Engine) runChunk(ctx context.Context, s plan.Shape, batch []slot) error {
	if !e.recurs(s) && e.options.Tap == nil && e.options.Timer == nil {
		e.stats.EagerPasses++
		return e.launchSegments(ctx, s)
	}
	p, err := e.pass(s)
	if err != nil {
		return err
	}
	return e.runEager(ctx, p, batch)
}

func (e *Engine) runEager(ctx context.Context, p *pass, batch []slot) error {
	if e.options.Tap != nil {
		return e.tapped(ctx, p, batch)
	}
	return e.launch(p)
}

// launchSegments plans a pass and queues each segment as soon as it is planned, so that the
// device works while the host plans. It stops once ctx has ended.
func (e *Engine) launchSegments(ctx context.Context, s plan.Shape) error {
	for segment, err := range e.layout.Segments(s, e.kernels) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		e.launches = e.launches[:0]
		for _, c := range segment {
			e.launches = append(e.launches, c.Launch)
		}
		if err := e.stream.Launch(e.launches...); err != nil {
			return err
		}
	}
	return nil
}

// promptLogits queues the logits of a batch of tokens of the chunk that was just computed.
// first is the index of the first token in the chunk. The mutex is held.
func (e *Engine) promptLogits(ctx context.Context, batch []slot, first int) error {
	commands, err := e.layout.PromptLogits(first, len(batch), e.kernels)
	if err == nil {
		err = e.runEager(ctx, newPass(plan.Shape{Tokens: len(batch)}, commands, false), batch)
	}
	return e.failed(err)
}

// readLogits waits for the device and reads rows of logits, as many at a time as the staging
// buffer holds.
func (e *Engine) readLogits(into [][]float32, rows []int) error {
	size := 4 * e.model.Config.Vocab
	most := len(e.staging.Bytes()) / size
	for {
		n := min(len(rows), most)
		for i, row := range rows[:n] {
			if err := e.stream.ReadAsync(e.staging, i*size, driver.Address(e.layout.Buffers.Logits+ptx.Address(row*size)), size); err != nil {
				return err
			}
		}
		if err := e.stream.Synchronize(); err != nil {
			return err
		}
		for i, dst := range into[:n] {
			decodeFloats(dst, e.staging.Bytes()[i*size:])
		}
		if into, rows = into[n:], rows[n:]; len(rows) == 0 {
			return nil
		}
	}
}

func decodeFloats(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// Warm loads kernels and captures graphs ahead of requests: for decode steps of each given
// number of sequences, with up to the given positions, and for a prompt chunk of
// Options.Chunk tokens. It launches no kernels.
func (e *Engine) Warm(ctx context.Context, positions int, sequences ...int) error {
	var shapes []plan.Shape
	for _, n := range sequences {
		if err := checkTokens(n, e.layout.Slots); err != nil {
			return err
		}
		last := e.layout.PagesFor(max(positions, 1))
		for pages := 1; ; pages = min(2*pages, last) {
			shapes = append(shapes, plan.Shape{Tokens: plan.CeilPow2(n), Logits: true, Pages: pages})
			if pages == last {
				break
			}
		}
	}
	if e.options.Prefill == PrefillF16 {
		shapes = append(shapes, plan.Shape{Tokens: e.options.Chunk, Prefill: true})
	}
	for _, s := range shapes {
		if err := e.warm(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) warm(ctx context.Context, s plan.Shape) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.end()
	p, err := e.pass(s)
	if err == nil {
		err = e.capture(p)
	}
	return e.failed(err)
}
