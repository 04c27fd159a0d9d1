package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// prefill computes the prompt, as much of it as the prefix cache does not have,
// and gives the output of its last position.
func (r *run) prefill(ctx context.Context, s Session) (Output, error) {
	cache := r.g.prefix
	long := r.g.eng.Model().Config.LongRope(s.Cap())
	hit := cache.lookup(r.prompt, long, r.p.want())
	if hit.entry != nil {
		err := s.Restore(hit.entry.snapshot, hit.positions)
		if err = errors.Join(err, cache.release(hit.entry)); err != nil {
			return Output{}, fmt.Errorf("prefix cache: %w", err)
		}
	}
	r.stats.ReusedTokens = hit.positions
	prepared := time.Now()
	r.stats.Prepare = prepared.Sub(r.start)
	if hit.out != nil {
		return *hit.out, nil
	}
	out, err := r.forward(ctx, s, r.prompt[hit.positions:])
	computed := time.Now()
	r.stats.Prefill = computed.Sub(prepared)
	if err != nil || cache == nil {
		return out, err
	}
	snapshot, err := s.Snapshot(len(r.prompt))
	if err != nil {
		return Output{}, fmt.Errorf("prefix cache: %w", err)
	}
	// The engine's logits live until its next call only.
	out.Logits = slices.Clone(out.Logits)
	if err := cache.store(newPrefixEntry(r.prompt, long, snapshot, out)); err != nil {
		return Output{}, fmt.Errorf("prefix cache: %w", err)
	}
	r.stats.Store = time.Since(computed)
	return out, nil
}
