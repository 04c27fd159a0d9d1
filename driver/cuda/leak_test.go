package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// useDevice creates, uses and closes one object of each type.
func useDevice(d *Device, f driver.Function, seed uint32) error {
	const n = 256
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	buf, err := d.Alloc(4 * n)
	if err != nil {
		return err
	}
	defer buf.Close()
	host, err := d.AllocPinned(4 * n)
	if err != nil {
		return err
	}
	defer host.Close()
	e, err := d.NewEvent()
	if err != nil {
		return err
	}
	defer e.Close()
	g, err := s.Capture(func() error {
		return errors.Join(
			s.Launch(launchOf(f, n, 64, pack(buf.Address(), uint32(n), seed))),
			s.ReadAsync(host, 0, buf.Address(), 4*n),
		)
	})
	if err != nil {
		return err
	}
	defer g.Close()
	if err := errors.Join(g.Launch(s), s.Record(e), e.Synchronize()); err != nil {
		return err
	}
	if got, want := binary.LittleEndian.Uint32(host.Bytes()[4*(n-1):]), seed+n-1; got != want {
		return fmt.Errorf("computed %d, want %d", got, want)
	}
	return nil
}

// usage is the use of resources that can leak.
type usage struct {
	device int64 // bytes
	rss    int64 // bytes
	files  int
}

func measure(t *testing.T, d *Device) usage {
	t.Helper()
	runtime.GC()
	var u usage
	free, total := int64(0), int64(0)
	if d != nil {
		var err error
		free, total, err = d.Memory()
		ok(t, err)
	}
	u.device = total - free
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		fmt.Sscan(rest, &u.rss)
		u.rss <<= 10
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.files = len(files)
	}
	return u
}

// grew reports whether the growth is larger than the pools of a driver.
func (u usage) grew(after usage) bool {
	return after.device > u.device+4<<20 || after.rss > u.rss+32<<20 || after.files > u.files
}

func (u usage) compare(t *testing.T, after usage) {
	t.Helper()
	t.Logf("before %+v, after %+v", u, after)
	if u.grew(after) {
		t.Errorf("leaked: before %+v, after %+v", u, after)
	}
}

func TestLeaks(t *testing.T) { each(t, testLeaks) }

func testLeaks(t *testing.T, open opener) {
	d := open(t, options{noCache: true})
	f := kernel(t, d, "count_up")
	iterations := 10000
	if testing.Short() || raceDetector {
		iterations = 200
	}
	for i := range 100 { // fill the pools and caches of the driver
		ok(t, useDevice(d, f, uint32(i)))
	}
	before := measure(t, d)
	for i := range iterations {
		ok(t, useDevice(d, f, uint32(i)))
	}
	before.compare(t, measure(t, d))
	if n := len(d.children); n != 1 {
		t.Errorf("%d children left, want the module alone", n)
	}
}

func TestLeaksOfDevices(t *testing.T) { each(t, testLeaksOfDevices) }

func testLeaksOfDevices(t *testing.T, open opener) {
	cycle := func() {
		d := open(t, options{noCache: true})
		must(d.NewStream())(t)
		must(d.Alloc(1 << 20))(t)
		must(d.AllocPinned(1 << 20))(t)
		kernel(t, d, "count_up")
		ok(t, d.Close())
	}
	iterations := 100
	if testing.Short() || raceDetector {
		iterations = 5
	}
	for range 5 {
		cycle()
	}
	before := measure(t, nil)
	for range iterations {
		cycle()
	}
	after := measure(t, nil)
	if before.grew(after) { // a heap grows in steps; only a leak grows again
		t.Logf("before %+v, after %+v", before, after)
		for before = after; iterations > 0; iterations-- {
			cycle()
		}
		after = measure(t, nil)
	}
	before.compare(t, after)
}

func TestManyGoroutines(t *testing.T) { each(t, testManyGoroutines) }

func testManyGoroutines(t *testing.T, open opener) {
	d := open(t, options{noCache: true})
	f := kernel(t, d, "count_up")
	var all sync.WaitGroup
	for g := range uint32(64) {
		all.Go(func() {
			if err := useDevice(d, f, g); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
