package answer

import "strings"

// maxDepth is how deep the arguments of a call may nest.
const maxDepth = 100

// scanner checks a JSON value (RFC 8259) byte by byte. The zero scanner is before a value.
type scanner struct {
	state scanState
	open  []byte // { and [ that are open
	key   bool   // the string is the key of an object
	rest  string // what must follow: of a literal; of \u: one x for each hexadecimal digit
}

type scanState uint8

const (
	beforeValue      scanState = iota
	beforeFirstValue           // or ]
	beforeKey
	beforeFirstKey // or }
	beforeColon
	afterValue // before , or a bracket, or at the end
	inString
	inEscape
	inHex
	inLiteral
	inSign  // after -
	inZero  // after the digit 0 that begins a number
	inDigit // of the integer
	inPoint
	inFraction
	inE
	inESign
	inExponent
)

const space = " \t\r\n"

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// done reports whether the value is complete.
func (s *scanner) done() bool { return s.state == afterValue && len(s.open) == 0 }

// next takes a byte. It returns false if no JSON value continues so.
func (s *scanner) next(c byte) bool {
	switch s.state {
	case inString:
		switch {
		case c == '"' && s.key:
			s.state = beforeColon
		case c == '"':
			s.state = afterValue
		case c == '\\':
			s.state = inEscape
		}
		return c >= ' '
	case inEscape:
		s.state = inString
		if c == 'u' {
			s.state, s.rest = inHex, "xxxx"
		}
		return strings.IndexByte(`"\/bfnrtu`, c) >= 0
	case inHex:
		if s.rest = s.rest[1:]; s.rest == "" {
			s.state = inString
		}
		return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
	case inLiteral:
		ok := c == s.rest[0]
		if s.rest = s.rest[1:]; s.rest == "" {
			s.state = afterValue
		}
		return ok
	}
	if s.state >= inSign {
		if more, ok := s.number(c); more || !ok {
			return ok
		}
		s.state = afterValue
	}
	if strings.IndexByte(space, c) >= 0 {
		return true
	}
	return s.structure(c)
}

// number takes a byte inside of a number. It returns more false if c is behind the number.
func (s *scanner) number(c byte) (more, ok bool) {
	digit := isDigit(c)
	complete := s.state == inZero || s.state == inDigit || s.state == inFraction || s.state == inExponent
	switch {
	case s.state == inSign && c == '0':
		s.state = inZero
	case s.state == inSign && digit, s.state == inDigit && digit:
		s.state = inDigit
	case s.state == inPoint && digit, s.state == inFraction && digit:
		s.state = inFraction
	case s.state >= inE && digit:
		s.state = inExponent
	case s.state == inE && (c == '+' || c == '-'):
		s.state = inESign
	case (s.state == inZero || s.state == inDigit) && c == '.':
		s.state = inPoint
	case complete && s.state != inExponent && (c == 'e' || c == 'E'):
		s.state = inE
	default:
		return false, complete
	}
	return true, true
}

// structure takes a byte between strings, numbers and literals.
func (s *scanner) structure(c byte) bool {
	top := byte(0)
	if n := len(s.open); n > 0 {
		top = s.open[n-1]
	}
	switch {
	case s.state == beforeColon:
		s.state = beforeValue
		return c == ':'
	case s.state == afterValue && c == ',' && top == '{':
		s.state = beforeKey
	case s.state == afterValue && c == ',' && top == '[':
		s.state = beforeValue
	case c == '}' && top == '{' && (s.state == afterValue || s.state == beforeFirstKey),
		c == ']' && top == '[' && (s.state == afterValue || s.state == beforeFirstValue):
		s.open = s.open[:len(s.open)-1]
		s.state = afterValue
	case (s.state == beforeKey || s.state == beforeFirstKey) && c == '"':
		s.state, s.key = inString, true
	case s.state == beforeValue || s.state == beforeFirstValue:
		return s.begin(c)
	default:
		return false
	}
	return true
}

// begin takes the first byte of a value.
func (s *scanner) begin(c byte) bool {
	switch {
	case c == '{':
		s.state = beforeFirstKey
	case c == '[':
		s.state = beforeFirstValue
	case c == '"':
		s.state, s.key = inString, false
	case c == '-':
		s.state = inSign
	case c == '0':
		s.state = inZero
	case isDigit(c):
		s.state = inDigit
	case c == 't':
		s.state, s.rest = inLiteral, "rue"
	case c == 'f':
		s.state, s.rest = inLiteral, "alse"
	case c == 'n':
		s.state, s.rest = inLiteral, "ull"
	default:
		return false
	}
	if c == '{' || c == '[' {
		s.open = append(s.open, c)
	}
	return len(s.open) <= maxDepth
}
