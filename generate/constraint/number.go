package constraint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// decimal is a number without an exponent.
type decimal struct {
	negative bool
	whole    string // digits without leading zeros, or 0
	fraction string // digits without trailing zeros
}

func (d decimal) zero() bool { return d.whole == "0" && d.fraction == "" }

// maxBoundDigits are the digits of a bound, written without an exponent.
const maxBoundDigits = 40

// parseDecimal reads a JSON number.
func parseDecimal(text string) (decimal, error) {
	d := decimal{negative: strings.HasPrefix(text, "-")}
	text, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
	whole, fraction, _ := strings.Cut(text, ".")
	tooLong := limitError{"digits", maxBoundDigits}
	if exponent != "" {
		e, err := strconv.Atoi(exponent)
		if err != nil || e > maxBoundDigits || e < -maxBoundDigits {
			return d, tooLong
		}
		for ; e > 0; e-- {
			if fraction == "" {
				fraction = "0"
			}
			whole, fraction = whole+fraction[:1], fraction[1:]
		}
		for ; e < 0; e++ {
			if whole == "" {
				whole = "0"
			}
			whole, fraction = whole[:len(whole)-1], whole[len(whole)-1:]+fraction
		}
	}
	d.whole, d.fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if d.whole == "" {
		d.whole = "0"
	}
	if len(d.whole)+len(d.fraction) > maxBoundDigits {
		return d, tooLong
	}
	d.negative = d.negative && !d.zero()
	return d, nil
}

// Expressions of a number's absolute value. They may allow leading zeros, which the
// expression of the number itself refuses.
const (
	anyFraction  = `(?:\.[0-9]{1,18})?`
	anyMagnitude = `(?:` + digitsExpr + anyFraction + `)`
	zeros        = `0{0,18}`
	digits       = `[0-9]{0,18}`
	notZero      = zeros + `[1-9]` + digits
)

// digitsFrom matches one digit from lo to hi. It is false if there is none.
func digitsFrom(lo, hi byte) (string, bool) {
	return fmt.Sprintf("[%c-%c]", lo, hi), lo <= hi
}

// fixed matches n digits.
func fixed(n int) string { return fmt.Sprintf("[0-9]{%d}", n) }

// union joins alternatives. Without any it matches nothing.
func union(alternatives []string) string {
	if len(alternatives) == 0 {
		return `[^\x00-\x{10FFFF}]`
	}
	return `(?:` + strings.Join(alternatives, `|`) + `)`
}

// above matches the magnitudes greater than |d|, and |d| itself unless strict.
func (d decimal) above(strict bool) string {
	var or []string
	w, f := d.whole, d.fraction
	if len(w) > maxDigits {
		return union(nil)
	}
	if len(w) < maxDigits { // more digits
		or = append(or, fmt.Sprintf(`[1-9][0-9]{%d,%d}`, len(w), maxDigits-1)+anyFraction)
	}
	for i := range len(w) { // the first digit that differs is greater
		if digit, ok := digitsFrom(w[i]+1, '9'); ok {
			or = append(or, w[:i]+digit+fixed(len(w)-i-1)+anyFraction)
		}
	}
	for i := range len(f) {
		if digit, ok := digitsFrom(f[i]+1, '9'); ok {
			or = append(or, w+`\.`+f[:i]+digit+digits)
		}
	}
	switch {
	case strict:
		or = append(or, w+`\.`+f+notZero)
	case f == "":
		or = append(or, w+anyFraction)
	default:
		or = append(or, w+`\.`+f+digits)
	}
	return union(or)
}

// below matches the magnitudes less than |d|, and |d| itself unless strict.
func (d decimal) below(strict bool) string {
	var or []string
	w, f := d.whole, d.fraction
	if len(w) > maxDigits {
		return anyMagnitude
	}
	if len(w) > 1 { // fewer digits
		or = append(or, `0`+anyFraction)
		or = append(or, fmt.Sprintf(`[1-9][0-9]{0,%d}`, len(w)-2)+anyFraction)
	}
	for i := range len(w) { // the first digit that differs is less
		if digit, ok := digitsFrom('0', w[i]-1); ok {
			or = append(or, w[:i]+digit+fixed(len(w)-i-1)+anyFraction)
		}
	}
	for i := range len(f) {
		if i > 0 { // a fraction that ends before
			or = append(or, w+`\.`+f[:i])
		}
		if digit, ok := digitsFrom('0', f[i]-1); ok {
			or = append(or, w+`\.`+f[:i]+digit+digits)
		}
	}
	if f != "" {
		or = append(or, w)
	}
	switch {
	case strict:
	case f == "":
		or = append(or, w+`(?:\.0{1,18})?`)
	default:
		or = append(or, w+`\.`+f+zeros)
	}
	return union(or)
}

// atLeast matches the numbers that are not less than d, and not equal if strict.
func (d decimal) atLeast(strict bool) string {
	if d.negative {
		return `(?:` + anyMagnitude + `|-` + d.below(strict) + `)`
	}
	return d.above(strict)
}

// atMost matches the numbers that are not greater than d, and not equal if strict.
func (d decimal) atMost(strict bool) string {
	switch {
	case d.negative || d.zero() && strict:
		return `-` + d.above(strict)
	default:
		return `(?:-` + anyMagnitude + `|` + d.below(strict) + `)`
	}
}

// bounds are the keywords that bound a number, and what they match.
var bounds = []struct {
	keyword string
	expr    func(d decimal) string
}{
	{"minimum", func(d decimal) string { return d.atLeast(false) }},
	{"exclusiveMinimum", func(d decimal) string { return d.atLeast(true) }},
	{"maximum", func(d decimal) string { return d.atMost(false) }},
	{"exclusiveMaximum", func(d decimal) string { return d.atMost(true) }},
}

// number returns the automaton of a number within the bounds that s has, or nil if there
// is none.
func (c *compiler) number(s *value, path string, integer bool) (*automaton, error) {
	a := c.vocab.parts.number
	if integer {
		a = c.vocab.parts.integer
	}
	for _, bound := range bounds {
		v := s.get(bound.keyword)
		if v == nil {
			continue
		}
		at := pointer(path, bound.keyword)
		if v.kind != "number" {
			return nil, fail(at, errors.New("must be a number"))
		}
		d, err := parseDecimal(v.text)
		if err != nil {
			return nil, fail(at, err)
		}
		b, err := compileExpr(bound.expr(d), plain, &c.work)
		if err != nil {
			return nil, fail(at, err)
		}
		if a == c.vocab.parts.number {
			a = c.vocab.parts.decimal
		}
		if b == nil {
			return nil, nil
		}
		if a, err = intersect(a, b, &c.work); err != nil || a == nil {
			return nil, fail(at, err)
		}
	}
	return a, nil
}
