package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

type ptxCmd struct {
	List   bool   `xor:"what" required:"" help:"Name every kernel."`
	Kernel string `xor:"what" required:"" help:"Print one kernel." placeholder:"NAME"`
	All    bool   `xor:"what" required:"" help:"Write every kernel to a file of its own."`
	Target string `help:"What to print it for, such as sm_80 or sm_90a; by default the least that the kernel needs." placeholder:"sm_NN"`
	Out    path   `help:"The file for one kernel, by default standard output; the folder for all." placeholder:"PATH"`
}

func (c *ptxCmd) Help() string {
	return "The text is what the driver receives. With --all, kernels that the target is too old for are left out."
}

func (c *ptxCmd) Run(e *env) error {
	var target ptx.Target
	if c.Target != "" {
		var err error
		if target, err = ptx.ParseTarget(c.Target); err != nil {
			return usagef("--target: %w", err)
		}
	}
	switch {
	case c.List:
		if c.Out != "" || c.Target != "" {
			return usagef("--list: takes neither --target nor --out")
		}
		for _, s := range ptxgen.Reachable() {
			if err := e.stdout("%s\n", s.Name()); err != nil {
				return err
			}
		}
		return nil
	case c.All:
		if c.Out == "" {
			return usagef("--all: needs --out with a folder to write to")
		}
		return c.writeAll(e, target)
	}
	return c.writeOne(e, target)
}

func (c *ptxCmd) writeOne(e *env, target ptx.Target) error {
	for _, s := range ptxgen.Reachable() {
		if s.Name() != c.Kernel {
			continue
		}
		text, err := textFor(s, target)
		if err != nil {
			return fmt.Errorf("--target: %w", err)
		}
		if c.Out == "" {
			_, err := e.Write(text)
			return err
		}
		return writeFile(string(c.Out), text)
	}
	return usagef("--kernel: there is no kernel %q; --list names them", c.Kernel)
}

func (c *ptxCmd) writeAll(e *env, target ptx.Target) error {
	dir := string(c.Out)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	written := 0
	for _, s := range ptxgen.Reachable() {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		text, err := textFor(s, target)
		var old *ptx.TargetError
		if errors.As(err, &old) {
			e.note("left out: %v", err)
			continue
		}
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, s.Name()+".ptx"), text); err != nil {
			return err
		}
		written++
	}
	e.note("%d kernels in %s", written, dir)
	return nil
}

func textFor(s ptxgen.Spec, target ptx.Target) ([]byte, error) {
	k, err := s.Build()
	if err != nil {
		return nil, err
	}
	return k.Text(target)
}

func writeFile(name string, text []byte) error {
	return atomicfile.Write(name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
