package accel

import (
	"errors"
	"slices"
	"testing"
)

func (p testPool) promised(to *session, want int) {
	p.Helper()
	if n, ok := p.promise(to); ok != (want >= 0) || ok && int(n) != want {
		p.Errorf("page %d is promised, or none: %v; want %d", n, ok, want)
	}
}

func (p testPool) redeems(s *session, n int, want bool) {
	p.Helper()
	if got := p.redeem(s, n); got != want {
		p.Errorf("a table for %d positions got the page that was promised: %v", n, got)
	}
}

// TestPromises: promised pages are free to everybody, but the last that others get.
func TestPromises(t *testing.T) {
	p := testPool{t, &pool{pages: 4, extra: map[uint32]int{}}}
	a, b := &session{}, &session{pages: p.grown(nil, page)}
	p.promised(a, 1)
	p.promised(b, 2)
	p.using("two promised", 1)
	p.redeems(b, 3*page, false) // more than what is promised: as if nothing were
	p.redeems(b, page, false)
	p.redeems(b, page+1, true)
	if !slices.Equal(b.pages, []uint32{0, 2}) {
		t.Errorf("the table is %v", b.pages)
	}
	p.redeems(&session{}, 1, false)
	p.redeems(b, 2*page+1, false)
	p.using("one redeemed", 2)

	var e *KVFullError
	if _, err := p.grow(nil, 3*page); !errors.As(err, &e) || *e != (KVFullError{Need: 3, Free: 2, Pages: 4}) {
		t.Errorf("three pages where two are free: %v", err)
	}
	if c := p.grown(nil, 2*page); !slices.Equal(c, []uint32{3, 1}) {
		t.Errorf("all that is free is %v", c)
	}
	p.redeems(a, 1, false)
	p.promised(a, -1)
}

// TestReleasedPromises: they are promised again in their order, and nobody has them left.
func TestReleasedPromises(t *testing.T) {
	p := testPool{t, &pool{pages: 3, extra: map[uint32]int{}}}
	sessions := make([]session, 4)
	for range 2 {
		for i := range 3 {
			p.promised(&sessions[i], i)
		}
		p.promised(&sessions[3], -1)
		p.release()
		p.using("released", 0)
	}
	p.redeems(&sessions[0], 1, false)
	if all := p.grown(nil, 3*page); !slices.Equal(all, []uint32{0, 1, 2}) {
		t.Errorf("the pages are %v", all)
	}
}
