package model

import (
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// stopper turns token ids into text that may be shown: whole UTF-8, and nothing
// that belongs to a stop string. What may be the beginning of one is held back
// until that is decided. The text does not depend on where tokens begin and end.
type stopper struct {
	decoder *tokenizer.Decoder // nil: no vocabulary, no text
	stops   []string
	held    string
	stopped bool // nothing is shown any more
}

// next is the text that a token makes safe to show, and whether a stop string is
// complete; then the text is what precedes it.
func (s *stopper) next(id int) (text string, stopped bool) {
	if s.decoder == nil {
		return "", false
	}
	return s.feed(s.decoder.Next(id))
}

// flush is what is still held back when the text ends without a stop string. An
// incomplete character becomes U+FFFD.
func (s *stopper) flush() string {
	if s.decoder == nil || s.stopped {
		return ""
	}
	text, stopped := s.feed(s.decoder.Flush())
	if !stopped {
		text += s.held
	}
	s.held = ""
	return text
}

func (s *stopper) feed(text string) (safe string, stopped bool) {
	s.held += text
	if at := s.match(); at >= 0 {
		safe, s.held, s.stopped = s.held[:at], "", true
		return safe, true
	}
	n := len(s.held) - s.undecided()
	safe, s.held = s.held[:n], s.held[n:]
	return safe, false
}

// match is where the stop string begins that is complete first; of those that end
// together, the longest. -1: none.
func (s *stopper) match() int {
	begin, end := -1, 0
	for _, stop := range s.stops {
		i := strings.Index(s.held, stop)
		if i < 0 {
			continue
		}
		if e := i + len(stop); begin < 0 || e < end || e == end && i < begin {
			begin, end = i, e
		}
	}
	return begin
}

// undecided is the length of the longest end of the held text with which a stop
// string may begin.
func (s *stopper) undecided() int {
	longest := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > longest; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// stopsAt reports whether a token ends the text.
func (p *Params) stopsAt(id int, tok *tokenizer.Tokenizer) bool {
	if slices.Contains(p.StopTokens, id) {
		return true
	}
	return tok != nil && !p.IgnoreEOS && tok.Stops(id)
}
