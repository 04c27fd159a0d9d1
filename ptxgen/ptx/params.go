package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// Address is an address in device memory. 0 is the address of an optional argument that is
// left out.
type Address = uint64

// Addr returns the host value of a pointer parameter.
func Addr[A ~uint64](a A) Global { return Global{Pointer{base: hostValue(b64, uint64(a))}} }

// Uint returns the host value of a U32 parameter. It panics if n does not fit.
func Uint[N ~int | ~uint32](n N) U32 {
	if int64(n) < 0 || int64(n) > math.MaxUint32 {
		panic(fmt.Sprintf("ptx: %d does not fit 32 bits", int64(n)))
	}
	return U32(raw{value{op: hostValue(b32, uint64(n))}})
}

// Uint64 returns the host value of a U64 parameter.
func Uint64(n uint64) U64 { return U64(raw{value{op: hostValue(b64, n)}}) }

// Float returns the host value of an F32 parameter.
func Float(x float32) F32 { return F32(raw{value{op: hostValue(f32, uint64(math.Float32bits(x)))}}) }

func hostValue(c class, bits uint64) operand { return operand{kind: immediate, class: c, n: bits} }

// AlignedTo returns a Global that tells Declare the alignment of a parameter, in bytes. Use it
// if the alignment depends on the kernel, so that no tag can state it.
func AlignedTo(align int) Global { return Global{Pointer{align: align}} }

// Declare declares the parameters of a kernel: all fields of the struct that params
// points to, which are exported, of types Global, U32, U64 and F32, in their order. It sets each field to the
// value that the kernel loads. The names are those of the fields in snake case: XStride
// becomes x_stride. A Global is aligned to 4 bytes unless its tag says otherwise.
//
//	type params struct {
//		X, Y  ptx.Global `align:"16"`
//		Width ptx.U32
//		Scale ptx.F32
//	}
//
//	var p params
//	ptx.Declare(b, &p) // p.X, p.Width, … are values of the kernel
//
// Launches pass the same struct with arguments:
//
//	k.Launch(grid, 256, 0, &params{
//		X: ptx.Addr(x), Y: ptx.Addr(y), Width: ptx.Uint(n), Scale: ptx.Float(2),
//	})
//
// A kernel may declare several structs, one after the other; a launch passes them in the same
// order.
func Declare(b *Builder, params any) {
	v, fields := fieldsOf(params)
	for _, f := range fields {
		switch p := v.Field(f.index).Addr().Interface().(type) {
		case *Global:
			align := f.align
			if p.align != 0 {
				align = p.align
			}
			*p = b.Global(f.name, align)
		case *U32:
			*p = b.ParamU32(f.name)
		case *U64:
			*p = b.ParamU64(f.name)
		case *F32:
			*p = b.ParamF32(f.name)
		}
	}
}

// Launch is a launch of a kernel with its arguments, packed as drivers take them.
type Launch struct {
	Kernel *Kernel
	Grid   [3]uint32
	Block  [3]uint32
	Shared uint32 // bytes of dynamic shared memory, including those that align it
	Params []byte
}

// Launch packs the arguments of a launch: grid CTAs of some threads, each with shared bytes of dynamic shared memory. It
// starts nothing. params point to structs like those that declared the kernel's parameters, with arguments in all
// fields. Launch checks their names, types and alignment, and the shape against the kernel's
// limits.
func (k *Kernel) Launch(grid [3]uint32, threads, shared int, params ...any) (Launch, error) {
	var p packer
	p.add(k, "", params)
	return k.launch(grid, threads, shared, p)
}

func (k *Kernel) launch(grid [3]uint32, threads, shared int, p packer) (Launch, error) {
	l := Launch{Kernel: k, Grid: grid, Block: [3]uint32{uint32(threads), 1, 1}, Shared: uint32(shared + k.padding)}
	err := k.checkShape(grid, threads, shared)
	if err == nil {
		l.Params, err = p.bytes(k)
	}
	if err != nil {
		return l, fmt.Errorf("ptx: launch %s: %w", k.Name, err)
	}
	return l, nil
}

