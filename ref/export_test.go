package ref

// Chunk returns the number of positions that are computed together.
func (e *Engine) Chunk() int { return e.chunk }

// SetChunk sets the number of positions that are computed together.
func (e *Engine) SetChunk(n int) { e.chunk = n }

// SetCacheBytes sets the bytes that the keys and values of one position count.
func (e *Engine) SetCacheBytes(n int64) { e.need.cache = n }
