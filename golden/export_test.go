package golden

// ErrDiffers is wrapped by the errors of Verify about files that differ.
var ErrDiffers = errDiffers

// Whole returns the store with Cases as all cases of its directory.
func (s Store) Whole() Store {
	s.whole = true
	return s
}
