package kernelbench

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/peak"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
	"github.com/lockstep-go/lockstep/quant"
)

// h200 has the device properties that Cases uses.
var h200 = driver.Properties{ComputeCapability: 90, PTXVersion: 84, SMs: 132, SharedPerCTA: 227 << 10, L2: 50 << 20}

// There is a case for every kernel that an engine may use, and no case twice.
func TestCases(t *testing.T) {
	seen, operations := map[string]bool{}, map[reflect.Type]bool{}
	for _, c := range Cases(h200) {
		if seen[c.name()] {
			t.Errorf("%s is there twice", c.name())
		}
		if !(c.Bytes > 0) || c.Launch == nil {
			t.Errorf("%s: %v bytes", c.name(), c.Bytes)
		}
		seen[c.name()] = true
		operations[reflect.TypeOf(c.Spec)] = true
	}
	for _, s := range ptxgen.Reachable() {
		switch s.(type) {
		case kernel.Typed[peak.ReadArgs], kernel.Typed[peak.BulkReadArgs], kernel.Typed[peak.MMAArgs], kernel.Typed[peak.WGMMAArgs]: // the limits
			continue
		}
		if typ := reflect.TypeOf(s); !operations[typ] {
			t.Errorf("no case measures %v, for example %s", typ, s.Name())
			operations[typ] = true
		}
	}
}

// tiny holds sizes for the emulator, not multiples of tiles where formats allow that.
var tiny = sizes{
	formats:    []quant.Format{quant.F32, quant.BF16, quant.Q4_0, quant.Q8_0, quant.Q3_K, quant.Q4_K, quant.Q6_K, quant.IQ4_XS},
	products:   []quant.Format{quant.F16, quant.BF16, quant.Q4_K},
	experts:    []quant.Format{quant.F16, quant.Q4_K, quant.MXFP4},
	embeddings: []quant.Format{quant.F16, quant.Q6_K},
	width:      256, ffn: 256, vocab: 261,
	columns:  []int{2},
	prompts:  []int{17},
	rows:     9,
	batch:    2,
	sampled:  []int{2},
	net:      deltanet.Shape{KeyHeads: 1, ValueHeads: 2, Dim: 128, Taps: 4},
	mixtures: []mixture{{"tiny", 5, 2, matrix{24, 256}}},
	decode:   []decodeShape{{heads{4, 2, 64}, 2, 140, quant.F16}, {heads{4, 2, 64}, 1, 5, quant.BF16}},
	flash: []flashShape{
		{heads{4, 2, 64}, 2, 20, 20, quant.F16}, {heads{4, 2, 64}, 1, 7, 80, quant.BF16}, {heads{2, 1, 64}, 1, 20, 20, quant.BF16},
	},
}

func open(t *testing.T) (driver.Device, *library) {
	t.Helper()
	dev, err := emu.Open(emu.Options{SMs: 1}) // few CTAs of those kernels that fill a device
	if err != nil {
		t.Fatal(err)
	}
	set := kernelcache.New(dev)
	t.Cleanup(func() {
		set.Close()
		dev.Close()
	})
	return dev, newLibrary(set)
}

// Every case runs at tiny sizes without a trap and writes every element of its results.
func TestLaunches(t *testing.T) {
	dev, lib := open(t)
	cases := tiny.cases(dev.Properties())
	if err := lib.load(t.Context(), cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if err := launchOnce(dev, lib, c); err != nil {
			t.Errorf("%s: %v", c.name(), err)
		}
		if dev.Err() != nil {
			t.Fatal("the device is lost")
		}
	}
	t.Logf("%d cases", len(cases))
}

func launchOnce(dev driver.Device, lib *library, c Case) error {
	r, err := newRunner(dev, lib)
	if err != nil {
		return err
	}
	defer r.close()
	list, err := r.launches(c, 2)
	if err != nil {
		return err
	}
	if len(r.outputs) == 0 {
		return fmt.Errorf("the case names no results")
	}
	before := make([][]byte, len(r.outputs))
	for i, o := range r.outputs {
		before[i] = make([]byte, o.bytes)
		if !o.inPlace { // NaN in every format, and no index
			r.setErr(r.stream.Fill(driver.Address(o.address), 0xFF, o.bytes))
		}
		r.setErr(r.stream.Read(before[i], driver.Address(o.address)))
	}
	r.setErr(r.stream.Launch(list...))
	for i, o := range r.outputs {
		after := make([]byte, o.bytes)
		if r.setErr(r.stream.Read(after, driver.Address(o.address))); r.err == nil {
			r.setErr(o.check(before[i], after))
		}
	}
	return r.err
}

// check returns an error if a result is not written, infinite or NaN, or if all results
// are equal.
func (o output) check(before, after []byte) error {
	if o.inPlace && slices.Equal(before, after) {
		return fmt.Errorf("nothing was written")
	}
	if o.integers {
		for i := 0; i < len(after); i += 4 {
			if binary.LittleEndian.Uint32(after[i:]) == sample.NoIndex {
				return fmt.Errorf("result %d of %d was not written", i/4, len(after)/4)
			}
		}
		return nil
	}
	x := make([]float32, len(after)/o.format.BlockBytes())
	quant.Decode(o.format, x, after)
	for i, v := range x {
		if v-v != 0 {
			return fmt.Errorf("result %d of %d is %v", i, len(x), v)
		}
	}
	if len(x) > 1 && slices.Max(x) == slices.Min(x) {
		return fmt.Errorf("all %d results are %v", len(x), x[0])
	}
	return nil
}

// TestCheckSeesFaults checks check itself.
func TestCheckSeesFaults(t *testing.T) {
	nan, one, two := math.Float32bits(float32(math.NaN())), math.Float32bits(1), math.Float32bits(2)
	words := func(list ...uint32) []byte {
		var b []byte
		for _, w := range list {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		return b
	}
	for _, c := range []struct {
		name    string
		o       output
		after   []byte
		faulted bool
	}{
		{"numbers", output{}, words(one, two), false},
		{"one number", output{}, words(one), false},
		{"all the same", output{}, words(one, one), true},
		{"not written", output{}, words(one, nan), true},
		{"infinite", output{}, words(one, 0x7F800000), true},
		{"half not written", output{format: quant.F16}, []byte{0, 60, 0xFF, 0xFF}, true},
		{"bfloat16 not written", output{format: quant.BF16}, []byte{0, 60, 0xFF, 0xFF}, true},
		{"indices", output{integers: true}, words(7, 7), false},
		{"index not written", output{integers: true}, words(7, sample.NoIndex), true},
		{"in place", output{inPlace: true}, words(one, two), false},
		{"in place, as it was", output{inPlace: true}, words(two, one), true},
	} {
		if err := c.o.check(words(two, one), c.after); (err != nil) != c.faulted {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
