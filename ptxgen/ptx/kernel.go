package ptx

import "encoding/binary"

// Param is a parameter of a kernel.
type Param struct {
	Name  string
	Type  string // "u32", "f32" or "u64", which includes pointers
	Align int    // alignment in bytes that a pointer must have; 0 if it is not a pointer
}

func (p Param) bytes() int {
	if p.Type == "u64" {
		return 8
	}
	return 4
}

func (b *Builder) param(name, typ string, align int) {
	if !isName(name) {
		b.fail("%q cannot name a parameter", name)
	}
	for _, p := range b.params {
		if p.Name == name {
			b.fail("two parameters are named %q", name)
		}
	}
	b.params = append(b.params, Param{name, typ, align})
}

func loadParam[T Value](b *Builder, name, typ string, align int) T {
	b.param(name, typ, align)
	res, r := fresh[T](b)
	b.emit("ld.param."+typ, 1, one(r), arg{kind: address, ops: []operand{{kind: symbol, name: name}}})
	return res
}

// Global declares a parameter that points to global memory, aligned to align bytes, and emits
// ld.param.
func (b *Builder) Global(name string, align int) Global {
	if align <= 0 || align&(align-1) != 0 {
		b.fail("parameter %q: alignment %d", name, align)
		align = 1
	}
	p := loadParam[U64](b, name, "u64", align)
	return Global{Pointer{b: b, base: p.op, align: align}}
}

// ParamU32 declares a .u32 parameter and emits ld.param.
func (b *Builder) ParamU32(name string) U32 { return loadParam[U32](b, name, "u32", 0) }

// ParamU64 declares a .u64 parameter that is not a pointer and emits ld.param.
func (b *Builder) ParamU64(name string) U64 { return loadParam[U64](b, name, "u64", 0) }

// ParamF32 declares a .f32 parameter and emits ld.param.
func (b *Builder) ParamF32(name string) F32 { return loadParam[F32](b, name, "f32", 0) }

// Kernel is a verified kernel.
type Kernel struct {
	Name       string
	Params     []Param
	MaxThreads int    // per CTA
	MinCTAs    int    // per SM, see the function MinCTAs; 0 if unset
	MinTarget  Target // minimum that its instructions need
	Static     int    // bytes of static shared memory
	Dynamic    bool   // uses dynamic shared memory
	source     *Builder
}

// pack appends a number of size bytes at the next multiple of its size.
func pack(buf []byte, bits uint64, size int) []byte {
	for len(buf)%size != 0 {
		buf = append(buf, 0)
	}
	if size == 8 {
		return binary.LittleEndian.AppendUint64(buf, bits)
	}
	return binary.LittleEndian.AppendUint32(buf, uint32(bits))
}
