package cuda

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSlowKernels checks which kernels are slow, however the module is loaded.
func TestSlowKernels(t *testing.T) {
	const (
		serialized = "ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline stage in the function 'count_up'\n"
		ignored    = "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.\n"
		spilled    = "ptxas info    : Compiling entry function 'spread' for 'sm_90a'\nptxas info    : Function properties for spread\n" +
			"ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\nptxas info    : Used 255 registers\n"
	)
	tests := []struct {
		name, info, warnings string
		local                int32
		want                 []string
	}{
		{"no log", "", "", 0, nil},
		{"a warning that names a kernel", serialized, "", 0, []string{"cuda: kernel count_up is slow: C7515: "}},
		{"a warning that names none", ignored, "", 0, []string{"cuda: kernel count_up is slow: C7508: ", "cuda: kernel spread is slow: C7508: "}},
		{"a warning in the error log", "", serialized, 0, []string{"cuda: kernel count_up is slow: C7515: "}},
		{"spills", spilled, "", 0, []string{"cuda: kernel spread is slow: 4 bytes of spill stores, 12 bytes of spill loads"}},
		{"local memory without a log", "", "", 8, []string{
			"cuda: kernel count_up is slow: 8 bytes of local memory per thread", "cuda: kernel spread is slow: 8 bytes of local memory per thread"}},
		{"a full log", serialized + strings.Repeat("x", logBytes), "", 0, []string{"cuda: kernel count_up is slow: C7515: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.info, f.warnings, f.local = tt.info, tt.warnings, tt.local
			dir := filepath.Join(privateTemp(t), "cubin")
			check := func(how string, o options) {
				d := f.open(t, o)
				m := must(d.Load([]byte(kernels)))(t)
				for _, name := range []string{"spread", "count_up", "count_up"} {
					must(m.Function(name))(t)
				}
				ok(t, d.Close())
				got := d.SlowKernels()
				if !slices.EqualFunc(got, tt.want, func(err error, want string) bool { return strings.HasPrefix(err.Error(), want) }) {
					t.Errorf("%s: %q, want %q", how, got, tt.want)
				}
			}
			check("linked", options{cacheDir: dir})
			f.info, f.warnings = "", ""
			check("from the cache", options{cacheDir: dir})
			f.info, f.warnings = tt.info, tt.warnings
			check("without a cache", options{noCache: true})
			f.failures[cuLinkCreate] = entryMissing
			check("without a linker", options{cacheDir: filepath.Join(privateTemp(t), "cubin")})
		})
	}
}

// TestLinkerMakesKernelSlow checks that a text that only the linker makes slow is not linked twice, or not at all
// if that is known before, and that the linked code is not used.
func TestLinkerMakesKernelSlow(t *testing.T) {
	for _, tt := range []struct {
		name, text, log string
		links           int
	}{
		{"known by the log", kernels, "ptxas info    : (C7509) Potential Performance Loss: wgmma.mma_async instructions are serialized due to the presence of Extern calls in the function 'spread'\n", 1},
		{"known by the text", kernels + "// setmaxnreg\n", "ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirement.\n", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.linkerInfo = tt.log
			dir := filepath.Join(privateTemp(t), "cubin")
			for i, want := range []counts{{misses: 1}, {}} {
				d := f.open(t, options{cacheDir: dir})
				must(must(d.Load([]byte(tt.text)))(t).Function("spread"))(t)
				links, compiles := f.count(cuLinkComplete), f.count(cuLibraryLoadData)
				if links != tt.links || compiles != i+1 || countsOf(d.cache) != want {
					t.Errorf("load %d: %d links, %d compilations, cache %+v", i, links, compiles, countsOf(d.cache))
				}
				if slow := d.SlowKernels(); slow != nil {
					t.Errorf("load %d: %q", i, slow)
				}
				ok(t, d.Close())
			}
		})
	}
}
