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
	whole := encodeCached([]byte("machine code"))
	if got, ok := decodeCached(whole); !ok || string(got) != "machine code" {
		t.Fatalf("read back %q, %v", got, ok)
	}
	for n := range whole {
		if _, ok := decodeCached(whole[:n]); ok {
			t.Errorf("a file cut to %d of %d bytes is accepted", n, len(whole))
		}
		changed := bytes.Clone(whole)
		changed[n] ^= 0x10
		if _, ok := decodeCached(changed); ok {
			t.Errorf("a file changed at byte %d is accepted", n)
		}
	}
	if _, ok := decodeCached(append(bytes.Clone(whole), 0)); ok {
		t.Error("a file with a byte too many is accepted")
	}
}

func TestCachePermissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	c := newCache(options{cacheDir: dir})
	c.write("key", []byte("code"))
	if countsOf(c) != (counts{}) {
		t.Errorf("%+v", countsOf(c))
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, c.path("key"): 0o600} {
		if got := must(os.Stat(path))(t).Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	ok(t, os.Chmod(dir, 0o777))
	if c := newCache(options{cacheDir: dir}); c.enabled() || c.failures.Load() != 1 {
		t.Errorf("a directory that anyone may write to is used: %+v", countsOf(c))
	}
}

func TestCacheOwnedByOther(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.Chmod(dir, 0o755))
	if err := os.Chown(dir, os.Geteuid()+1, -1); err != nil {
		t.Skipf("only root can change the owner: %v", err)
	}
	if c := newCache(options{cacheDir: dir}); c.enabled() || c.failures.Load() != 1 {
		t.Errorf("a directory of another user is used: %+v", countsOf(c))
	}
}

// TestCacheKey checks that exactly the inputs of the compiler change the key.
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
	} {
		d := device()
		c.change(d)
		if got := d.cacheKey([]byte(c.text)); (got == first) != c.same {
			t.Errorf("%s: same key: %v, want %v", c.name, got == first, c.same)
		}
	}
}

func TestCacheNotWritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	c := newCache(options{cacheDir: filepath.Join(file, "dir")})
	if c.enabled() || c.failures.Load() != 1 {
		t.Errorf("a cache below a file: enabled %v, %+v", c.enabled(), countsOf(c))
	}
	dir := filepath.Join(t.TempDir(), "gone")
	c = newCache(options{cacheDir: dir})
	ok(t, os.Remove(dir))
	c.write("key", []byte("code"))
	if c.failures.Load() != 1 {
		t.Errorf("a failed write is not counted: %+v", countsOf(c))
	}
}

func TestCachePrunesLeastRecentlyUsed(t *testing.T) {
	dir := t.TempDir()
	size := int64(len(encodeCached([]byte("code"))))
	c := newCache(options{cacheDir: dir, cacheLimit: 3 * size})
	ok(t, os.Chmod(dir, 0o700))
	old := time.Now().Add(-3 * time.Hour)
	for i := range 3 {
		key := fmt.Sprint(i)
		c.write(key, []byte("code"))
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
	if _, found := c.read("0"); !found { // reading renews its time
		t.Fatal("not there")
	}
	c.write("3", []byte("code"))
	for path, want := range map[string]bool{
		c.path("0"): true, c.path("1"): false, c.path("2"): true, c.path("3"): true,
		foreign: true, leftover: false, recent: true,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, should be there: %v", filepath.Base(path), err, want)
		}
	}
	if c.failures.Load() != 0 {
		t.Errorf("%+v", countsOf(c))
	}
}
