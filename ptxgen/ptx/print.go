package ptx

import (
	"bytes"
	"fmt"
	"strings"
)

// Text prints the kernel as a PTX module for t. The result is deterministic. If t.SM is 0, the target is the lowest one
// that the kernel supports. A PTX version below what the kernel needs is raised to that. If t.SM is too low, or the
// kernel needs architecture-specific features that t does not have, the error is a *TargetError.
func (k *Kernel) Text(t Target) ([]byte, error) {
	t, err := k.resolve(t)
	if err != nil {
		return nil, err
	}
	p := printer{b: k.source, target: t}
	for _, line := range k.source.doc {
		p.line("// %s", line)
	}
	p.line(".version %d.%d", t.Version/10, t.Version%10)
	p.line(".target %v", t)
	p.line(".address_size 64")
	p.line("")
	if k.Dynamic {
		p.line(".extern .shared .align %d .b8 %s[];", min(p.b.dynamic, dynamicAlign), dynamicName)
		p.line("")
	}
	p.entry(k)
	p.line("{")
	p.declarations()
	p.list(k.source.body)
	p.line("}")
	return p.buf.Bytes(), nil
}

type printer struct {
	b      *Builder
	target Target
	buf    bytes.Buffer
	labels int
}

func (p *printer) line(format string, args ...any) {
	fmt.Fprintf(&p.buf, format, args...)
	p.buf.WriteByte('\n')
}

func (p *printer) entry(k *Kernel) {
	p.line(".visible .entry %s(", k.Name)
	for i, q := range k.Params {
		comma := ","
		if i == len(k.Params)-1 {
			comma = ""
		}
		if q.Align > 0 {
			p.line("\t.param .u64 .ptr .global .align %d %s%s", q.Align, q.Name, comma)
		} else {
			p.line("\t.param .%s %s%s", q.Type, q.Name, comma)
		}
	}
	p.line(")")
	p.line(".maxntid %d, 1, 1", k.MaxThreads)
	if k.MinCTAs > 0 {
		p.line(".minnctapersm %d", k.MinCTAs)
	}
	if k.Registers > 0 {
		p.line(".maxnreg %d", k.Registers)
	}
}

func (p *printer) declarations() {
	for c, n := range p.b.regs {
		if n > 0 {
			p.line("\t.reg %s %s<%d>;", classNames[c].decl, classNames[c].prefix, n)
		}
	}
	for _, s := range p.b.shared {
		p.line("\t.shared .align %d .b8 %s[%d];", s.align, s.name, s.bytes)
	}
	p.line("")
}

func (p *printer) label() string {
	p.labels++
	return fmt.Sprintf("$L%d", p.labels)
}

func (p *printer) list(list []node) {
	for _, n := range list {
		switch n := n.(type) {
		case *inst:
			p.inst(n)
		case *remark:
			p.line("\t// %s", n.text)
		case *branch:
			p.branch(n)
		case *loop:
			p.loop(n)
		}
	}
}

func (p *printer) inst(in *inst) {
	if !in.optional || p.target.has(in.op) {
		p.line("\t%v;", in)
	}
}

func (in *inst) String() string {
	var s strings.Builder
	if in.guard != nil {
		not := ""
		if in.guard.not {
			not = "!"
		}
		fmt.Fprintf(&s, "@%s%v ", not, in.guard.pred)
	}
	s.WriteString(in.op)
	for i, a := range in.args {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(" " + a.String())
	}
	return s.String()
}

func (p *printer) branch(n *branch) {
	end := p.label()
	if len(n.alt) == 0 {
		p.line("\t@!%v bra %s;", n.pred, end)
		p.list(n.then)
		p.line("%s:", end)
		return
	}
	alt := p.label()
	p.line("\t@!%v bra %s;", n.pred, alt)
	p.list(n.then)
	p.line("\tbra %s;", end)
	p.line("%s:", alt)
	p.list(n.alt)
	p.line("%s:", end)
}

func (p *printer) loop(n *loop) {
	top := p.label()
	p.line("%s:", top)
	if n.noUnroll {
		p.line("\t.pragma \"nounroll\";")
	}
	if n.bottom {
		p.list(n.body)
		p.line("\t@%v bra %s;", n.pred, top)
		return
	}
	end := p.label()
	p.list(n.cond)
	p.line("\t@!%v bra %s;", n.pred, end)
	p.list(n.body)
	p.line("\tbra %s;", top)
	p.line("%s:", end)
}
