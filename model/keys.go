package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/model/gguf"
)

// keys reads metadata keys with a common prefix. It keeps the first error, so that
// reading a configuration is a list of assignments.
type keys struct {
	f      *gguf.File
	prefix string
	seen   map[string]bool // full names of the keys that were looked up
	err    error
}

// name returns the full name of a key. If the file has only its alias, it returns the alias.
func (k *keys) name(key string) string {
	name := k.prefix + "." + key
	if alias, ok := keyAliases[key]; ok && !k.inFile(name) && k.inFile(k.prefix+"."+alias) {
		return k.prefix + "." + alias
	}
	return name
}

func (k *keys) inFile(name string) bool {
	_, ok := k.f.Value(name)
	return ok
}

func (k *keys) fail(err error) {
	if k.err == nil {
		k.err = err
	}
}

func (k *keys) missing(key string) {
	k.fail(fmt.Errorf("key %q: %w", k.name(key), errMissingKey))
}

func (k *keys) bad(key, format string, args ...any) {
	k.fail(fmt.Errorf("key %q: %w: %s", k.name(key), errBadKey, fmt.Sprintf(format, args...)))
}

func (k *keys) unsupported(key, format string, args ...any) {
	k.fail(fmt.Errorf("key %q: %w: %s", k.name(key), ErrUnsupported, fmt.Sprintf(format, args...)))
}

// value looks up a key, given by its full name.
func (k *keys) value(name string) (gguf.Value, bool) {
	if k.seen == nil {
		k.seen = map[string]bool{}
	}
	k.seen[name] = true
	return k.f.Value(name)
}

// read converts the value of a key, given by its full name. It returns false if the key
// is absent or get fails.
func read[T any](k *keys, name string, get func(gguf.Value) (T, error)) (x T, ok bool) {
	v, ok := k.value(name)
	if !ok {
		return x, false
	}
	x, err := get(v)
	if err != nil {
		k.fail(fmt.Errorf("key %q: %w: %w", name, errBadKey, err))
	}
	return x, err == nil
}

func (k *keys) has(key string) bool {
	_, ok := k.value(k.name(key))
	return ok
}

// need reads a required integer in [lo, hi].
func (k *keys) need(key string, lo, hi int) int {
	if !k.has(key) {
		k.missing(key)
		return lo
	}
	return k.count(key, lo, lo, hi)
}

// count reads an integer in [lo, hi], or def if the key is absent. After an error it
// returns lo, so that callers may divide by it.
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

// eachLayer is count for keys that may hold one integer per layer. It returns one per layer.
func (k *keys) eachLayer(key string, layers, def, lo, hi int) []int {
	v, ok := k.value(k.name(key))
	if !ok || !v.IsArray() {
		return slices.Repeat([]int{k.count(key, def, lo, hi)}, layers)
	}
	list := slices.Repeat([]int{lo}, layers)
	if v.Len() != layers { // checked before memory is allocated for them
		k.bad(key, "%d values for %d layers", v.Len(), layers)
		return list
	}
	each, _ := read(k, k.name(key), gguf.Value.Ints)
	for i, n := range each {
		if n < int64(lo) || n > int64(hi) {
			k.bad(key, "layer %d has %d, want %d to %d", i, n, lo, hi)
			return list
		}
		list[i] = int(n)
	}
	return list
}

// perLayer is eachLayer for integers that must be equal, because Config has one for all layers.
func (k *keys) perLayer(key string, layers, def, lo, hi int) int {
	list := k.eachLayer(key, layers, def, lo, hi)
	for i, n := range list {
		if n != list[0] {
			k.unsupported(key, "layer %d has %d and layer 0 has %d: layers of different shapes", i, n, list[0])
			return lo
		}
	}
	return list[0]
}

// float reads a finite number, or def if the key is absent.
func (k *keys) float(key string, def float64) float64 {
	v, ok := read(k, k.name(key), gguf.Value.Float)
	switch {
	case !ok:
		return def
	case math.IsNaN(v) || math.IsInf(v, 0):
		k.bad(key, "%v is not finite", v)
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

// notNegative reads a finite number of at least 0.
func (k *keys) notNegative(key string, def float64) float64 {
	v := k.float(key, def)
	if v < 0 {
		k.bad(key, "%v, want at least 0", v)
	}
	return v
}

// scale reads a factor above 0. An absent one is 1, as is 0, which some writers write for a value that is not set.
func (k *keys) scale(key string) float32 { return float32(cmp.Or(k.scaleOrZero(key, 1), 1)) }

// scaleOrZero reads 0 or a number from 2^-64 to 2^64. Kernels multiply or divide by it in float32, which larger ones could overflow.
func (k *keys) scaleOrZero(key string, def float64) float64 {
	const least, most = 0x1p-64, 0x1p64
	v := k.notNegative(key, def)
	if v != 0 && (v < least || v > most) {
		k.bad(key, "%v, want 0 or %.2g to %.2g", v, least, most)
	}
	return v
}

// bools converts an array of bool.
func bools(v gguf.Value) ([]bool, error) {
	all, ok := v.Any().([]bool)
	if !ok {
		return nil, fmt.Errorf("%s, want an array of bool", v.TypeName())
	}
	return all, nil
}

// text reads a string, or "" if the key is absent.
func (k *keys) text(key string) string {
	s, _ := read(k, k.name(key), gguf.Value.Str)
	return s
}

// flag reads a bool, or def if the key is absent.
func (k *keys) flag(key string, def bool) bool {
	if b, ok := read(k, k.name(key), gguf.Value.Bool); ok {
		return b
	}
	return def
}
