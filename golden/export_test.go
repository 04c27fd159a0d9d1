package golden

// Whole is the store with its cases as all that its directory is to hold.
func (s Store) Whole() Store {
	s.whole = true
	return s
}
