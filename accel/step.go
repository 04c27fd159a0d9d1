package accel

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// row is a checked row of a step.
type row struct {
	sequence *sequence
	tokens   []int // nil: one token, which the last row chose
	n        int   // number of tokens
	prompt   bool
	want     model.Want
	hold     bool
	device   bool // the device chooses the next token, in this pass
	state    int  // the sampling state by which the device chooses, with hold later; noState: none

	// Of Engine.Choose, whose rows have no tokens.
	mask     []uint32  // nil: all tokens are permitted
	replaced []float32 // logits instead of those that were kept; nil: none

	before int    // positions of the sequence before the step
	pages  int    // pages of its table before the step
	chosen choice // the token after the sequence before the step

	token   int             // that the device chose; noToken: none
	tokenAt int             // offset in stepInputs.memory of that token; noOffset: none, or token has it
	choice  sampling.Choice // the same token with its log-probabilities
	logits  []float32       // wanted logits
	last    []float32       // logits of the last position, if the host needs them
	hidden  []float32
}

const noOffset = -1

// computesLogits reports whether a row needs the logits of its last position.
func (r *row) computesLogits() bool {
	return r.want != model.WantNothing && r.want != model.WantHidden
}

// single reports whether a row shares decode steps with others.
func (r *row) single() bool { return !r.prompt && r.n == 1 }

// logitsOf returns where the logits of a token of the row are wanted; nil if they are not.
func (r *row) logitsOf(i, vocab int) []float32 {
	switch {
	case r.want == model.WantAll:
		return r.logits[i*vocab:][:vocab]
	case i == r.n-1:
		return r.last
	}
	return nil
}

// Step implements model.Engine. Rows of one generated token share a decode step. Each other row
// has forward passes of its own. Step waits for the step before the last. It also waits if a row
// continues with a token that the host chooses, and for each pass if Options.Tap or
// Options.Timer is set.
//
// If ctx ends while Step queues a prompt, the prompt stops between layers. The emulator stops a
// kernel that runs, if the contexts of all queued steps have ended. A GPU finishes what is
// queued.
func (e *Engine) Step(ctx context.Context, rows []model.Row) (model.Pass, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for e.stepsInFlight() == maxSteps || len(e.inFlight) == maxInFlight {
		if err := e.finish(e.inFlight[0]); err != nil {
			return nil, err
		}
	}
	p := e.newPass(ctx)
	if err := e.checkRows(p, rows); err != nil {
		return nil, err
	}
	if err := p.reserve(); err != nil {
		return nil, err
	}
	if err := e.run(p); err != nil {
		return nil, err
	}
	p.commit()
	return p, nil
}

// own returns a sequence of this engine that can be used.
func (e *Engine) own(s model.Sequence) (*sequence, error) {
	q, ok := s.(*sequence)
	if !ok || q.engine != e {
		return nil, errors.New("the sequence is of another engine")
	}
	return q, q.usable()
}

// checkRows checks rows and adds them to a pass.
func (e *Engine) checkRows(p *pass, rows []model.Row) error {
	e.steps++
	single := 0
	for i := range rows {
		r, err := e.checkRow(&rows[i])
		if err != nil {
			return fmt.Errorf("accel: row %d: %w", i, err)
		}
		if r.single() {
			single++
		}
		p.rows = append(p.rows, r)
	}
	if most := e.options.MaxSequences; single > most {
		return fmt.Errorf("accel: step of %d generated tokens; it can have up to %d", single, most)
	}
	return nil
}

