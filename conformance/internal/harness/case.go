package harness

// T is the part of *testing.T that a case uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // must not return
}

// Case runs a kernel on inputs of one shape and distribution and compares it with a float64
// reference. A case that compares nothing is a failure.
type Case struct {
	Operation string // what is computed: "product_stream", "attention decode"
	Format    string // of the weights or of the result: usually the name of a quant.Format
	Name      string // unique within the operation
	Reason    string // what the case covers
	Long      bool   // too slow for a default run on the emulator
	Run       func(r *Fixture)
}

// ID returns the name for manifests and command lines.
func (c Case) ID() string { return c.Operation + "/" + c.Name }
