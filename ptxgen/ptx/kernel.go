package ptx

// Kernel is a verified kernel.
type Kernel struct {
	Name       string
	Params     []Param
	MaxThreads int    // per CTA
	MinCTAs    int    // per SM, see the function MinCTAs; 0 if unset
	Registers  int    // per thread, see the function MaxRegisters; 0 if unset
	MinTarget  Target // minimum that its instructions need
	Static     int    // bytes of static shared memory, padded to 16 if dynamic shared memory follows
	Dynamic    bool   // uses dynamic shared memory
	padding    int    // bytes of dynamic shared memory that aligning it takes
	source     *Builder
}

// KernelOption is an option of Finish.
type KernelOption func(*Kernel)

// MaxThreads sets .maxntid: the maximum number of threads per CTA, 1 to 1024. It is required.
func MaxThreads(n int) KernelOption { return func(k *Kernel) { k.MaxThreads = n } }

// MinCTAs sets .minnctapersm: the assembler limits registers so that n CTAs fit one SM.
func MinCTAs(n int) KernelOption { return func(k *Kernel) { k.MinCTAs = n } }

// MaxRegisters sets .maxnreg: the assembler gives each thread at most n registers, 24 to 255.
func MaxRegisters(n int) KernelOption { return func(k *Kernel) { k.Registers = n } }

// Finish verifies the kernel and returns it. The error is the first failure, with the source
// line that caused it.
func (b *Builder) Finish(options ...KernelOption) (*Kernel, error) {
	k := &Kernel{Name: b.name, Params: b.params, Dynamic: b.dynamic != 0, source: b}
	for _, o := range options {
		o(k)
	}
	if k.MaxThreads < 1 || k.MaxThreads > 1024 {
		b.fail("a CTA of %d threads", k.MaxThreads)
	}
	if k.Registers != 0 && (k.Registers < minRegisters || k.Registers > 255) {
		b.fail("MaxRegisters is %d, want %d to 255", k.Registers, minRegisters)
	}
	if b.setsMax && k.Registers == 0 && k.MinCTAs == 0 {
		b.fail("setmaxnreg needs MaxRegisters or MinCTAs, which tell the number of registers at entry")
	}
	for _, s := range b.shared {
		k.Static = alignUp(k.Static, s.align) + s.bytes
	}
	if k.Dynamic {
		k.Static = alignUp(k.Static, dynamicAlign)
	}
	if b.dynamic > dynamicAlign {
		k.padding = b.dynamic
	}
	if k.Static > 48<<10 {
		b.fail("%d bytes of static shared memory, at most 48 KiB", k.Static)
	}
	if b.err != nil {
		return nil, b.err
	}
	b.emit("ret", 0)
	coalesce(b)
	if err := verify(b, k); err != nil {
		return nil, err
	}
	return k, nil
}

// MaxDynamic returns how many bytes of dynamic shared memory a launch may ask for if a CTA may use
// perCTA bytes of shared memory.
func (k *Kernel) MaxDynamic(perCTA int) int { return perCTA - k.Static - k.padding }

func alignUp(n, align int) int { return (n + align - 1) / align * align }
