package cuda

// kernels is the PTX module of the tests.
//
//	vector_add: out[i] = a[i] + b[i]                       i < n
//	count_up:   out[i] = first + i                         i < n
//	spread:     out[i] = sm[far*i/4], after thread i of one CTA has written i to sm[far*i/4]; sm is dynamic
const kernels = `.version 7.4
.target sm_80
.address_size 64

.extern .shared .align 16 .b8 sm[];

.visible .entry vector_add(.param .u64 out, .param .u64 a, .param .u64 b, .param .u32 n)
{
	.reg .pred %p;
	.reg .b32 %i, %t, %n;
	.reg .f32 %x, %y;
	.reg .b64 %a, %b, %o, %s;
	mov.u32 %i, %ctaid.x;
	mov.u32 %t, %ntid.x;
	mul.lo.u32 %i, %i, %t;
	mov.u32 %t, %tid.x;
	add.u32 %i, %i, %t;
	ld.param.u32 %n, [n];
	setp.ge.u32 %p, %i, %n;
	@%p ret;
	mul.wide.u32 %s, %i, 4;
	ld.param.u64 %a, [a];
	ld.param.u64 %b, [b];
	ld.param.u64 %o, [out];
	add.u64 %a, %a, %s;
	add.u64 %b, %b, %s;
	add.u64 %o, %o, %s;
	ld.global.f32 %x, [%a];
	ld.global.f32 %y, [%b];
	add.rn.f32 %x, %x, %y;
	st.global.f32 [%o], %x;
	ret;
}

.visible .entry count_up(.param .u64 out, .param .u32 n, .param .u32 first)
{
	.reg .pred %p;
	.reg .b32 %i, %t, %n;
	.reg .b64 %o, %s;
	mov.u32 %i, %ctaid.x;
	mov.u32 %t, %ntid.x;
	mul.lo.u32 %i, %i, %t;
	mov.u32 %t, %tid.x;
	add.u32 %i, %i, %t;
	ld.param.u32 %n, [n];
	setp.ge.u32 %p, %i, %n;
	@%p ret;
	mul.wide.u32 %s, %i, 4;
	ld.param.u64 %o, [out];
	add.u64 %o, %o, %s;
	ld.param.u32 %t, [first];
	add.u32 %i, %i, %t;
	st.global.u32 [%o], %i;
	ret;
}

.visible .entry spread(.param .u64 out, .param .u32 far)
{
	.reg .b32 %i, %b, %f, %v;
	.reg .b64 %o, %s;
	mov.u32 %i, %tid.x;
	ld.param.u32 %f, [far];
	mul.lo.u32 %f, %f, %i;
	mov.u32 %b, sm;
	add.u32 %b, %b, %f;
	st.shared.u32 [%b], %i;
	bar.sync 0;
	ld.shared.u32 %v, [%b];
	mul.wide.u32 %s, %i, 4;
	ld.param.u64 %o, [out];
	add.u64 %o, %o, %s;
	st.global.u32 [%o], %v;
	ret;
}
`
