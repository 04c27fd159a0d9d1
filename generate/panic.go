package generate

import "fmt"

// panicError is a panic of a callback or of the engine. It panics again where the request is read.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func isPanic(err error) bool {
	_, ok := err.(*panicError)
	return ok
}

// guard calls f and returns its panic as an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v}
		}
	}()
	return f()
}