func (e *Engine) checkRow(in *model.Row) (row, error) {
	s, err := e.own(in.Sequence)
	switch {
	case err != nil:
		return row{}, err
	case s.step == e.steps:
		return row{}, errors.New("the sequence has another row in this step")
	case in.Want < model.WantNothing || in.Want > model.WantHidden:
		return row{}, fmt.Errorf("Want is %d", in.Want)
	}
	s.step = e.steps
	r := row{
		sequence: s, tokens: in.Tokens, n: len(in.Tokens), prompt: in.Prompt, want: in.Want, hold: in.Hold,
		before: s.length, pages: len(s.table.Pages), state: noState, token: noToken, tokenAt: noOffset,
	}
	if r.computesLogits() {
		if err := r.chooseOnDevice(); err != nil {
			return row{}, err
		}
	}
	if in.Tokens == nil {
		if err := r.continues(); err != nil {
			return row{}, err
		}
	} else if err := model.CheckTokens(in.Tokens, e.model.Config.Vocab); err != nil {
		return row{}, err
	}
	r.chosen = s.chosen
	return r, model.CheckCapacity(s.length+r.n, s.capacity)
}

// continues prepares a row whose token is the one that the sequence's last row chose. It waits
// for that row if the device does not choose its token.
func (r *row) continues() error {
	s := r.sequence
	if c := s.chosen; c.pass != nil && (r.prompt || !c.pass.rows[c.row].device) {
		if err := s.engine.finish(c.pass); err != nil {
			return err
		}
	}
	switch c := s.chosen; {
	case c.pass == nil && c.token == noToken:
		return fmt.Errorf("the sequence's last row chose no token: %w", model.ErrEmptyPrompt)
	case r.prompt:
		r.tokens = []int{c.token}
	}
	r.n = 1
	return nil
}

// run queues the forward passes of a step. After an error, also if a tap or a timer panics,
// nothing is queued.
func (e *Engine) run(p *pass) (err error) {
	queued := false
	defer func() {
		if !queued {
			err = e.abort(p, err)
			e.interruptIf(e.inFlight...)
		}
	}()
	e.interruptIf(append(e.inFlight, p)...)
	p.allocate()
	for i := range p.rows { // also if the pass fails: it may have overwritten the logits
		p.rows[i].sequence.holding = nil
	}
	if err := e.queue(p); err != nil {
		return err
	}
	p.launch = e.inputs.launches
	if err := e.stream.Record(p.event); err != nil {
		return err
	}
	queued = true
	return nil
}

// queue queues the forward passes of a step: decode steps of rows that agree in their RoPE
// factors, then every other row.
func (e *Engine) queue(p *pass) error {
	if err := e.uploadStates(p); err != nil {
		return err
	}
	for _, longRope := range []bool{false, true} {
		batch := e.batch[:0]
		for i := range p.rows {
			if r := &p.rows[i]; r.single() && r.sequence.longRope == longRope {
				batch = append(batch, slotToken{row: r, sequence: r.sequence, position: r.before})
			}
		}
		e.batch = batch
		if err := e.queueSingle(p, batch); err != nil {
			return err
		}
	}
	for i := range p.rows {
		r, err := &p.rows[i], error(nil)
		switch {
		case r.single():
		case r.prompt && e.options.Prefill == PrefillF16:
			err = e.queuePrompt(p, r)
		default:
			err = e.queueTokens(p, r)
		}
		if err != nil {
			return err
		}
	}
	return e.chooseKept(p)
}

