package synth

import "github.com/lockstep-go/lockstep/quant"

// Blocks makes n random weights of a format, mean 0 and of the given deviation, as
// a file stores them; n fills whole blocks. The same name and seed give the same
// bytes.
func Blocks(f quant.Format, n int, std float64, seed uint64, name string) ([]byte, error) {
	bytes, err := f.RowBytes(n)
	if err != nil {
		return nil, err
	}
	fill, err := newFiller(f, seed, name, 0, std)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, bytes)
	r := stream(seed, name, 0)
	fill.fill(buf, &r)
	return buf, nil
}
