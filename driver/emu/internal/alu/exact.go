package alu

// plainDot is Σ a[i]·b[i] + addend in float64, for its infinities and NaN: finite
// terms cannot reach infinity.
func plainDot(a, b *vector, addend float32) float64 {
	s := float64(addend)
	for i := range a.value {
		for j, x := range a.value[i] {
			s += float64(x * b.value[i][j])
		}
	}
	return s
}

// exactDot is Σ a[i]·b[i] + addend rounded once, to nearest.
func exactDot(a, b *vector, addend float32) float32 {
	s, lost := float64(addend), false
	for i := range a.value {
		for j, x := range a.value[i] {
			var rest float64
			s, rest = twoSum(s, float64(x*b.value[i][j]))
			lost = lost || rest != 0
		}
	}
	if !lost {
		return float32(s)
	}
	terms := [17]float64{16: float64(addend)}
	for i := range a.value {
		for j, x := range a.value[i] {
			terms[lanes*i+j] = float64(x * b.value[i][j])
		}
	}
	return float32(sumOdd(terms[:]))
}

// sumOdd is the sum of finite terms, rounded to odd. It overwrites terms.
//
// The terms become an expansion: numbers of rising magnitude that do not overlap
// and have the same sum (Shewchuk 1997, GROW-EXPANSION).
func sumOdd(terms []float64) float64 {
	parts := terms[:0]
	for _, x := range terms {
		n := 0
		for _, part := range parts {
			var lost float64
			if x, lost = twoSum(x, part); lost != 0 {
				parts[n] = lost
				n++
			}
		}
		parts = append(parts[:n], x)
	}
	sum := 0.0
	for i := len(parts) - 1; i >= 0; i-- {
		var lost float64
		if sum, lost = twoSum(sum, parts[i]); lost != 0 {
			return odd(sum, lost) // the parts below are less than the last place of lost
		}
	}
	return sum
}
