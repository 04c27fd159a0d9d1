package cuda

import (
	"fmt"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
)

// graph is an executable graph, a CUgraphExec. The driver does not lock it; mu does.
type graph struct {
	resource
	mu sync.Mutex
}

// Launch queues one run.
func (g *graph) Launch(on driver.Stream) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.use("Launch"); err != nil {
		return err
	}
	s, ok := on.(*stream)
	if !ok || s == nil {
		return invalid("Launch", fmt.Sprintf("the stream is a %T", on))
	}
	if err := s.eager("Launch"); err != nil {
		return err
	}
	if s.dev != g.dev {
		return invalid("Launch", "the stream is another device's")
	}
	return g.dev.order(cuGraphLaunch, g.handle, s.handle)
}

// Close waits for a concurrent Launch. The driver itself waits for queued runs.
func (g *graph) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.resource.Close()
}
