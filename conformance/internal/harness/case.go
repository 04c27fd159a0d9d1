package harness

// kernelT is what a case needs of a *testing.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // must not return
}

// KernelCase is one case of the kernel suite: a kernel of ptxgen on inputs of one
// shape and distribution, held to a reference in float64. A case that compares
// nothing is a failure.
type Case struct {
	Operation string // what it computes: "gemv", "attention decode"
	Format    string // what of: a quant.Format's name, usually
	Name      string // unique within the operation
	Reason    string // why it is asked for, or which bug it finds
	Long      bool   // too large for the emulator in a default run
	Run       func(r *Fixture)
}

// ID names the case in manifests and on command lines.
func (c Case) ID() string { return c.Operation + "/" + c.Name }
