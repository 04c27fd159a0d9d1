package tiny

import (
	"fmt"

	"github.com/lockstep-go/lockstep/model/gguf"
)

// Split writes f as a split model, as llama.cpp's gguf-split does, and returns the paths of
// the parts: PREFIX-00001-of-00003.gguf and so on. Part i has the next sizes[i] tensors; the
// sum of sizes is the number of tensors. Split panics if it cannot write.
func Split(f *gguf.File, prefix string, sizes ...int) (paths []string) {
	tensors := f.Tensors()
	for i, size := range sizes {
		w := gguf.NewWriter()
		if i == 0 {
			for _, key := range f.Keys() {
				v, _ := f.Value(key)
				must(w.Set(key, v))
			}
		}
		must(w.Set("split.no", uint16(i)))
		must(w.Set("split.count", uint16(len(sizes))))
		must(w.Set("split.tensors.count", int32(len(f.Tensors()))))
		for _, t := range tensors[:size] {
			must(w.Add(t.Info()))
		}
		tensors = tensors[size:]
		path := fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, i+1, len(sizes))
		must(w.WriteFile(path))
		paths = append(paths, path)
	}
	return paths
}