// queueSingle queues a decode step of one token of each of several sequences. If there is a tap,
// each token has a step of its own.
func (e *Engine) queueSingle(p *pass, batch []slotToken) error {
	if e.options.Tap != nil && len(batch) > 1 {
		for i := range batch {
			if err := e.queueSingle(p, batch[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(batch) == 0 {
		return nil
	}
	in, slots := e.inputs, plan.CeilPow2(len(batch))
	in.assign(batch, slots)
	logits := computesLogits(batch)
	if logits && in.overwrites(batch, slots) {
		if err := e.settle(p); err != nil {
			return err
		}
	}
	for i := range batch {
		if err := batch[i].locate(in); err != nil {
			return err
		}
	}
	return e.decode(p, batch, slots, logits)
}

func computesLogits(batch []slotToken) bool {
	for i := range batch {
		if batch[i].row.computesLogits() {
			return true
		}
	}
	return false
}

// locate says where the token of a row of one token is.
func (b *slotToken) locate(in *stepInputs) error {
	r, c := b.row, b.row.chosen
	if len(r.tokens) > 0 {
		b.token = r.tokens[0]
	} else if b.token = c.token; c.pass != nil {
		last := &c.pass.rows[c.row]
		if b.token, b.from = last.token, last.tokenAt; b.from != noOffset {
			b.token = copiedToken
		}
	}
	if c.onDevice && in.holds(b.sequence) && b.slot == b.sequence.slot && (r.tokens == nil || c.pass == nil && c.token == b.token) {
		b.token = deviceToken
	} else if b.token == noToken {
		return fmt.Errorf("the sequence's last row chose no token: %w", model.ErrEmptyPrompt)
	}
	return nil
}

// queueTokens queues the tokens of one row with the decode kernels, several tokens per pass. So
// they have the bits of single steps.
func (e *Engine) queueTokens(p *pass, r *row) error {
	in := e.inputs
	for from := 0; from < r.n; {
		n := min(r.n-from, e.layout.Slots)
		batch := e.batch[:0]
		for i := range n {
			b := slotToken{row: r, index: from + i, sequence: r.sequence, position: r.before + from + i, slot: i, token: r.tokens[from+i]}
			batch = append(batch, b)
		}
		e.batch = batch
		slots := plan.CeilPow2(n)
		logits := r.want == model.WantAll || r.computesLogits() && from+n == r.n
		if logits && in.overwrites(batch, slots) {
			if err := e.settle(p); err != nil {
				return err
			}
		}
		if err := e.decode(p, batch, slots, logits); err != nil {
			return err
		}
		in.release(slots)
		from += n
	}
	return nil
}

// decode queues a pass of the decode kernels over slots 0 to slots-1.
func (e *Engine) decode(p *pass, batch []slotToken, slots int, logits bool) error {
	longest, sampled := 0, false
	for i := range batch {
		longest = max(longest, batch[i].position+1)
		sampled = sampled || batch[i].state() != noState
	}
	list, err := e.launches(plan.Shape{Tokens: slots, LongRope: batch[0].sequence.longRope, Pages: e.layout.PagesFor(longest), Logits: logits, Sample: sampled})
	if err != nil {
		return err
	}
	if err := e.capture(list); err != nil {
		return err
	}
	if err := e.inputs.stage(batch, slots, sampled, !list.graph.Captured()); err != nil {
		return err
	}
	e.stats.Steps++
	e.stats.StepTokens += len(batch)
	e.stats.LargestBatch = max(e.stats.LargestBatch, len(batch))
	if list.graph.Captured() {
		e.stats.GraphLaunches++
		err = list.graph.Launch(e.stream)
	} else {
		err = e.launch(p, list, batch)
	}
	if err != nil {
		return err
	}
	if logits {
		e.inputs.launched(slots)
		for i := range batch { // before anything waits for the device and reads tokens
			if b := &batch[i]; b.last() && !b.row.keeps() {
				b.row.tokenAt = e.inputs.tokenOffset(b.slot, b.position+1)
			}
		}
		for i := range batch {
			if b := &batch[i]; b.last() && b.row.keeps() {
				if err := e.keep(b); err != nil {
					return err
				}
			}
		}
		if err := e.readLogits(p, batch); err != nil {
			return err
		}
	}
	return e.readHidden(p, batch, slots)
}

// queuePrompt queues a row with the prefill kernels, in chunks.
func (e *Engine) queuePrompt(p *pass, r *row) error {
	for from := 0; from < r.n; {
		n := min(r.n-from, e.options.Chunk)
		batch := e.batch[:0]
		for i := range n {
			batch = append(batch, slotToken{row: r, index: from + i, sequence: r.sequence, position: r.before + from + i, slot: i})
		}
		e.batch = batch
		if err := e.chunk(p, r, batch); err != nil {
			return err
		}
		from += n
		if r.want == model.WantAll || r.computesLogits() && from == r.n {
			if err := e.promptLogits(p, r, batch); err != nil {
				return err
			}
		}
		if err := e.readHidden(p, batch, n); err != nil {
			return err
		}
	}
	return nil
}

// chunk queues a prompt chunk of one sequence.
func (e *Engine) chunk(p *pass, r *row, batch []slotToken) error {
	first := batch[0].index
	input := e.layout.ChunkInput(r.sequence.table.Pages, r.tokens[first:][:len(batch)], batch[0].position)
	if err := e.inputs.send(driver.Address(e.layout.Buffers.Chunk), input); err != nil {
		return err
	}
	e.stats.Chunks++
	e.stats.ChunkTokens += len(batch)
	s := plan.Shape{Tokens: len(batch), Prefill: true, LongRope: r.sequence.longRope}
	if !e.recurs(s) && e.options.Tap == nil && e.options.Timer == nil {
		e.stats.EagerPasses++
		return e.launchSegments(p.ctx, s)
	}
	list, err := e.launches(s)
	if err != nil {
		return err
	}
	return e.launch(p, list, batch)
}

// promptTokens returns the offset of n prompt tokens. It waits for the device if all are used.
func (e *Engine) promptTokens(p *pass, n int) (offset int, err error) {
	at, ok := e.inputs.promptTokens(n)
	if !ok {
		if err := e.settle(p); err != nil {
			return 0, err
		}
		e.inputs.promptRows = 0
		at, _ = e.inputs.promptTokens(n)
	}
	return at, nil
}

// promptLogits queues the logits of a prompt chunk: of the last token, or of all with
// model.WantAll.
func (e *Engine) promptLogits(p *pass, r *row, batch []slotToken) error {
	if r.want != model.WantAll {
		batch = batch[len(batch)-1:]
	}
	rows := min(len(batch), plan.PromptLogitRows)
	at, err := e.promptTokens(p, rows)
	if err != nil {
		return err
	}
	for len(batch) > 0 {
		n := min(len(batch), rows)
		commands, err := e.layout.PromptLogits(batch[0].slot, n, ptx.Address(e.inputs.memory.Address())+ptx.Address(at), e.kernels)
		if err != nil {
			return err
		}
		if err := e.launch(p, newLaunchList(plan.Shape{Tokens: n}, commands, false), batch[:n]); err != nil {
			return err
		}
		for i := range n {
			batch[i].slot = i
		}
		if last := &batch[n-1]; !r.keeps() {
			r.tokenAt = at + 4*2*(n-1)
		} else if last.last() {
			if err := e.keep(last); err != nil {
				return err
			}
		}
		if err := e.readLogits(p, batch[:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// readLogits queues reading the wanted logits of the last pass.
func (e *Engine) readLogits(p *pass, batch []slotToken) error {
	vocab := e.model.Config.Vocab
	for i := range batch {
		b := &batch[i]
		if to := b.row.logitsOf(b.index, vocab); to != nil {
			if err := e.read(p, to, e.layout.Buffers.Logits+ptx.Address(4*b.slot*vocab)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readHidden queues the final norm of the tokens of the last pass, if any row wants it, and
// reading it.
func (e *Engine) readHidden(p *pass, batch []slotToken, tokens int) error {
	width, normed := e.model.Config.Hidden, ptx.Address(0)
	for i := range batch {
		b := &batch[i]
		if b.row.want != model.WantHidden {
			continue
		}
		if normed == 0 {
			commands, at, err := e.layout.Hidden(tokens, e.kernels)
			if err == nil {
				normed = at
				err = newLaunchList(plan.Shape{Tokens: tokens}, commands, false).graph.Launch(e.stream)
			}
			if err != nil {
				return err
			}
		}
		if err := e.read(p, b.row.hidden[b.index*width:][:width], normed+ptx.Address(4*b.slot*width)); err != nil {
			return err
		}
	}
	return nil
}
