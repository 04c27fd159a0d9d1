package cuda

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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
	dir := filepath.Join(privateTemp(t), "a", "b")
	c := cacheIn(t, dir)
	c.write("key", []byte("code"))
	if countsOf(c) != (counts{}) {
		t.Errorf("%+v", countsOf(c))
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "key"+cacheSuffix): 0o600} {
		if got := must(os.Stat(path))(t).Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
}

// privateTemp returns a new directory that only this user may write to, whatever the umask.
func privateTemp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ok(t, os.Chmod(dir, 0o700))
	return dir
}

// cacheIn opens a cache in dir.
func cacheIn(t *testing.T, dir string) *cache {
	t.Helper()
	c := newCache(options{cacheDir: dir})
	t.Cleanup(c.close)
	return c
}

// The cache is off, and says why, if another user can change or replace its directory or if it
// cannot be opened.
func TestCacheDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	chmod := func(mode os.FileMode, name ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			ok(t, os.Chmod(filepath.Join(append([]string{dir}, name...)...), mode))
		}
	}
	chown := func(name ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Chown(filepath.Join(append([]string{dir}, name...)...), os.Geteuid()+1, -1); err != nil {
				t.Skipf("only root can change the owner: %v", err)
			}
		}
	}
	tests := []struct {
		name, reason string
		spoil        func(t *testing.T, dir string) // the cache is dir/a/b
		want         string                         // "": the cache is used
	}{
		{"private", "only this user may write", func(*testing.T, string) {}, ""},
		{"readable", "reading is harmless", chmod(0o755, "a"), ""},
		{"sticky parent", "as /tmp: others may not rename what is not theirs", chmod(os.ModeSticky|0o777, "a"), ""},
		{"open", "anyone may add an entry", chmod(0o777, "a", "b"), "b: other users may write here"},
		{"open to the group", "some others may", chmod(0o770, "a", "b"), "b: other users may write here"},
		{"sticky", "anyone may still add an entry", chmod(os.ModeSticky|0o777, "a", "b"), "b: other users may write here"},
		{"open parent", "anyone may replace the directory", chmod(0o777, "a"), "a: other users may replace b"},
		{"open grandparent", "anyone may replace the parent", chmod(0o777), "other users may replace a"},
		{"owned by another", "its owner may write", chown("a", "b"), "b: other users may write here"},
		{"parent owned by another", "its owner may replace the directory", chown("a"), "a: other users may replace b"},
		{"link to an open directory", "the target counts", func(t *testing.T, dir string) {
			ok(t, os.Remove(filepath.Join(dir, "a", "b")))
			ok(t, os.Mkdir(filepath.Join(dir, "open"), 0o700))
			ok(t, os.Chmod(filepath.Join(dir, "open"), 0o777))
			ok(t, os.Symlink(filepath.Join(dir, "open"), filepath.Join(dir, "a", "b")))
		}, "open: other users may write here"},
		{"link into an open parent", "the target's parents count", func(t *testing.T, dir string) {
			ok(t, os.Remove(filepath.Join(dir, "a", "b")))
			ok(t, os.MkdirAll(filepath.Join(dir, "open", "b"), 0o700))
			ok(t, os.Chmod(filepath.Join(dir, "open"), 0o777))
			ok(t, os.Symlink(filepath.Join(dir, "open", "b"), filepath.Join(dir, "a", "b")))
		}, "open: other users may replace b"},
		{"file", "no directory", func(t *testing.T, dir string) {
			ok(t, os.Remove(filepath.Join(dir, "a", "b")))
			ok(t, os.WriteFile(filepath.Join(dir, "a", "b"), nil, 0o600))
		}, "not a directory"},
		{"below a file", "it cannot be made", func(t *testing.T, dir string) {
			ok(t, os.RemoveAll(filepath.Join(dir, "a")))
			ok(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
		}, "not a directory"},
		{"no access", "it cannot be opened", func(t *testing.T, dir string) {
			if os.Geteuid() == 0 {
				t.Skip("root may open every directory")
			}
			chmod(0, "a", "b")(t, dir)
		}, "permission denied"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := privateTemp(t)
			path := filepath.Join(dir, "a", "b")
			ok(t, os.MkdirAll(path, 0o700))
			tt.spoil(t, dir)
			c := cacheIn(t, path)
			if tt.want == "" {
				if !c.enabled() || c.off != nil || c.failures.Load() != 0 {
					t.Errorf("%s: %v, %+v", tt.reason, c.off, countsOf(c))
				}
				return
			}
			if c.enabled() || c.failures.Load() != 1 || c.off == nil || !strings.HasPrefix(c.off.Error(), "cuda: the kernel cache is not used: ") ||
				!strings.Contains(c.off.Error(), tt.want) {
				t.Errorf("%s: enabled %v, %v; %+v", tt.reason, c.enabled(), c.off, countsOf(c))
			}
		})
	}
}

