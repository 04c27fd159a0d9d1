package accel

// Stats counts an engine's work since New.
type Stats struct {
	Steps        int // decode steps
	StepTokens   int // tokens that they computed
	LargestBatch int // most tokens of one step
	Chunks       int // prompt chunks
	ChunkTokens  int // tokens that they computed

	AsyncSteps     int // steps that ran before they were asked for; Steps includes them
	AsyncDiscarded int // steps that ran ahead and were not used; Steps excludes them

	GraphLaunches   int   // forward passes launched as a graph
	EagerPasses     int   // forward passes launched kernel by kernel
	Captures        int   // captured graphs
	CaptureFailures int   // batch shapes that run eagerly because capturing failed
	CaptureError    error // the last failure

	SwapOuts   int // snapshots whose pages moved to host memory
	PagesInUse int // pages of the KV cache held by sessions and snapshots
	Pages      int // pages of the KV cache
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
