package cuda

import "sync"

// loader finds a library once and remembers it. A failure is not remembered: the
// driver may be installed, or its device node appear, while a server runs.
type loader struct {
	finder
	mu     sync.Mutex
	loaded *library
}

var system = loader{finder: systemFinder()}

func (l *loader) get() (*library, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded != nil {
		return l.loaded, nil
	}
	found, err := l.find()
	if err != nil {
		return nil, err
	}
	l.loaded = found
	return found, nil
}
