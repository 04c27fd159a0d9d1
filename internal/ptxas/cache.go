package ptxas

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
)

// cache is a directory of what ptxas printed on accepted texts, a file each; empty
// for none. A file is the SHA-256 of what follows it, so that a damaged one is seen
// and passed over. The directory may be deleted at any time.
type cache string

func userCache() cache {
	dir, err := os.UserCacheDir()
	if err != nil || os.Getenv(envCache) == "off" {
		return ""
	}
	return cache(filepath.Join(dir, "lockstep", "ptxas"))
}

// cacheKey names all that the output depends on.
func cacheKey(version, target string, text []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q ", version, target)
	h.Write(text)
	return hex.EncodeToString(h.Sum(nil))
}

func (c cache) file(key string) string { return filepath.Join(string(c), key) }

func (c cache) load(key string) (out []byte, ok bool) {
	if c == "" {
		return nil, false
	}
	raw, err := os.ReadFile(c.file(key))
	if err != nil || len(raw) < sha256.Size {
		return nil, false
	}
	sum := sha256.Sum256(raw[sha256.Size:])
	return raw[sha256.Size:], bytes.Equal(raw[:sha256.Size], sum[:])
}

// store keeps out if it can. A cache that cannot be written costs time and no test.
func (c cache) store(key string, out []byte) {
	if c == "" || os.MkdirAll(string(c), 0o755) != nil {
		return
	}
	_ = atomicfile.Write(c.file(key), func(w io.Writer) error {
		sum := sha256.Sum256(out)
		_, err := w.Write(append(sum[:], out...))
		return err
	})
}
