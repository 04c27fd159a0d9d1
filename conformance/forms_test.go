package conformance

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
)

// The devices' names in complaints and in the table.
const (
	perturbedName = "emulator with perturbed approximations"
	gpuName       = "GPU"
)

// formDevice runs the small kernels of forms on one device.
type formDevice struct {
	name   string
	device driver.Device
	stream driver.Stream
}

func newFormDevice(t *testing.T, name string, d driver.Device, err error) formDevice {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { d.Close() })
	s, err := d.NewStream()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return formDevice{name, d, s}
}

// formDevices are the emulator, as it is and with its approximations moved within
// their bounds, and with -gpu the GPU.
func formDevices(t *testing.T) []formDevice {
	t.Helper()
	exact, err := emu.Open(emu.Options{Async: emu.Late, Schedule: emu.Adversarial(*kernelSeed)})
	all := []formDevice{newFormDevice(t, "emulator", exact, err)}
	moved, err := emu.Open(emu.Options{Approx: emu.Perturbed(*kernelSeed)})
	all = append(all, newFormDevice(t, perturbedName, moved, err))
	if *onGPU {
		gpu, err := cuda.Open(0)
		all = append(all, newFormDevice(t, gpuName, gpu, err))
	}
	return all
}

// run runs a form's kernel on arrays p0, p1, ... and returns out. What is not given
// of the parameters is a constant.
func (d formDevice) run(text string, in [][]byte, ctas, out int) ([]byte, error) {
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

// formResult is a row of the table of instructions.
type formResult struct {
	form     form
	by       string // what it was compared with
	compared int
	worst    float64 // error ÷ bound, of approximate ones: on the GPU if there is one
}

// TestInstructions runs every form of instruction that the kernels are written with
// in a small kernel of its own, and compares the emulator with an expectation in Go
// where there is one; with -gpu the GPU with both, bit for bit, but for approximate
// instructions and matrix products, which have bounds.
func TestInstructions(t *testing.T) {
	devices := formDevices(t)
	forms := emittedForms(t)
	var results []formResult
	for _, f := range sortedForms(forms) {
		t.Run(f.String(), func(t *testing.T) {
			r, err := tryForm(devices, f)
			if err != nil {
				t.Errorf("as in %s: %v", forms[f], err)
			}
			results = append(results, r)
		})
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\ninstruction\tcompared\twith\tworst error/bound\n")
	for _, r := range results {
		fmt.Fprintf(w, "%v\t%d\t%s\t%.3g\n", r.form, r.compared, r.by, r.worst)
	}
	w.Flush()
	fmt.Println()
}

// tryForm runs a form on every device and compares.
func tryForm(devices []formDevice, f form) (formResult, error) {
	if lane, ok := laneFormOf(f); ok {
		return tryLanes(devices, lane)
	}
	if hand, ok := handFormOf(f); ok {
		return tryHand(devices, f, hand)
	}
	return formResult{form: f, by: "unmeasured"}, fmt.Errorf("unmeasured: no kernel tries %v", f)
}
