package accel

// Stats counts an engine's work since New.
type Stats struct {
	Steps        int // decode steps
	StepTokens   int // tokens of all decode steps
	LargestBatch int // maximum number of tokens of a decode step
	Chunks       int // prompt chunks
	ChunkTokens  int // tokens of all prompt chunks

	AsyncSteps     int // steps that ran before they were asked for; Steps includes them
	AsyncDiscarded int // steps that ran ahead and were not used; Steps excludes them

	GraphLaunches   int   // forward passes launched as a graph
	EagerPasses     int   // forward passes launched kernel by kernel
	Captures        int   // captured graphs
	CaptureFailures int   // batch shapes that run eagerly because capturing failed
	CaptureError    error // the last failure

	SwapOuts   int // snapshots whose pages moved to host memory
	Snapshots  int // snapshots that are not closed
	PagesInUse int // pages of the KV cache that sessions and snapshots hold
	Pages      int // pages of the KV cache
}

// Stats returns a copy of the counters. It locks the engine, so it can take as long as a
// forward pass.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.SwapOuts, s.Snapshots = e.cache.SwapOuts(), e.cache.OpenSnapshots()
	s.Pages, s.PagesInUse = e.cache.Pool.Pages(), e.cache.Pool.InUse()
	return s
}

// Waiting returns the number of sequences that wait for a decode step. It never waits for
// the device.
func (e *Engine) Waiting() int { return e.schedule.length() }
