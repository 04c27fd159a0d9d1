package accel

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/sizeclass"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// How a step runs:
//
//	Step                            checks rows, allocates pages, appends the rows to sequences
//	    queue                       cuts the step into forward passes
//	        queueDecode             rows of one generated token: one decode step for all
//	        queueChunks             prompts and rows of several tokens, in chunks
//	            decode, chunk       send the inputs that the device lacks, and launch
//	            readLogits, readHidden  queue copies of wanted results to the host
//	        chooseFromSaved         chooses tokens from saved logits
//	Pass.Wait                       waits for the device and takes the results (pass.go)
//
// inputs.go knows which inputs the device has, samplingstate.go which parameters of sampling. failure.go says
// what follows an error.

// row is a checked row of a step, or a choice of Engine.Choose, which has no tokens.
type row struct {
	sequence    *sequence
	tokens      []int // nil: the token that follows the sequence, unless it is a choice
	n           int   // number of tokens
	prompt      bool
	want        model.Want
	hold        bool
	mask        []uint32  // of a choice; nil: all tokens are permitted
	replacement []float32 // of a choice: logits instead of those that were saved; nil: none

	onDevice      bool // the device chooses the next token, in this pass
	samplingIndex int  // by which the device chooses; with hold, Engine.Choose uses it; noSamplingState: none

	// What a failure restores: the sequence before the pass.
	start      int       // positions
	startPages int       // pages of its table
	startNext  nextToken // the token after it

	// The results.
	choice     sampling.Choice // the next token; sampling.NoToken: it is not known yet, or the host chooses it
	tokenAt    int             // offset in stepInputs.memory of a token that choice does not have yet; noOffset: none
	logits     []float32       // wanted logits
	lastLogits []float32       // of the last position, if the host needs them
	hidden     []float32
}

// noOffset means that the device has no token for the row that the host has not read.
const noOffset = -1

// computesLogits reports whether a row computes the logits of its last position, because a token
// follows it.
func (r *row) computesLogits() bool {
	return r.want != model.WantNothing && r.want != model.WantHidden
}

// decodes reports whether a row is one generated token, so that it shares a decode step with others.
func (r *row) decodes() bool { return !r.prompt && r.n == 1 }

// logitsOf returns where the logits of a token of the row are wanted; nil if they are not.
func (r *row) logitsOf(i, vocab int) []float32 {
	switch {
	case r.want == model.WantAll:
		return r.logits[i*vocab:][:vocab]
	case i == r.n-1:
		return r.lastLogits
	}
	return nil
}

// Step implements model.Engine. Rows of one generated token share a decode step; prompts, and rows of several tokens, share
// prompt chunks. A token has the same bits either way.
//
// If the model has recurrent states, a step has at most one row fewer than the device has places for states. These are more than
// batch slots.
//
// Step waits until at most one other step, and fewer than four calls of Step and Choose, are in flight. It also waits
//   - if a row continues with a token that the host chooses,
//   - if penalties or a lost recurrent state need tokens that are not chosen yet,
//   - if it reads logits or hidden states while those of an earlier step have not arrived,
//   - if a buffer for results is full,
//   - for each forward pass, if Options.Tap or Options.Timer is set.
//
// If ctx ends while Step queues prompts, Step stops between forward passes, and between the layers of
// a prompt chunk unless its plan is stored. On the emulator a kernel stops once the contexts of all
// passes in flight have ended. A GPU finishes what is queued.
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
	switch {
	case q.closed:
		return nil, model.ErrClosed
	case q.swapped:
		return nil, errors.New("the sequence is swapped out")
	}
	return q, nil
}

