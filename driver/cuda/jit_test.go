package cuda

import (
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
		d := open(t, Options{NoCache: !cached, CacheDir: t.TempDir()})
		t.Setenv("TMPDIR", t.TempDir())
		bad := strings.Replace(kernels, "add.rn.f32 %x, %x, %y;", "add.rn.f32 %x, %x, %nowhere;", 1)
		_, err := d.Load([]byte(bad))
		t.Logf("cached %v: %v", cached, err)
		wantKind(t, err, driver.ErrPTXRejected)
		if err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("the compiler's log is not in the error: %v", err)
		}
		kept, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*.ptx"))
		if len(kept) != 1 || !strings.Contains(err.Error(), kept[0]) {
			t.Fatalf("kept %q, which the error should name: %v", kept, err)
		}
		if text := must(os.ReadFile(kept[0]))(t); string(text) != bad {
			t.Error("the text kept is not the text rejected")
		}
		_, err = must(d.Load([]byte(kernels)))(t).Function("nosuch")
		wantKind(t, err, driver.ErrInvalid)
	}
}

// loads opens a device, loads the text, runs it, and holds the cache's counts to want.
func loads(t *testing.T, open opener, what string, text []byte, o Options, want Stats) {
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
	if d.Stats() != want {
		t.Errorf("%s: %+v, want %+v", what, d.Stats(), want)
	}
}

func TestCache(t *testing.T) { each(t, testCache) }

func testCache(t *testing.T, open opener) {
	dir := filepath.Join(t.TempDir(), "cubin")
	// A text that no driver's cache has seen.
	text := []byte(kernels + "// " + time.Now().String() + "\n")
	cached := Options{CacheDir: dir}
	loads(t, open, "miss", text, cached, Stats{CacheMisses: 1})
	loads(t, open, "hit", text, cached, Stats{CacheHits: 1})
	loads(t, open, "verbose, another key", text, Options{CacheDir: dir, Verbose: true}, Stats{CacheMisses: 1})
	loads(t, open, "no cache", text, Options{NoCache: true}, Stats{})

	files := must(filepath.Glob(filepath.Join(dir, "*"+cacheSuffix)))(t)
	if len(files) != 2 {
		t.Fatalf("files %q, want 2", files)
	}
	for _, file := range files {
		raw := must(os.ReadFile(file))(t)
		raw[len(raw)/2] ^= 1
		ok(t, os.WriteFile(file, raw, 0o600))
	}
	loads(t, open, "tampered", text, cached, Stats{CacheMisses: 1, CacheRejected: 1})
	loads(t, open, "written anew", text, cached, Stats{CacheHits: 1})

	// A file in order as far as the cache can tell, whose code the driver refuses.
	d := open(t, cached)
	ok(t, os.WriteFile(d.cache.path(d.cacheKey(text)), encodeCached(entryOf("no cubin")), 0o600))
	loads(t, open, "foreign", text, cached, Stats{CacheMisses: 1, CacheRejected: 1})
	loads(t, open, "written anew again", text, cached, Stats{CacheHits: 1})
}

// entryOf is what the cache keeps of a module.
func entryOf(code string) cached { return cached{cubin: []byte(code)} }
