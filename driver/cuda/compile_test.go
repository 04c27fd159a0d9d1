package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

func TestRejectedPTX(t *testing.T) { each(t, testRejectedPTX) }

func testRejectedPTX(t *testing.T, open opener) {
	for _, cached := range []bool{true, false} {
		d := open(t, options{noCache: !cached, cacheDir: privateTemp(t)})
		t.Setenv("TMPDIR", t.TempDir())
		bad := strings.Replace(kernels, "add.rn.f32 %x, %x, %y;", "add.rn.f32 %x, %x, %nowhere;", 1)
		_, err := d.Load([]byte(bad))
		t.Logf("cached %v: %v", cached, err)
		wantKind(t, err, driver.ErrPTXRejected)
		if err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("the compiler's log is not in the error: %v", err)
		}
		saved, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*.ptx"))
		if len(saved) != 1 || !strings.Contains(err.Error(), saved[0]) {
			t.Fatalf("saved %q, which the error should name: %v", saved, err)
		}
		if text := must(os.ReadFile(saved[0]))(t); string(text) != bad {
			t.Error("the saved text is not the rejected text")
		}
		_, err = must(d.Load([]byte(kernels)))(t).Function("nosuch")
		wantKind(t, err, driver.ErrInvalid)
	}
}

// loads opens a device, loads and runs the text, and checks the counters of the cache.
func loads(t *testing.T, open opener, what string, text []byte, o options, want counts) {
	t.Helper()
	d := open(t, o)
	defer d.Close()
	start := time.Now()
	m := must(d.Load(text))(t)
	took := time.Since(start)
	s := must(d.NewStream())(t)
	out := must(d.Alloc(4 * 64))(t)
	ok(t, s.Launch(launchOf(must(m.Function("count_up"))(t), 64, 64, pack(out.Address(), uint32(64), uint32(9)))))
	got := make([]byte, 4*64)
	ok(t, s.Read(got, out.Address()))
	if words(got)[63] != 72 {
		t.Errorf("%s: the kernel computed %d", what, words(got)[63])
	}
	t.Logf("%s: %v", what, took)
	if countsOf(d.cache) != want {
		t.Errorf("%s: %+v, want %+v", what, countsOf(d.cache), want)
	}
}

func TestCache(t *testing.T) { each(t, testCache) }

func testCache(t *testing.T, open opener) {
	dir := filepath.Join(privateTemp(t), "cubin")
	// The text is new to the driver's own cache.
	text := []byte(kernels + "// " + time.Now().String() + "\n")
	cached := options{cacheDir: dir}
	loads(t, open, "miss", text, cached, counts{misses: 1})
	loads(t, open, "hit", text, cached, counts{hits: 1})
	loads(t, open, "no cache", text, options{noCache: true}, counts{})

	file := filepath.Join(privateTemp(t), "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	loads(t, open, "no directory", text, options{cacheDir: filepath.Join(file, "cubin")}, counts{failures: 1})

	files := must(filepath.Glob(filepath.Join(dir, "*"+cacheSuffix)))(t)
	if len(files) != 1 {
		t.Fatalf("files %q, want 1", files)
	}
	for _, file := range files {
		raw := must(os.ReadFile(file))(t)
		raw[len(raw)/2] ^= 1
		ok(t, os.WriteFile(file, raw, 0o600))
	}
	loads(t, open, "damaged", text, cached, counts{misses: 1, rejected: 1})
	loads(t, open, "replaced", text, cached, counts{hits: 1})

	// An intact file with code that the driver refuses.
	d := open(t, cached)
	ok(t, os.WriteFile(filepath.Join(dir, d.cacheKey(text)+cacheSuffix), encodeCached(image{cubin: []byte("no cubin")}.encode()), 0o600))
	ok(t, d.Close())
	if _, err := d.cache.dir.Stat("."); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the directory stays open: %v", err)
	}
	loads(t, open, "foreign", text, cached, counts{misses: 1, rejected: 1})
	loads(t, open, "replaced again", text, cached, counts{hits: 1})
}

// counts are the counters of a cache.
type counts struct{ hits, misses, rejected, failures int64 }

func countsOf(c *cache) counts {
	return counts{c.hits.Load(), c.misses.Load(), c.rejected.Load(), c.failures.Load()}
}
