package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

func TestEntryNamesAreUnique(t *testing.T) {
	seen := map[string]entry{}
	for e := range entryCount {
		name := e.String()
		if before, twice := seen[name]; twice || !strings.HasPrefix(name, "cu") {
			t.Errorf("entry %d is %q, as is entry %d", e, name, before)
		}
		seen[name] = e
	}
}

func TestLibraryErrorListsPaths(t *testing.T) {
	paths := []string{"libone.so", "/two/libtwo.so", "/three/libthree.so"}
	tries := 0
	l := loader{finder: finder{
		paths:  func() []string { return paths },
		open:   func(path string) (uintptr, error) { tries++; return 0, errors.New(path + ": no such file") },
		symbol: func(uintptr, string) (uintptr, error) { return 0, errors.New("never asked") },
	}}
	for range 2 { // a failure is not remembered
		_, err := l.get()
		wantKind(t, err, driver.ErrNoDriver)
		var missing *LibraryError
		if !errors.As(err, &missing) || len(missing.Tried) != len(paths) {
			t.Fatalf("%v, want a LibraryError with %d paths", err, len(paths))
		}
		for i, p := range paths {
			if missing.Tried[i] != p+": no such file" {
				t.Errorf("path %d is %q, want %s with its reason", i, missing.Tried[i], p)
			}
		}
	}
	if tries != 6 {
		t.Errorf("%d tries, want 6", tries)
	}
}

func TestLibraryErrorText(t *testing.T) {
	for _, c := range []struct {
		name  string
		tried []string
		want  string
	}{
		{"no paths", nil, "cuda: no GPU driver: there is none for this operating system"},
		{"one path", []string{"a: gone"}, "cuda: no GPU driver: a: gone"},
		{"several paths", []string{"a: gone", "b: gone", "c: gone"}, "cuda: no GPU driver: tried 3 places, first a: gone"},
	} {
		if got := (&LibraryError{driver.ErrNoDriver, c.tried}).Error(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSystemPaths(t *testing.T) {
	for _, p := range systemFinder().paths() {
		if !strings.Contains(p, "cuda") {
			t.Errorf("path %q is not a path of libcuda", p)
		}
	}
}

// TestWrongLibrary checks a library without the functions of libcuda.
func TestWrongLibrary(t *testing.T) {
	l := loader{finder: finder{
		paths:  func() []string { return []string{"libm"} },
		open:   func(string) (uintptr, error) { return 1, nil },
		symbol: func(_ uintptr, name string) (uintptr, error) { return 0, errors.New("undefined: " + name) },
	}}
	_, err := l.get()
	wantKind(t, err, driver.ErrNoDriver)
	if !strings.Contains(err.Error(), "libm: it exports no cuInit") {
		t.Errorf("the error lacks a reason: %v", err)
	}
}

func TestPTXVersion(t *testing.T) {
	for _, c := range []struct {
		name      string
		cuda, ptx int
	}{
		{"older than the table", 10020, 0},
		{"oldest of the table", 11000, 70},
		{"11.4", 11040, 74},
		{"11.8", 11080, 78},
		{"12.0", 12000, 80},
		{"12.4", 12040, 84},
		{"12.5", 12050, 85},
		{"12.6, as 12.5", 12060, 85},
		{"12.8", 12080, 87},
		{"12.9", 12090, 88},
		{"13.0", 13000, 90},
		{"13.1", 13010, 91},
		{"newer than the table", 14000, 91},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ptxVersion(c.cuda); got != c.ptx {
				t.Errorf("ptxVersion(%d) = %d, want %d", c.cuda, got, c.ptx)
			}
		})
	}
}

func TestSource(t *testing.T) {
	for _, c := range []struct {
		name, text string
		newest     int
		want       string // part of the error; "": no error
	}{
		{"valid", ".version 7.4\n.target sm_80\n", 84, ""},
		{"newest version", ".version 8.4", 84, ""},
		{"too new", ".version 8.5\n", 84, ".version 8.5 and the driver takes up to 8.4"},
		{"too new major version", ".version 9.0\n", 84, ".version 9.0 and the driver takes up to 8.4"},
		{"after comments", "// .version 9.9\n/* .version 9.9\n */ \n\t.version 7.0\n", 74, ""},
		{"too new, after comments", "// about\n/**/.version 8.0 // now\n", 74, ".version 8.0"},
		{"unknown driver", ".version 9.9\n", 0, ""},
		{"no version, left to the driver", ".target sm_80\n", 74, ""},
		{"open comment, left to the driver", "/* .version 9.9", 74, ""},
		{"empty, left to the driver", "", 74, ""},
		{"not ASCII", ".version 7.4\n// naïve\n", 84, "offset 18, line 2"},
		{"NUL", ".version 7.4\n\x00", 84, "offset 13, line 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := checkSource([]byte(c.text), c.newest)
			if c.want == "" {
				ok(t, err)
				return
			}
			wantKind(t, err, driver.ErrPTXRejected)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestStickyCodes(t *testing.T) {
	sticky := map[code]bool{700: true, 715: true, 716: true, 717: true, 718: true, 719: true}
	for c := range sticky {
		if !kinds[c].sticky {
			t.Errorf("%d is not sticky", c)
		}
	}
	for c, k := range kinds {
		if k.sticky != (k.kind == driver.ErrDeviceLost) {
			t.Errorf("%d: sticky %v with kind %v", c, k.sticky, k.kind)
		}
		if k.kind == nil {
			t.Errorf("%d has no kind", c)
		}
	}
}
