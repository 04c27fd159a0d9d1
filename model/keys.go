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
	k.fail(fmt.Errorf("key %q: %w: %s", k.name(key), ErrBadKey, fmt.Sprintf(format, args...)))
}

func (k *keys) unsupported(key, format string, args ...any) {
	k.fail(fmt.Errorf("key %q: %w: %s", k.name(key), ErrUnsupported, fmt.Sprintf(format, args...)))
}

// read reads a key, whose full name it takes. Without the key, and after an error,
// which is remembered, ok is false.
func read[T any](k *keys, name string, get func(gguf.Value) (T, error)) (x T, ok bool) {
	v, ok := k.f.Value(name)
	if !ok {
		return x, false
	}
	x, err := get(v)
	if err != nil {
		k.fail(fmt.Errorf("key %q: %w: %w", name, ErrBadKey, err))
	}
	return x, err == nil
}

func (k *keys) has(key string) bool {
	_, ok := k.f.Value(k.name(key))
	return ok
}

// need reads a whole number that must be there, in [lo, hi].
func (k *keys) need(key string, lo, hi int) int {
	if !k.has(key) {
		k.fail(fmt.Errorf("key %q: %w", k.name(key), ErrMissingKey))
		return lo
	}
	return k.count(key, lo, lo, hi)
}

// count reads a whole number in [lo, hi], or def when the key is absent. It
// returns a number in that range whatever the file holds.
func (k *keys) count(key string, def, lo, hi int) int {
	n, ok := read(k, k.name(key), gguf.Value.Uint)
	switch {
	case !ok && k.has(key):
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
	if !ok || !v.IsArray() {
		return k.count(key, def, lo, hi)
	}
	if v.Len() != layers { // before memory is taken for them
		k.bad(key, "%d values for %d layers", v.Len(), layers)
		return lo
	}
	each, ok := read(k, k.name(key), gguf.Value.Ints)
	if !ok {
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
	v, ok := read(k, k.name(key), gguf.Value.Float)
	switch {
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
	s, _ := read(k, k.name(key), gguf.Value.Str)
	return s
}
