package generate

import (
	"strings"

	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// stopper turns token ids into text: whole UTF-8 characters, up to the first complete
// stop string. It holds text back while that may be the beginning of a stop string.
// The text does not depend on where tokens begin and end.
type stopper struct {
	decoder  *tokenizer.Decoder // nil: no vocabulary, no text
	stops    []string
	heldBack string // text that may be the beginning of a stop string
	immune   int    // bytes of heldBack in which no stop string may end
	stopped  bool   // a stop string is complete: no further text
}

// next returns the text that a token completes, and whether it completes a stop string. If so,
// the text is what precedes the stop string. If mayStop is false, stop strings that end in the text of
// the token are ordinary text.
func (s *stopper) next(id int, mayStop bool) (text string, stopped bool) {
	if s.decoder == nil {
		return "", false
	}
	return s.feed(s.decoder.Next(id), mayStop)
}

// flush returns the text that is held back when the generation ends. An incomplete
// character becomes U+FFFD.
func (s *stopper) flush() string {
	if s.decoder == nil || s.stopped {
		return ""
	}
	text, stopped := s.feed(s.decoder.Flush(), true)
	if !stopped {
		text += s.heldBack
	}
	s.heldBack = ""
	return text
}

// feed returns the text that can be shown: what was held back, with the new text behind it, but
// without what may be the beginning of a stop string.
func (s *stopper) feed(text string, mayStop bool) (safe string, stopped bool) {
	s.heldBack += text
	if !mayStop {
		s.immune = len(s.heldBack)
	}
	if at := s.match(); at >= 0 {
		safe, s.heldBack, s.stopped = s.heldBack[:at], "", true
		return safe, true
	}
	n := len(s.heldBack) - s.undecided()
	safe, s.heldBack = s.heldBack[:n], s.heldBack[n:]
	s.immune = max(0, s.immune-n)
	return safe, false
}

// match returns the start of the stop string that ends first in the text held back, behind what is immune, or -1.
// Among those with the same end it takes the longest.
func (s *stopper) match() int {
	begin, end := -1, 0
	for _, stop := range s.stops {
		first := max(0, s.immune-len(stop)+1) // a stop string that begins earlier ends too early
		i := strings.Index(s.heldBack[min(first, len(s.heldBack)):], stop)
		if i < 0 {
			continue
		}
		i += first
		if e := i + len(stop); begin < 0 || e < end || e == end && i < begin {
			begin, end = i, e
		}
	}
	return begin
}

// undecided returns the length of the longest suffix of the text held back that is a proper prefix
// of a stop string.
func (s *stopper) undecided() int {
	longest := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.heldBack)); n > longest; n-- {
			if strings.HasSuffix(s.heldBack, stop[:n]) {
				longest = n
			}
		}
	}
	return longest
}
