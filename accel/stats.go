package accel

// Stats counts an engine's work since New, and tells what sequences hold at present.
type Stats struct {
	DecodeSteps  int // decode steps: forward passes of the decode kernels
	DecodeTokens int // tokens of all decode steps
	LargestBatch int // maximum number of tokens of a decode step
	Chunks       int // prompt chunks
	ChunkTokens  int // tokens of all prompt chunks
	AsyncSteps   int // calls of Step while another step was in flight

	GraphLaunches   int   // forward passes launched as a graph
	EagerPasses     int   // forward passes launched kernel by kernel
	Captures        int   // captured graphs
	CaptureFailures int   // forward pass shapes that run eagerly because capturing failed
	CaptureError    error // the last failure

	SwapOuts   int // sequences that were swapped out
	Sequences  int // sequences that are not closed
	PagesInUse int // pages of the KV cache that sequences hold
	Pages      int // pages of the KV cache
}

// Stats returns a copy of the counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.EagerPasses = s.DecodeSteps + s.Chunks - s.GraphLaunches
	s.Pages, s.PagesInUse = e.cache.Pool.Pages(), e.cache.Pool.InUse()
	return s
}
