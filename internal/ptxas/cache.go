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

// cache is a directory with a file per output of ptxas, or "" for no cache. A file is the SHA-256
// of the output, then the output, so that damage is detected. The directory may be deleted at any
// time.
type cache string

func userCache() cache {
	dir, err := os.UserCacheDir()
	if err != nil || os.Getenv(envCache) == "off" {
		return ""
	}
	return cache(filepath.Join(dir, "lockstep", "ptxas"))
}

// cacheKey hashes everything that the output depends on.
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

// store writes an output. It ignores errors, because the cache only saves time.
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
