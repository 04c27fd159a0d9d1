package model

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/model/gguf"
)

// keys reads the metadata of one architecture. It remembers the first error, so
// that reading a configuration is a list of assignments.
type keys struct {
	f    *gguf.File
	arch string // prefix of every key
	err  error
}

func (k *keys) name(key string) string { return k.arch + "." + key }

func (k *keys) fail(err error) {
	if k.err == nil {
		k.err = err
	}
}

// bad refuses a key's value; the sentinel is ErrBadKey.
func (k *keys) bad(key, format string, args ...any) {
	k.fail(fmt.Errorf("model: key %q: %w: %s", k.name(key), ErrBadKey, fmt.Sprintf(format, args...)))
}

func (k *keys) unsupported(key, format string, args ...any) {
	k.fail(fmt.Errorf("model: key %q: %w: %s", k.name(key), ErrUnsupported, fmt.Sprintf(format, args...)))
}

// wrongType passes on what gguf says of a key of the wrong type.
func (k *keys) wrongType(err error) {
	k.fail(fmt.Errorf("model: %w: %w", ErrBadKey, err))
}

func (k *keys) has(key string) bool {
	_, ok := k.f.Value(k.name(key))
	return ok
}

// need reads a whole number that must be there, in [lo, hi].
func (k *keys) need(key string, lo, hi int) int {
	if !k.has(key) {
		k.fail(fmt.Errorf("model: key %q: %w", k.name(key), ErrMissingKey))
		return lo
	}
	return k.count(key, lo, lo, hi)
}

// count reads a whole number in [lo, hi], or def when the key is absent. It
// returns a number in that range whatever the file holds.
func (k *keys) count(key string, def, lo, hi int) int {
	n, ok, err := k.f.Uint(k.name(key))
	switch {
	case err != nil:
		k.wrongType(err)
	case !ok:
		return def
	case n < uint64(lo) || n > uint64(hi):
		k.bad(key, "%d, want %d to %d", n, lo, hi)
	default:
		return int(n)
	}
	return lo
}

// perLayer reads a whole number that some files give once for each layer. The
// engines compute one shape for all layers, so the numbers must be equal.
func (k *keys) perLayer(key string, layers, def, lo, hi int) int {
	v, ok := k.f.Value(k.name(key))
	if !ok || v.Type() != gguf.TypeArray {
		return k.count(key, def, lo, hi)
	}
	each, err := v.Ints()
	switch {
	case err != nil:
		k.fail(fmt.Errorf("model: key %q: %w: %w", k.name(key), ErrBadKey, err))
		return lo
	case len(each) != layers:
		k.bad(key, "%d values for %d layers", len(each), layers)
		return lo
	}
	for i, n := range each {
		if n != each[0] {
			k.unsupported(key, "layer %d has %d and layer 0 has %d: layers of different shapes", i, n, each[0])
			return lo
		}
	}
	if each[0] < int64(lo) || each[0] > int64(hi) {
		k.bad(key, "%d, want %d to %d", each[0], lo, hi)
		return lo
	}
	return int(each[0])
}

// float reads a finite number, or def when the key is absent.
func (k *keys) float(key string, def float64) float64 {
	v, ok, err := k.f.Float(k.name(key))
	switch {
	case err != nil:
		k.wrongType(err)
	case !ok:
		return def
	case math.IsNaN(v) || math.IsInf(v, 0):
		k.bad(key, "%v is no finite number", v)
	default:
		return v
	}
	return def
}

// positive reads a finite number above 0.
func (k *keys) positive(key string, def float64) float64 {
	v := k.float(key, def)
	if v <= 0 {
		k.bad(key, "%v, want more than 0", v)
	}
	return v
}

// notNegative reads a finite number, at least 0.
func (k *keys) notNegative(key string, def float64) float64 {
	v := k.float(key, def)
	if v < 0 {
		k.bad(key, "%v, want at least 0", v)
	}
	return v
}

// text reads a string, or "" when the key is absent.
func (k *keys) text(key string) string {
	s, _, err := k.f.Str(k.name(key))
	if err != nil {
		k.wrongType(err)
	}
	return s
}
