package kernelbench

// Cases lists what is measured, in the order of the table.
func Cases() []Case {
	var all []Case
	for _, f := range []func() []Case{} {
		all = append(all, f()...)
	}
	return all
}