// checkRows checks rows and adds them to a pass.
func (e *Engine) checkRows(p *pass, rows []model.Row) error {
	e.calls++
	if err := e.checkRecurrentStates(len(rows)); err != nil {
		return err
	}
	single := 0
	for i := range rows {
		r, err := e.checkRow(&rows[i])
		if err != nil {
			return fmt.Errorf("accel: row %d: %w", i, err)
		}
		if r.decodes() {
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
	case s.lastCall == e.calls:
		return row{}, errors.New("the sequence has another row in this step")
	case in.Want < model.WantNothing || in.Want > model.WantHidden:
		return row{}, fmt.Errorf("Want is %d", in.Want)
	}
	s.lastCall = e.calls
	if !s.recurrentStateReady() { // its tokens are computed again
		if err := s.awaitTokens(s.length); err != nil {
			return row{}, err
		}
	}
	r := row{
		sequence: s, tokens: in.Tokens, n: len(in.Tokens), prompt: in.Prompt, want: in.Want, hold: in.Hold,
		start: s.length, startPages: len(s.table.Pages), samplingIndex: noSamplingState, choice: sampling.Choice{Token: sampling.NoToken}, tokenAt: noOffset,
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
	r.startNext = s.next
	return r, model.CheckCapacity(s.length+r.n, s.capacity)
}

// continues prepares a row without tokens: it continues with the token that the sequence's last row
// chose. If the host chooses that token, or the row is a prompt, continues waits for it.
func (r *row) continues() error {
	s := r.sequence
	if c := s.next; c.pass != nil && (r.prompt || !c.pass.rows[c.row].onDevice) {
		if err := s.engine.finish(c.pass); err != nil {
			return err
		}
	}
	switch c := s.next; {
	case c.pass == nil && c.token == sampling.NoToken:
		return fmt.Errorf("the sequence's last row chose no token: %w", model.ErrEmptyPrompt)
	case r.prompt:
		r.tokens = []int{c.token}
	}
	r.n = 1
	return nil
}

// run queues a pass. After an error, or if a tap or a timer panics, nothing of it is queued.
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
	for i := range p.rows { // drop held choices even if the pass fails: it may overwrite their logits
		p.rows[i].sequence.heldBy = nil
	}
	if err := e.queue(p); err != nil {
		return err
	}
	p.lastStep = e.inputs.lastStep
	if err := e.stream.Record(p.event); err != nil {
		return err
	}
	queued = true
	return nil
}

// queue queues the forward passes of p: for each set of RoPE factors a decode step and prompt chunks.
// Behind them it queues the choices from saved logits. A pass of Engine.Choose has
// nothing else.
func (e *Engine) queue(p *pass) error {
	if err := e.restoreRecurrentStates(p); err != nil {
		return err
	}
	if err := e.uploadSamplingStates(p); err != nil {
		return err
	}
	for _, longRope := range []bool{false, true} {
		batch := e.batch[:0]
		for i := range p.rows {
			if r := &p.rows[i]; r.decodes() && r.sequence.longRope == longRope {
				batch = append(batch, batchToken{row: r, sequence: r.sequence, position: r.start})
			}
		}
		e.batch = batch
		if err := e.queueDecode(p, batch); err != nil {
			return err
		}
		if err := e.queueChunks(p, longRope); err != nil {
			return err
		}
	}
	return e.chooseFromSaved(p)
}

// queueDecode queues a decode step: one token of each of several sequences. If there is a tap, each
// token has a decode step of its own.
func (e *Engine) queueDecode(p *pass, batch []batchToken) error {
	if e.options.Tap != nil && len(batch) > 1 {
		for i := range batch {
			if err := e.queueDecode(p, batch[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(batch) == 0 {
		return nil
	}
	in, slots := e.inputs, sizeclass.Of(len(batch))
	in.assignSlots(batch, slots)
	logits := computesLogits(batch)
	if logits && in.overwrites(batch, slots) {
		if err := e.readAll(p); err != nil {
			return err
		}
	}
	for i := range batch {
		if err := batch[i].findToken(in); err != nil {
			return err
		}
	}
	return e.decode(p, batch, plan.Shape{Tokens: slots, Logits: logits})
}

// computesLogits reports whether any row of a decode step computes logits.
func computesLogits(batch []batchToken) bool {
	for i := range batch {
		if batch[i].row.computesLogits() {
			return true
		}
	}
	return false
}

// findToken sets where the decode step finds the token of a row: in the slot, elsewhere on the
// device, or on the host.
func (b *batchToken) findToken(in *stepInputs) error {
	r, c := b.row, b.row.startNext
	if len(r.tokens) > 0 {
		b.token = r.tokens[0]
	} else if b.token = c.token; c.pass != nil {
		last := &c.pass.rows[c.row]
		if b.token, b.from = last.choice.Token, last.tokenAt; b.from != noOffset {
			b.token = copiedToken
		}
	}
	// The last decode step left the token in the slot, unless the caller gives another one.
	if c.inSlot && in.hasInputs(b.sequence) && b.slot == b.sequence.slot && (r.tokens == nil || c.pass == nil && c.token == b.token) {
		b.token = deviceToken
	} else if b.token == sampling.NoToken {
		return fmt.Errorf("the sequence's last row chose no token: %w", model.ErrEmptyPrompt)
	}
	return nil
}

// decode queues a forward pass of the decode kernels over slots 0 to s.Tokens-1. It sets the fields of s that follow from
// the tokens.
func (e *Engine) decode(p *pass, batch []batchToken, s plan.Shape) error {
	longest, slots := 0, s.Tokens
	for i := range batch {
		longest = max(longest, batch[i].position+1)
		s.Sample = s.Sample || batch[i].samplingIndex() != noSamplingState
	}
	s.LongRope, s.Pages = batch[0].sequence.longRope, e.layout.PagesFor(longest)
	list, err := e.launches(p.ctx, s)
	if err != nil {
		return err
	}
	if err := e.capture(list); err != nil {
		return err
	}
	if err := e.inputs.stage(batch, slots, s.Sample, !list.graph.Captured()); err != nil {
		return err
	}
	e.stats.DecodeSteps++
	e.stats.DecodeTokens += len(batch)
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
	if err := e.advanceRecurrentStates(p, batch); err != nil {
		return err
	}
	if s.Logits {
		e.inputs.launched(slots)
		for i := range batch { // before anything waits for the device and reads tokens
			if b := &batch[i]; b.isLast() && !b.row.choosesFromSaved() {
				b.row.tokenAt = e.inputs.tokenOffset(b.slot, b.position+1)
			}
		}
		for i := range batch {
			if b := &batch[i]; b.isLast() && b.row.choosesFromSaved() {
				if err := e.saveLogits(b); err != nil {
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

// queueChunks queues the rows that do not decode, with or without the RoPE factors for long contexts, in chunks. A chunk
// takes the tokens of one row after another, of at most as many rows as there are batch slots. If
// there is a tap, each row has chunks of its own.
func (e *Engine) queueChunks(p *pass, longRope bool) error {
	batch, sequences := e.batch[:0], 0
	queue := func() error {
		full := batch
		e.batch, batch, sequences = full, full[:0], 0
		return e.queueChunk(p, full)
	}
	for i := range p.rows {
		r := &p.rows[i]
		if r.decodes() || r.sequence.longRope != longRope {
			continue
		}
		if sequences == e.layout.Slots || e.options.Tap != nil {
			if err := queue(); err != nil {
				return err
			}
		}
		sequences++
		for k := range r.n {
			if len(batch) == e.options.Chunk || k > 0 && e.startsChunk(r.start+k) {
				if err := queue(); err != nil {
					return err
				}
				sequences = 1
			}
			batch = append(batch, batchToken{row: r, index: k, sequence: r.sequence, position: r.start + k, slot: len(batch)})
		}
	}
	return queue()
}

// queueChunk queues a prompt chunk, the hidden states that its rows want, and the logits of each row
// that ends in it.
func (e *Engine) queueChunk(p *pass, batch []batchToken) error {
	if len(batch) == 0 {
		return nil
	}
	if err := e.chunk(p, batch); err != nil {
		return err
	}
	if err := e.advanceRecurrentStates(p, batch); err != nil {
		return err
	}
	if err := e.readHidden(p, batch, len(batch)); err != nil {
		return err
	}
	for part := range byRow(batch) {
		if r := part[0].row; r.want == model.WantAll || r.computesLogits() && part[len(part)-1].isLast() {
			if err := e.promptLogits(p, r, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// byRow returns the tokens of each row of a prompt chunk.
func byRow(batch []batchToken) iter.Seq[[]batchToken] {
	return func(yield func([]batchToken) bool) {
		for len(batch) > 0 {
			n := min(batch[0].row.n-batch[0].index, len(batch))
			if !yield(batch[:n]) {
				return
			}
			batch = batch[n:]
		}
	}
}

// chunk sends the inputs of a prompt chunk and launches it.
func (e *Engine) chunk(p *pass, batch []batchToken) error {
	s := plan.Shape{Tokens: len(batch), LongRope: batch[0].sequence.longRope}
	e.parts = e.parts[:0]
	for part := range byRow(batch) {
		first := part[0]
		if err := e.inputs.send(driver.Address(e.layout.ChunkTableAt(s.Sequences)), first.sequence.table.Pages); err != nil {
			return err
		}
		e.parts = append(e.parts, plan.ChunkPart{First: first.position, Tokens: first.row.tokens[first.index:][:len(part)], State: e.recurrentPlace(first.sequence)})
		s.Sequences++
		s.Longest = max(s.Longest, len(part))
	}
	in := e.inputs
	in.scratch = e.layout.ChunkList(in.scratch[:0], e.parts)
	if err := in.send(driver.Address(e.layout.ChunkListAt()), in.scratch); err != nil {
		return err
	}
	e.stats.Chunks++
	e.stats.ChunkTokens += len(batch)
	if !e.storesPlan(s) && e.options.Tap == nil && e.options.Timer == nil {
		return e.launchSegments(p.ctx, s)
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	list, err := e.launches(p.ctx, s)
	if err != nil {
		return err
	}
	return e.launch(p, list, batch)
}

// reserveTokens returns the offset in pinned memory for n tokens that prompts choose. If there is too
// little room, it waits for the device and reads all tokens first.
func (e *Engine) reserveTokens(p *pass, n int) (offset int, err error) {
	at, ok := e.inputs.reserveTokens(n)
	if !ok {
		if err := e.readAll(p); err != nil {
			return 0, err
		}
		e.inputs.promptRows = 0
		at, _ = e.inputs.reserveTokens(n)
	}
	return at, nil
}

// promptLogits queues the logits of a row's tokens in a prompt chunk: of the last token, or of all
// with model.WantAll. It changes their slots to rows of Buffers.Logits.
func (e *Engine) promptLogits(p *pass, r *row, batch []batchToken) error {
	if r.want != model.WantAll {
		batch = batch[len(batch)-1:]
	}
	rows := min(len(batch), plan.PromptLogitRows)
	at, err := e.reserveTokens(p, rows)
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
		if last := &batch[n-1]; !r.choosesFromSaved() {
			r.tokenAt = at + 4*2*(n-1)
		} else if last.isLast() {
			if err := e.saveLogits(last); err != nil {
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

// readLogits queues reading the wanted logits of the last forward pass.
func (e *Engine) readLogits(p *pass, batch []batchToken) error {
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

// readHidden queues the final norm of the tokens of the last forward pass, and reading it, if a row
// wants it.
func (e *Engine) readHidden(p *pass, batch []batchToken, tokens int) error {
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
