package cuda

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

// The driver does not lock graphs: mu does, the executable's before the graph's.

type graph struct {
	resource
	mu sync.Mutex
}

type executable struct {
	resource
	mu sync.Mutex
}

// Instantiate makes the graph ready to run.
func (g *graph) Instantiate() (driver.Executable, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.use("Instantiate"); err != nil {
		return nil, err
	}
	x := new(executable)
	if err := x.create(g.dev, executables, cuGraphInstantiate, g.handle, 0); err != nil {
		return nil, err
	}
	return x, nil
}

// Nodes is the number of operations captured.
func (g *graph) Nodes() (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.use("Nodes"); err != nil {
		return 0, err
	}
	var n uintptr
	err := g.dev.ask(cuGraphGetNodes, g.handle, 0, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

// Launch queues one run.
func (x *executable) Launch(on driver.Stream) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.use("Launch"); err != nil {
		return err
	}
	s, ok := on.(*stream)
	if !ok || s == nil {
		return invalid("Launch", fmt.Sprintf("the stream is a %T", on))
	}
	if err := s.eager("Launch"); err != nil {
		return err
	}
	if s.dev != x.dev {
		return invalid("Launch", "the stream is another device's")
	}
	return x.dev.order(cuGraphLaunch, x.handle, s.handle)
}

// updateResult is CUgraphExecUpdateResultInfo.
type updateResult struct {
	result    int32
	node      uintptr
	otherNode uintptr
}

// updateResults names CUgraphExecUpdateResult.
var updateResults = [...]string{
	"success", "error", "topology changed", "node type changed", "function changed", "parameters changed",
	"not supported", "unsupported function change", "attributes changed",
}

// Update takes over the parameters of a graph of the same shape.
func (x *executable) Update(from driver.Graph) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.use("Update"); err != nil {
		return err
	}
	g, ok := from.(*graph)
	if !ok || g == nil {
		return invalid("Update", fmt.Sprintf("the graph is a %T", from))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.use("Update"); err != nil {
		return err
	}
	if g.dev != x.dev {
		return invalid("Update", "the graph is another device's")
	}
	s, err := x.dev.enter()
	if err != nil {
		return err
	}
	defer x.dev.leave(s)
	var info updateResult
	c := x.dev.lib.call(cuGraphExecUpdate, x.handle, g.handle, uintptr(unsafe.Pointer(&info)))
	detail := ""
	if n := int(info.result); n > 0 && n < len(updateResults) {
		detail = updateResults[n]
	}
	return x.dev.check(cuGraphExecUpdate, c, detail)
}

// Close of a graph or an executable waits for a call that uses it.
func (g *graph) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.resource.Close()
}

// Close frees it once its last run is done: the driver sees to that.
func (x *executable) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.resource.Close()
}
