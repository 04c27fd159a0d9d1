package kernelbench

import (
	"context"
	"runtime"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// library builds and loads each kernel once, on first use. It is safe for concurrent use.
type library struct {
	set   *kernelcache.Cache
	mu    sync.Mutex
	built map[string]func() (*ptx.Kernel, error) // by kernel name
}

func newLibrary(set *kernelcache.Cache) *library {
	return &library{set: set, built: map[string]func() (*ptx.Kernel, error){}}
}

// kernel returns a kernel that is loaded.
func (l *library) kernel(s kernel.Spec) (*ptx.Kernel, error) {
	l.mu.Lock()
	build, ok := l.built[s.Name()]
	if !ok {
		build = sync.OnceValues(func() (*ptx.Kernel, error) {
			k, err := s.Build()
			if err == nil {
				_, err = l.set.Function(k)
			}
			return k, err
		})
		l.built[s.Name()] = build
	}
	l.mu.Unlock()
	return build()
}

// launch converts a launch for the driver.
func (l *library) launch(x ptx.Launch, err error) (driver.Launch, error) {
	if err != nil {
		return driver.Launch{}, err
	}
	return l.set.Launch(x)
}

// load loads the kernels of all cases in parallel, as compiling takes longer than measuring. It
// returns only the error of ctx: a kernel that fails here fails again on use.
func (l *library) load(ctx context.Context, cases []Case) error {
	next := make(chan kernel.Spec)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for s := range next {
				l.kernel(s)
			}
		})
	}
	for _, c := range cases {
		if ctx.Err() != nil {
			break
		}
		next <- c.Spec
	}
	close(next)
	workers.Wait()
	return ctx.Err()
}
