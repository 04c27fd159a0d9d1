package accel

// Stats counts what an engine did, and how.
type Stats struct {
	Steps          int // passes with the kernels of decoding
	Rows           int // positions that they computed
	LargestStep    int // the most rows of one
	Chunks         int // passes with the kernels of prefill
	ChunkPositions int // positions that they computed

	LookaheadSteps  int // of the steps, those that were computed before they were asked for
	LookaheadWasted int // beyond the steps: computed ahead, and then not asked for

	GraphLaunches   int   // steps that were a graph
	EagerPasses     int   // passes that were launched kernel by kernel
	Captures        int   // graphs that were made
	CaptureFailures int   // passes of which no graph could be made; they run eagerly
	CaptureError    error // why not, the last time

	Spills     int // snapshots whose pages went to host memory, for want of pages
	PagesInUse int // of the KV cache, by sequences and snapshots
	Pages      int // of the KV cache
}

// Stats gives a copy of what has been counted.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Pages, s.PagesInUse = e.pool.pages, e.pool.inUse()
	return s
}

// Waiting is how many sequences wait for a step at this moment. It does not wait for the
// device, unlike everything else.
func (e *Engine) Waiting() int { return e.schedule.length() }
