package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

const (
	defaultCacheLimit = 512 << 20
	cacheSuffix       = ".cubin"
	// cacheMagic begins every file. Its number changes with the layout.
	cacheMagic = "lockstep cubin 1\n"
)

// cache keeps compiled modules on disk. A file is
//
//	magic | SHA-256 of the rest | length of the log, 8 bytes little-endian | length of the cubin, likewise | log | cubin
//
// so that one that was cut short or changed is noticed and written anew. The hash
// guards against accidents, not against someone who may write to the directory; a
// directory that others may write to is therefore not used.
type cache struct {
	dir   string // "" if there is none
	limit int64

	hits, misses, rejected, failures atomic.Int64
}

// cached is what a file holds.
type cached struct {
	log   string
	cubin []byte
}

func newCache(o Options) *cache {
	c := &cache{dir: o.CacheDir, limit: o.CacheLimit}
	if c.limit <= 0 {
		c.limit = defaultCacheLimit
	}
	if o.NoCache {
		c.dir = ""
		return c
	}
	if c.dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			c.failures.Add(1)
			return c
		}
		c.dir = filepath.Join(base, "lockstep", "cubin")
	}
	if err := privateDir(c.dir); err != nil {
		c.failures.Add(1)
		c.dir = ""
	}
	return c
}

// privateDir makes the directory and refuses one that others may write to: by its
// permissions, or because it is theirs.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if writableByOthers(info) {
		return fmt.Errorf("%s: others may write here", dir)
	}
	return nil
}

func (c *cache) enabled() bool { return c.dir != "" }

func (c *cache) stats() Stats {
	return Stats{c.hits.Load(), c.misses.Load(), c.rejected.Load(), c.failures.Load()}
}

// cacheKey is everything that the compiled code depends on.
func (d *Device) cacheKey(ptx []byte) string {
	h := sha256.New()
	p := d.props
	fmt.Fprintf(h, "%s%d\n%q\n%d\n%q\n%v\n%d\n",
		cacheMagic, p.DriverVersion, d.lib.build, p.ComputeCapability, p.Name, d.options.Verbose, len(ptx))
	h.Write(ptx)
	return hex.EncodeToString(h.Sum(nil))
}

func (c *cache) path(key string) string { return filepath.Join(c.dir, key+cacheSuffix) }

// read finds a file that is whole. Its time is renewed, so that what is in use stays.
func (c *cache) read(key string) (cached, bool) {
	path := c.path(key)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cached{}, false
	}
	if err != nil {
		c.failures.Add(1)
		return cached{}, false
	}
	found, ok := decodeCached(raw)
	if !ok {
		c.rejected.Add(1)
		return cached{}, false
	}
	now := time.Now()
	os.Chtimes(path, now, now) // best effort: a wrong time costs a compilation some day
	return found, true
}

const cacheHeader = len(cacheMagic) + sha256.Size

func decodeCached(raw []byte) (cached, bool) {
	if len(raw) < cacheHeader+16 || string(raw[:len(cacheMagic)]) != cacheMagic {
		return cached{}, false
	}
	rest := raw[cacheHeader:]
	if sum := sha256.Sum256(rest); !bytes.Equal(sum[:], raw[len(cacheMagic):cacheHeader]) {
		return cached{}, false
	}
	log, cubin := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
	rest = rest[16:]
	n := uint64(len(rest))
	if log > n || cubin != n-log {
		return cached{}, false
	}
	return cached{string(rest[:log]), rest[log:]}, true
}

func encodeCached(v cached) []byte {
	var rest []byte
	rest = binary.LittleEndian.AppendUint64(rest, uint64(len(v.log)))
	rest = binary.LittleEndian.AppendUint64(rest, uint64(len(v.cubin)))
	rest = append(append(rest, v.log...), v.cubin...)
	sum := sha256.Sum256(rest)
	return append(append([]byte(cacheMagic), sum[:]...), rest...)
}

// write keeps a module. A failure is counted and otherwise ignored: the module is
// there, only the next start is slower.
func (c *cache) write(key string, v cached) {
	err := replaceFile(c.path(key), encodeCached(v))
	if err == nil {
		err = c.prune()
	}
	if err != nil {
		c.failures.Add(1)
	}
}

// replaceFile writes a file that readers see whole or not at all.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), tempPattern)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
