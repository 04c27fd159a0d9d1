package gguf

// The lookups below read the value of a key as one Go type. The middle result is
// false, without an error, when there is no such key; the error is the Value
// accessor's, with the file and the key before it.

// Uint looks up an integer that is not negative.
func (f *File) Uint(key string) (uint64, bool, error) { return lookup(f, key, Value.Uint) }

// Int looks up an integer.
func (f *File) Int(key string) (int64, bool, error) { return lookup(f, key, Value.Int) }

// Float looks up a float32 or a float64.
func (f *File) Float(key string) (float64, bool, error) { return lookup(f, key, Value.Float) }

// Bool looks up a bool.
func (f *File) Bool(key string) (bool, bool, error) { return lookup(f, key, Value.Bool) }

// Str looks up a string.
func (f *File) Str(key string) (string, bool, error) { return lookup(f, key, Value.Str) }

// Strings looks up an array of strings.
func (f *File) Strings(key string) ([]string, bool, error) { return lookup(f, key, Value.Strings) }

// Ints looks up an array of integers.
func (f *File) Ints(key string) ([]int64, bool, error) { return lookup(f, key, Value.Ints) }

// Floats looks up an array of floats.
func (f *File) Floats(key string) ([]float64, bool, error) { return lookup(f, key, Value.Floats) }

// Bools looks up an array of bools.
func (f *File) Bools(key string) ([]bool, bool, error) { return lookup(f, key, Value.Bools) }

func lookup[T any](f *File, key string, get func(Value) (T, error)) (T, bool, error) {
	var none T
	v, ok := f.Value(key)
	if !ok {
		return none, false, nil
	}
	x, err := get(v)
	if err != nil {
		return none, false, inFile(f.path, inKey(key, err))
	}
	return x, true, nil
}