func (k *Kernel) checkShape(grid [3]uint32, threads, shared int) error {
	switch {
	case grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[1] > 65535 || grid[2] > 65535 || grid[0] > math.MaxInt32:
		return fmt.Errorf("a grid of %v CTAs", grid)
	case threads <= 0 || threads > k.MaxThreads:
		return fmt.Errorf("a CTA of %d threads, at most %d", threads, k.MaxThreads)
	case shared < 0 || shared > 0 && !k.Dynamic:
		return fmt.Errorf("%d bytes of dynamic shared memory, which it does not use", shared)
	}
	return nil
}

// packer packs the host values of parameters, each at a multiple of its size.
type packer struct {
	buf   []byte
	count int // parameters so far
	err   error
}

// add packs structs of parameters. suffix ends the names of the parameters.
func (p *packer) add(k *Kernel, suffix string, structs []any) {
	for _, params := range structs {
		v, fields := fieldsOf(params)
		for _, f := range fields {
			if p.err == nil {
				p.err = p.field(k, f.name+suffix, v.Field(f.index))
			}
		}
	}
}

func (p *packer) field(k *Kernel, name string, value reflect.Value) error {
	if p.count == len(k.Params) {
		return fmt.Errorf("it has no parameter %s", name)
	}
	op, typ := hostField(value)
	q := k.Params[p.count]
	switch {
	case q.Name != name || q.Type != typ:
		return fmt.Errorf("parameter %s is %s, not %s of type %s", q.Name, q.Type, name, typ)
	case op.kind != immediate:
		return fmt.Errorf("parameter %s: it is not set", name)
	case q.Align > 0 && op.n%uint64(q.Align) != 0:
		return fmt.Errorf("parameter %s: address %#x is not a multiple of %d", name, op.n, q.Align)
	}
	p.buf = pack(p.buf, op.n, q.bytes())
	p.count++
	return nil
}

// bytes returns the packed parameters.
func (p *packer) bytes(k *Kernel) ([]byte, error) {
	if p.err == nil && p.count < len(k.Params) {
		p.err = fmt.Errorf("parameter %s: it is missing", k.Params[p.count].Name)
	}
	return p.buf, p.err
}

// hostField returns the value of a field and the type of its parameter.
func hostField(field reflect.Value) (operand, string) {
	switch p := field.Addr().Interface().(type) {
	case *Global:
		return p.base, "u64"
	case *U64:
		return p.op, "u64"
	case *U32:
		return p.op, "u32"
	case *F32:
		return p.op, "f32"
	}
	panic("ptx: a field that cannot be a parameter")
}

// paramField is a field of a struct of parameters.
type paramField struct {
	index int
	name  string // of the parameter
	align int
}

// paramFields holds the fields of each struct of parameters, by its reflect.Type.
var paramFields sync.Map

// fieldsOf returns the struct that params points to, and its fields. It panics if a field
// cannot be a parameter.
func fieldsOf(params any) (reflect.Value, []paramField) {
	v := reflect.ValueOf(params).Elem()
	t := v.Type()
	if list, ok := paramFields.Load(t); ok {
		return v, list.([]paramField)
	}
	list := make([]paramField, t.NumField())
	for i := range list {
		f := t.Field(i)
		switch reflect.New(f.Type).Interface().(type) {
		case *Global, *U32, *U64, *F32:
		default:
			panic(fmt.Sprintf("ptx: %v: field %s of type %v cannot be a parameter", t, f.Name, f.Type))
		}
		list[i] = paramField{index: i, name: snakeCase(f.Name), align: 4}
		if tag, ok := f.Tag.Lookup("align"); ok {
			align, err := strconv.Atoi(tag)
			if err != nil {
				panic(fmt.Sprintf("ptx: %v: field %s: align %q", t, f.Name, tag))
			}
			list[i].align = align
		}
	}
	paramFields.Store(t, list)
	return v, list
}

// snakeCase returns a Go name in snake case: KVHeads becomes kv_heads.
func snakeCase(name string) string {
	var s strings.Builder
	upper := func(i int) bool { return name[i] >= 'A' && name[i] <= 'Z' }
	for i := range len(name) {
		if i > 0 && upper(i) && (!upper(i-1) || i+1 < len(name) && !upper(i+1)) {
			s.WriteByte('_')
		}
		s.WriteByte(name[i])
	}
	return strings.ToLower(s.String())
}

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
	if b.part != nil {
		name += b.part.suffix
	}
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
