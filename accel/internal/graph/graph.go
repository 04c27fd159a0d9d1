// Package graph queues lists of kernel launches: as a captured graph if possible, else one
// by one.
package graph

import "github.com/lockstep-go/lockstep/driver"

// List is a list of launches that can be queued any number of times.
type List struct {
	launches []driver.Launch
	capture  bool         // whether Capture is still to be tried
	graph    driver.Graph // nil: launched one by one
}

// NewList returns a list that is launched one by one until it is captured. If capture is
// false, it never is.
func NewList(launches []driver.Launch, capture bool) *List {
	return &List{launches: launches, capture: capture}
}

// Launches returns the launches in order.
func (l *List) Launches() []driver.Launch { return l.launches }

// Captured reports whether the list is launched as a graph.
func (l *List) Captured() bool { return l.graph != nil }

// Capture captures the list as a graph. Only the first call tries. After an error the list
// is launched one by one.
func (l *List) Capture(s driver.Stream) error {
	if !l.capture {
		return nil
	}
	l.capture = false
	g, err := s.Capture(func() error { return s.Launch(l.launches...) })
	if err == nil {
		l.graph = g
	}
	return err
}

// Launch queues the list.
func (l *List) Launch(s driver.Stream) error {
	if l.graph != nil {
		return l.graph.Launch(s)
	}
	return s.Launch(l.launches...)
}

// Close releases the graph.
func (l *List) Close() error {
	if l.graph == nil {
		return nil
	}
	return l.graph.Close()
}