// The cache stays in the directory that was checked, although another has its name.
func TestCacheDirectoryReplaced(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows renames no open directory")
	}
	dir := privateTemp(t)
	path, moved, trap := filepath.Join(dir, "cubin"), filepath.Join(dir, "moved"), filepath.Join(dir, "trap")
	c := cacheIn(t, path)
	c.write("before", []byte("code"))
	ok(t, os.Rename(path, moved))
	ok(t, os.Mkdir(trap, 0o700))
	ok(t, os.Symlink(trap, path))
	ok(t, os.WriteFile(filepath.Join(trap, "before"+cacheSuffix), encodeCached([]byte("evil")), 0o600))
	c.write("after", []byte("code"))
	for _, key := range []string{"before", "after"} {
		if got, found := c.read(key); !found || string(got) != "code" {
			t.Errorf("%s: read %q, %v", key, got, found)
		}
		if _, err := os.Stat(filepath.Join(moved, key+cacheSuffix)); err != nil {
			t.Error(err)
		}
	}
	if left := must(os.ReadDir(trap))(t); len(left) != 1 || countsOf(c) != (counts{}) {
		t.Errorf("%v in the other directory; %+v", left, countsOf(c))
	}
}

// What cannot be an entry of the cache costs a compilation and is replaced: a link, a pipe, a
// huge file. Reading does not wait for a pipe or allocate what a header claims.
func TestCacheEntries(t *testing.T) {
	tests := []struct {
		name  string
		plant func(t *testing.T, file string) error
		want  counts
	}{
		{"link outside", func(t *testing.T, file string) error {
			evil := filepath.Join(privateTemp(t), "evil")
			ok(t, os.WriteFile(evil, encodeCached([]byte("evil")), 0o600))
			return os.Symlink(evil, file)
		}, counts{failures: 1}},
		{"pipe", func(t *testing.T, file string) error { return mkfifo(file) }, counts{rejected: 1}},
		{"huge", func(t *testing.T, file string) error {
			ok(t, os.WriteFile(file, []byte(cacheMagic), 0o600))
			return os.Truncate(file, maxEntry+1)
		}, counts{rejected: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := privateTemp(t)
			c := cacheIn(t, dir)
			if err := tt.plant(t, filepath.Join(dir, "key"+cacheSuffix)); err != nil {
				t.Skipf("this system has none: %v", err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, found := c.read("key")
			runtime.ReadMemStats(&after)
			if found || countsOf(c) != tt.want {
				t.Errorf("read %q, %v; %+v, want %+v", got, found, countsOf(c), tt.want)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("%d bytes allocated", n)
			}
			c.write("key", []byte("code"))
			if got, found := c.read("key"); !found || string(got) != "code" {
				t.Errorf("after it was replaced: %q, %v; %+v", got, found, countsOf(c))
			}
			if left := must(os.ReadDir(dir))(t); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// An entry that would not be read is not written.
func TestCacheHugeKernel(t *testing.T) {
	dir := privateTemp(t)
	c := cacheIn(t, dir)
	c.write("key", make([]byte, maxEntry))
	if left := must(os.ReadDir(dir))(t); len(left) != 0 || c.failures.Load() != 1 {
		t.Errorf("%v, %+v", left, countsOf(c))
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
	if runtime.GOOS == "windows" {
		t.Skip("Windows removes no open directory")
	}
	dir := filepath.Join(privateTemp(t), "gone")
	c := cacheIn(t, dir)
	ok(t, os.Remove(dir))
	c.write("key", []byte("code"))
	if c.failures.Load() != 1 {
		t.Errorf("a failed write is not counted: %+v", countsOf(c))
	}
}

func TestCachePrunesLeastRecentlyUsed(t *testing.T) {
	dir := privateTemp(t)
	size := int64(len(encodeCached([]byte("code"))))
	c := newCache(options{cacheDir: dir, cacheLimit: 3 * size})
	t.Cleanup(c.close)
	file := func(key string) string { return filepath.Join(dir, key+cacheSuffix) }
	old := time.Now().Add(-3 * time.Hour)
	for i := range 3 {
		key := fmt.Sprint(i)
		c.write(key, []byte("code"))
		at := old.Add(time.Duration(i) * time.Minute)
		ok(t, os.Chtimes(file(key), at, at))
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
		file("0"): true, file("1"): false, file("2"): true, file("3"): true,
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
