package main

import (
	"fmt"
	"os"

	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

type goldenCmd struct {
	Update bool   `help:"Write the golden files instead of comparing them."`
	Dir    string `default:"golden" help:"Golden directory of a checkout (${default})." placeholder:"D"`
}

func (c *goldenCmd) Run(e *env) error {
	if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
		return fmt.Errorf("--dir: %s: not a directory; run this in a checkout or name its golden directory", c.Dir)
	}
	cases := golden.Cases()
	p := e.progress("golden", int64(len(cases)))
	store := golden.Store{
		Dir:  c.Dir,
		New:  func(m *model.Model) (model.Engine, error) { return ref.New(m, ref.Options{}) },
		Done: func(golden.Case) { p.add(1) },
	}
	do, did := store.Verify, "unchanged"
	if c.Update {
		do, did = store.Update, "written"
	}
	err := do(e.ctx)
	p.end()
	if err != nil {
		return err
	}
	return e.stdout("%d golden files are %s\n", len(cases), did)
}
