package model

import (
	"fmt"
	"strings"

	"github.com/lockstep-go/lockstep/quant"
)

// KVFormat is the number format of the keys and values in an engine's cache. The zero
// value is the engine's own choice: f16 in package accel, f32 in package ref.
type KVFormat int

// The formats that a cache can have: in package accel KVF16 and KVBF16, in package ref all.
const (
	KVF16 KVFormat = iota + 1
	KVBF16
	KVF32
)

var kvFormats = [...]quant.Format{KVF16: quant.F16, KVBF16: quant.BF16, KVF32: quant.F32}

// Valid reports whether f is the zero value or one of the formats.
func (f KVFormat) Valid() bool { return f >= 0 && int(f) < len(kvFormats) }

// Format returns f as a format of package quant, or def if f is the zero value. It
// panics if f is not valid.
func (f KVFormat) Format(def quant.Format) quant.Format {
	if f == 0 {
		return def
	}
	return kvFormats[f]
}

// String returns the format's name: f16, bf16, f32, or default for the zero value.
func (f KVFormat) String() string {
	switch {
	case f == 0:
		return "default"
	case !f.Valid():
		return fmt.Sprintf("KVFormat(%d)", int(f))
	}
	return strings.ToLower(kvFormats[f].String())
}

// UnmarshalText parses f16, bf16 or f32. It implements encoding.TextUnmarshaler, so that
// flags can hold a KVFormat.
func (f *KVFormat) UnmarshalText(text []byte) error {
	for v := KVF16; v.Valid(); v++ {
		if v.String() == string(text) {
			*f = v
			return nil
		}
	}
	return fmt.Errorf("%q, want f16, bf16 or f32", text)
}
