package emu

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Cache shares decoded modules between devices, by text. It only grows. Any goroutine may use it.
type Cache struct {
	mu    sync.Mutex
	texts map[string]compiled
}

// compiled is what a text was decoded to. It does not change.
type compiled struct {
	mod      *syntax.Module
	programs []*program
}

func (c *Cache) get(text []byte) (p compiled, ok bool) {
	if c == nil {
		return compiled{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok = c.texts[string(text)]
	return p, ok
}

func (c *Cache) put(text []byte, p compiled) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.texts == nil {
		c.texts = map[string]compiled{}
	}
	c.texts[string(text)] = p
}

type module struct {
	object    object
	functions map[string]*function
}

type function struct {
	module *module
	prog   *program
}

// Load parses and decodes PTX text. If it refuses the text, the error is driver.ErrPTXRejected. It names the line of a
// syntax error, or every instruction that it cannot decode.
func (d *Device) Load(text []byte) (driver.Module, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("Load"); err != nil {
		return nil, err
	}
	programs, err := d.compile(text)
	if err != nil {
		return nil, &driver.Error{Op: "emu.Load", Kind: driver.ErrPTXRejected, Detail: err.Error()}
	}
	m := &module{object: d.newObject(&d.live.Modules), functions: map[string]*function{}}
	for _, p := range programs {
		m.functions[p.name] = &function{m, p}
	}
	return m, nil
}

func (d *Device) compile(text []byte) ([]*program, error) {
	if seen, ok := d.opts.Cache.get(text); ok {
		return seen.programs, d.checkTarget(seen.mod)
	}
	mod, err := syntax.Parse(text)
	if err == nil {
		err = d.checkTarget(mod)
	}
	if err != nil {
		return nil, err
	}
	var programs []*program
	var errs []error
	for _, e := range mod.Entries {
		p, err := decode(mod, e)
		programs, errs = append(programs, p), append(errs, err)
	}
	err = errors.Join(errs...)
	if err == nil {
		d.opts.Cache.put(text, compiled{mod, programs})
	}
	return programs, err
}

// targets maps each .target to the lowest .version that has it.
var targets = map[int]int{
	50: 40, 52: 41, 53: 42, 60: 50, 61: 50, 62: 50, 70: 60, 72: 61, 75: 63, 80: 70, 86: 71, 87: 74, 89: 78, 90: 78,
}

// checkTarget refuses a .version or .target that the device does not have.
func (d *Device) checkTarget(mod *syntax.Module) error {
	least, ok := targets[mod.SM]
	if mod.Target == "sm_90a" {
		least = 80
	}
	switch {
	case mod.Version > d.props.PTXVersion:
		return fmt.Errorf(".version %d.%d is newer than the device's %d.%d",
			mod.Version/10, mod.Version%10, d.props.PTXVersion/10, d.props.PTXVersion%10)
	case !ok:
		return fmt.Errorf("unknown .target %s", mod.Target)
	case mod.Version < least:
		return fmt.Errorf(".target %s needs .version %d.%d, the text declares %d.%d",
			mod.Target, least/10, least%10, mod.Version/10, mod.Version%10)
	case mod.SM > d.props.ComputeCapability, mod.Target == "sm_90a" && d.props.ComputeCapability != 90:
		return fmt.Errorf(".target %s on a device of sm_%d", mod.Target, d.props.ComputeCapability)
	}
	return nil
}

func (m *module) Function(name string) (driver.Function, error) {
	m.object.dev.mu.Lock()
	defer m.object.dev.mu.Unlock()
	if err := m.object.usable("Function"); err != nil {
		return nil, err
	}
	f, ok := m.functions[name]
	if !ok {
		return nil, invalid("Function", "no entry %q", name)
	}
	return f, nil
}

func (m *module) Close() error { return m.object.Close() }

func (f *function) Name() string { return f.prog.name }
