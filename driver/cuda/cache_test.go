package cuda

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

func TestCacheFile(t *testing.T) {
	whole := encodeCached(cached{"a log", []byte("machine code")})
	if got, ok := decodeCached(whole); !ok || got.log != "a log" || string(got.cubin) != "machine code" {
		t.Fatalf("read back %+v, %v", got, ok)
	}
	for n := range whole {
		if _, ok := decodeCached(whole[:n]); ok {
			t.Errorf("a file cut to %d of %d bytes is taken", n, len(whole))
		}
		changed := bytes.Clone(whole)
		changed[n] ^= 0x10
		if _, ok := decodeCached(changed); ok {
			t.Errorf("a file changed at byte %d is taken", n)
		}
	}
	if _, ok := decodeCached(append(bytes.Clone(whole), 0)); ok {
		t.Error("a file with a byte too many is taken")
	}
}

func TestCachePermissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	c := newCache(Options{CacheDir: dir})
	c.write("key", cached{cubin: []byte("code")})
	if c.stats() != (Stats{}) {
		t.Errorf("%+v", c.stats())
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, c.path("key"): 0o600} {
		if got := must(os.Stat(path))(t).Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	ok(t, os.Chmod(dir, 0o777))
	if c := newCache(Options{CacheDir: dir}); c.enabled() || c.stats().CacheFailures != 1 {
		t.Errorf("a directory that anyone may write to is used: %+v", c.stats())
	}
}

func TestCacheOfSomeoneElse(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.Chmod(dir, 0o755))
	if err := os.Chown(dir, os.Geteuid()+1, -1); err != nil {
		t.Skipf("only root gives directories away: %v", err)
	}
	if c := newCache(Options{CacheDir: dir}); c.enabled() || c.stats().CacheFailures != 1 {
		t.Errorf("a directory that its owner may write to, who is not the user, is used: %+v", c.stats())
	}
}

// Whatever the compiled code depends on changes the key, and nothing else does.
func TestCacheKey(t *testing.T) {
	device := func() *Device {
		return &Device{lib: &library{build: "550.54.15"}, props: driver.Properties{
			Name: "GPU", DriverVersion: 12040, ComputeCapability: 90, SMs: 132,
		}}
	}
	const text = ".version 7.4"
	first := device().cacheKey([]byte(text))
	for _, c := range []struct {
		name   string
		text   string
		change func(*Device)
		same   bool
	}{
		{"nothing", text, func(*Device) {}, true},
		{"the number of SMs", text, func(d *Device) { d.props.SMs = 1 }, true},
		{"the text", text + " ", func(*Device) {}, false},
		{"the driver's version", text, func(d *Device) { d.props.DriverVersion = 12050 }, false},
		{"the driver's build", text, func(d *Device) { d.lib.build = "550.90.07" }, false},
		{"the architecture", text, func(d *Device) { d.props.ComputeCapability = 89 }, false},
		{"the device's name", text, func(d *Device) { d.props.Name = "other GPU" }, false},
		{"the log", text, func(d *Device) { d.options.Verbose = true }, false},
	} {
		d := device()
		c.change(d)
		if got := d.cacheKey([]byte(c.text)); (got == first) != c.same {
			t.Errorf("%s: the key stays: %v, want %v", c.name, got == first, c.same)
		}
	}
}

func TestCacheThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	c := newCache(Options{CacheDir: filepath.Join(file, "dir")})
	if c.enabled() || c.stats().CacheFailures != 1 {
		t.Errorf("a cache below a file: enabled %v, %+v", c.enabled(), c.stats())
	}
	dir := filepath.Join(t.TempDir(), "gone")
	c = newCache(Options{CacheDir: dir})
	ok(t, os.Remove(dir))
	c.write("key", cached{cubin: []byte("code")})
	if c.stats().CacheFailures != 1 {
		t.Errorf("a failed write is not counted: %+v", c.stats())
	}
}

func TestCachePrunesTheOldest(t *testing.T) {
	dir := t.TempDir()
	size := int64(len(encodeCached(cached{cubin: []byte("code")})))
	c := newCache(Options{CacheDir: dir, CacheLimit: 3 * size})
	ok(t, os.Chmod(dir, 0o700))
	old := time.Now().Add(-3 * time.Hour)
	for i := range 3 {
		key := fmt.Sprint(i)
		c.write(key, cached{cubin: []byte("code")})
		at := old.Add(time.Duration(i) * time.Minute)
		ok(t, os.Chtimes(c.path(key), at, at))
	}
	foreign := filepath.Join(dir, "notes.txt")
	leftover, recent := filepath.Join(dir, "new-1.tmp"), filepath.Join(dir, "new-2.tmp")
	for _, path := range []string{foreign, leftover, recent} {
		ok(t, os.WriteFile(path, make([]byte, 1000), 0o600))
	}
	ok(t, os.Chtimes(foreign, old, old))
	ok(t, os.Chtimes(leftover, old, old))
	if _, found := c.read("0"); !found { // in use again, so no longer the oldest
		t.Fatal("not there")
	}
	c.write("3", cached{cubin: []byte("code")})
	for path, want := range map[string]bool{
		c.path("0"): true, c.path("1"): false, c.path("2"): true, c.path("3"): true,
		foreign: true, leftover: false, recent: true,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, should be there: %v", filepath.Base(path), err, want)
		}
	}
	if c.stats().CacheFailures != 0 {
		t.Errorf("%+v", c.stats())
	}
}
