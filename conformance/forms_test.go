package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The devices' names in complaints and in the table.
const (
	emulatorName  = "emulator"
	perturbedName = "emulator with perturbed approximations"
	gpuName       = "GPU"
)

// formDevice runs the small kernels of forms on one device.
type formDevice struct {
	name       string
	open       func() (driver.Device, error)
	device     driver.Device
	stream     driver.Stream
	properties driver.Properties
	// corrupt changes what came back; the comparison must notice.
	corrupt func(out []byte)
}

func newFormDevice(t *testing.T, name string, open func() (driver.Device, error)) *formDevice {
	t.Helper()
	d := &formDevice{name: name, open: open}
	if err := d.reopen(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { d.device.Close() })
	return d
}

// reopen begins with a new device: a kernel that trapped has lost the one before.
func (d *formDevice) reopen() (err error) {
	if d.device != nil {
		d.device.Close()
	}
	if d.device, err = d.open(); err != nil {
		return err
	}
	d.properties = d.device.Properties()
	d.stream, err = d.device.NewStream()
	return err
}

// formDevices are the emulator, as it is and with its approximations moved within
// their bounds, and with -gpu the GPU.
func formDevices(t *testing.T) []*formDevice {
	t.Helper()
	emulator := func(o emu.Options) func() (driver.Device, error) {
		return func() (driver.Device, error) { return emu.Open(o) }
	}
	all := []*formDevice{
		newFormDevice(t, emulatorName, emulator(emu.Options{Async: emu.Late, Schedule: emu.Adversarial(*kernelSeed)})),
		newFormDevice(t, perturbedName, emulator(emu.Options{Approx: emu.Perturbed(*kernelSeed)})),
	}
	if *onGPU {
		all = append(all, newFormDevice(t, gpuName, func() (driver.Device, error) { return cuda.Open(0) }))
	}
	return all
}

// lacks says what the device lacks to run a kernel for a target; "" nothing.
func (d *formDevice) lacks(target ptx.Target) string {
	p := d.properties
	if p.ComputeCapability < target.SM || target.Arch && p.ComputeCapability > target.SM || p.PTXVersion < target.Version {
		return fmt.Sprintf("the %s has sm_%d and PTX %d, not %v and PTX %d", d.name, p.ComputeCapability, p.PTXVersion, target, target.Version)
	}
	return ""
}

// run runs a form's kernel on arrays p0, p1, ... and returns out. What is not given
// of the parameters is a constant.
func (d *formDevice) run(text string, in [][]byte, ctas, out int) ([]byte, error) {
	got, err := d.launch(text, in, ctas, out)
	if errors.Is(err, driver.ErrDeviceLost) {
		err = errors.Join(err, d.reopen())
	}
	if err == nil && d.corrupt != nil {
		d.corrupt(got)
	}
	return got, err
}

func (d *formDevice) launch(text string, in [][]byte, ctas, out int) ([]byte, error) {
	m, err := d.device.Load([]byte(text))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	f, err := m.Function("form")
	if err != nil {
		return nil, err
	}
	var params []byte
	for i := range len(formArrays) {
		data := make([]byte, out)
		if i < len(in) {
			data = in[i]
		} else if i < len(formArrays)-1 {
			params = binary.LittleEndian.AppendUint64(params, formParam)
			continue
		}
		b, err := d.device.Alloc(int64(len(data)))
		if err != nil {
			return nil, err
		}
		defer b.Close()
		if err := d.stream.Write(b.Address(), data); err != nil {
			return nil, err
		}
		params = binary.LittleEndian.AppendUint64(params, uint64(b.Address()))
	}
	one := driver.Dim3{X: 1, Y: 1, Z: 1}
	l := driver.Launch{Function: f, Grid: one, Block: one, Params: params}
	l.Grid.X, l.Block.X = uint32(ctas), formThreads
	if err := d.stream.Launch(l); err != nil {
		return nil, err
	}
	got := make([]byte, out)
	at := driver.Address(binary.LittleEndian.Uint64(params[8*(len(formArrays)-1):]))
	return got, d.stream.Read(got, at)
}

// allForms are the forms of the kernels that an engine may ask for, those that the
// emulator's own tests are written with, and a few more.
func allForms(t *testing.T) uses {
	t.Helper()
	kernels, err := kernelUses()
	if err != nil {
		t.Fatal(err)
	}
	all := furtherUses(t)
	all.merge(emulatorUses(t))
	all.merge(kernels)
	return all
}

// TestInstructions runs every form of instruction that the kernels and the
// emulator's tests are written with in a small kernel of its own, and compares the
// emulator with an expectation in Go; with -gpu the GPU with both, bit for bit, but
// for approximate instructions and matrix products, which have bounds. A form
// without an expectation fails.
func TestInstructions(t *testing.T) {
	heavy(t)
	bench := formBench{devices: formDevices(t), seed: *kernelSeed, combinations: 4096}
	if *longCases || *onGPU {
		bench.combinations = 10240
	}
	forms := allForms(t)
	var results []formResult
	left := 0
	for _, f := range forms.sorted() {
		if untried[f.op] != "" {
			left++ // with the reason that is printed below
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			r, err := bench.try(f, forms[f])
			if err != nil {
				t.Errorf("as in %s: %v", forms[f].where, err)
			}
			if err == nil && r.compared == 0 {
				t.Error("nothing was compared")
			}
			results = append(results, r)
		})
	}
	printForms(results)
	for op, reason := range untried {
		fmt.Printf("left out: %s %s\n", op, reason)
		if !usesOp(forms, op) {
			t.Errorf("%s is left out but nothing has it", op)
		}
	}
	for _, d := range bench.devices {
		fmt.Printf("on: %s, %s\n", d.name, d.properties.Name)
	}
	fmt.Printf("%d forms: %d tried, %d left out\n\n", len(forms), len(results), left)
}

func usesOp(forms uses, op string) bool {
	for f := range forms {
		if f.op == op {
			return true
		}
	}
	return false
}

// printForms prints the table of instructions, and how many were tried by what.
func printForms(results []formResult) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\ninstruction\tcompared\twith\tworst error/bound\n")
	byKind := map[string]int{}
	for _, r := range results {
		worst := ""
		if strings.Contains(r.by, "bound") {
			worst = fmt.Sprintf("%.3g", r.worst)
		}
		fmt.Fprintf(w, "%v\t%d\t%s\t%s\n", r.form, r.compared, r.by, worst)
		byKind[r.by]++
		if r.without != "" {
			byKind["left out where "+r.without]++
		}
	}
	w.Flush()
	fmt.Println()
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		fmt.Printf("%d forms: %s\n", byKind[kind], kind)
	}
}
