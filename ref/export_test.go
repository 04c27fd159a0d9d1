package ref

// Chunk returns the number of positions that are computed together.
func (e *Engine) Chunk() int { return e.chunk }

// SetChunk sets the number of positions that are computed together.
func (e *Engine) SetChunk(n int) { e.chunk = n }
