package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

type ptxCmd struct {
	List   bool    `xor:"what" required:"" help:"List the names of all kernels."`
	Kernel string  `xor:"what" required:"" help:"Print one kernel, see --list; attention kernels also with another head dimension after _d." placeholder:"NAME"`
	All    bool    `xor:"what" required:"" help:"Write each kernel to a file."`
	Target string  `help:"PTX target, such as sm_80 or sm_90a (default: the lowest that the kernel supports)." placeholder:"sm_NN"`
	Out    outPath `help:"Output file of --kernel (default: standard output), or output directory of --all." placeholder:"PATH"`
}

func (c *ptxCmd) Help() string {
	return "Prints the PTX text that the driver receives. --all skips kernels that the target does not support. --list shows attention kernels for " +
		"the head dimensions of common models; --kernel takes any multiple of 8 up to 128, or of 32 up to 512, such as flash_attention_f16_d24."
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
		return c.list(e)
	case c.All:
		if c.Out == "" {
			return usagef("--all: needs --out with a directory")
		}
		return c.writeAll(e, target)
	}
	return c.writeOne(e, target)
}

func (c *ptxCmd) list(e *env) error {
	for _, s := range ptxgen.Reachable() {
		if err := e.stdout("%s\n", s.Name()); err != nil {
			return err
		}
	}
	e.note("attention kernels exist for all head dimensions that are multiples of 8 up to 128, or of 32 up to 512: replace the number after _d")
	return nil
}

func (c *ptxCmd) writeOne(e *env, target ptx.Target) error {
	s := kernelNamed(c.Kernel)
	if s == nil {
		return usagef("--kernel: there is no kernel %q; --list names them", c.Kernel)
	}
	text, err := textFor(s, target)
	if errors.As(err, new(*ptx.TargetError)) {
		return fmt.Errorf("--target: %w", err)
	}
	if err != nil {
		return fmt.Errorf("--kernel: %w", err)
	}
	if c.Out == "" {
		_, err := e.Write(text)
		return err
	}
	return output{flag: "--out", file: c.Out}.writeText(text)
}

var headDimSuffix = regexp.MustCompile(`_d([1-9]\d{0,8})$`)

// kernelNamed returns the kernel with a name, or nil. Attention kernels may have a head
// dimension that is not listed.
func kernelNamed(name string) kernel.Spec {
	for _, s := range ptxgen.Reachable() {
		if s.Name() == name {
			return s
		}
	}
	dim := headDimSuffix.FindStringSubmatch(name)
	if dim == nil {
		return nil
	}
	n, _ := strconv.Atoi(dim[1])
	for _, s := range attention.Specs(n) {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// kernels returns the kernels that --all writes. Tests replace it.
var kernels = ptxgen.Reachable

// writeAll writes the kernels that the target supports. If it supports none, writeAll
// returns an error and creates no directory.
func (c *ptxCmd) writeAll(e *env, target ptx.Target) error {
	dir := string(c.Out)
	written := 0
	var leftOut []error
	for _, s := range kernels() {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		text, err := textFor(s, target)
		if errors.As(err, new(*ptx.TargetError)) {
			leftOut = append(leftOut, err)
			continue
		}
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
		file := outPath(filepath.Join(dir, s.Name()+".ptx"))
		if err := (output{flag: "--out", file: file}).writeText(text); err != nil {
			return err
		}
		written++
	}
	if written == 0 {
		return fmt.Errorf("--target: no kernel runs on %v: %w", target, leftOut[0])
	}
	for _, err := range leftOut {
		e.note("left out: %v", err)
	}
	e.note("%d kernels in %s", written, dir)
	return nil
}

func textFor(s kernel.Spec, target ptx.Target) ([]byte, error) {
	k, err := s.Build()
	if err != nil {
		return nil, err
	}
	return k.Text(target)
}
