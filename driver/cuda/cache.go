package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	defaultCacheLimit = 512 << 20
	cacheSuffix       = ".cubin"
	// cacheMagic begins every file. Its number changes with the file format.
	cacheMagic = "lockstep cubin 2\n"

	// tempPattern matches files that are being written. A file older than tempAge was left by a
	// process that died.
	tempPattern = "new-*.tmp"
	tempAge     = time.Hour
)

// cache keeps machine code on disk. A file is
//
//	magic | SHA-256 of the cubin | cubin
//
// so a truncated or damaged file is detected and replaced. The hash does not protect against an
// attacker who can write to the directory, so the cache refuses a directory that others can write to.
type cache struct {
	dir   string // "" if the cache is off
	limit int64  // bytes

	hits     atomic.Int64 // modules loaded from disk
	misses   atomic.Int64 // modules compiled
	rejected atomic.Int64 // files that were damaged or that the driver refused
	failures atomic.Int64 // files or directories that could not be read or written
}

// options configure the cache. The zero value is what Open uses; the other values are for tests.
type options struct {
	noCache    bool
	cacheDir   string // "": lockstep/cubin in the user's cache directory
	cacheLimit int64  // bytes; 0: defaultCacheLimit
}

func newCache(o options) *cache {
	c := &cache{dir: o.cacheDir, limit: o.cacheLimit}
	if c.limit <= 0 {
		c.limit = defaultCacheLimit
	}
	if o.noCache {
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

// privateDir creates the directory. It returns an error if other users can write to it.
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

// cacheKey hashes everything that the machine code depends on.
func (d *Device) cacheKey(ptx []byte) string {
	h := sha256.New()
	p := d.props
	fmt.Fprintf(h, "%s%d\n%q\n%d\n%q\n%d\n",
		cacheMagic, p.DriverVersion, d.lib.build, p.ComputeCapability, p.Name, len(ptx))
	h.Write(ptx)
	return hex.EncodeToString(h.Sum(nil))
}

func (c *cache) path(key string) string { return filepath.Join(c.dir, key+cacheSuffix) }

// read returns the cubin of an intact file and renews the file's time, which prune uses.
func (c *cache) read(key string) (cubin []byte, ok bool) {
	path := c.path(key)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	if err != nil {
		c.failures.Add(1)
		return nil, false
	}
	cubin, ok = decodeCached(raw)
	if !ok {
		c.rejected.Add(1)
		return nil, false
	}
	now := time.Now()
	os.Chtimes(path, now, now) // a wrong time only costs a compilation later
	return cubin, true
}

func decodeCached(raw []byte) (cubin []byte, ok bool) {
	rest, ok := bytes.CutPrefix(raw, []byte(cacheMagic))
	if !ok || len(rest) < sha256.Size {
		return nil, false
	}
	sum := sha256.Sum256(rest[sha256.Size:])
	return rest[sha256.Size:], bytes.Equal(sum[:], rest[:sha256.Size])
}

func encodeCached(cubin []byte) []byte {
	sum := sha256.Sum256(cubin)
	return slices.Concat([]byte(cacheMagic), sum[:], cubin)
}

// write stores a cubin. It counts a failure and ignores it: only the next start is slower.
func (c *cache) write(key string, cubin []byte) {
	err := replaceFile(c.path(key), encodeCached(cubin))
	if err == nil {
		err = c.prune()
	}
	if err != nil {
		c.failures.Add(1)
	}
}

// replaceFile writes a file atomically.
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

// prune deletes the least recently used files until the directory is within its limit.
func (c *cache) prune() error {
	all, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	var total int64
	for _, entry := range all {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted meanwhile, or not a cache file
		}
		switch temp, _ := filepath.Match(tempPattern, info.Name()); {
		case strings.HasSuffix(info.Name(), cacheSuffix):
			files = append(files, info)
			total += info.Size()
		case temp && time.Since(info.ModTime()) > tempAge:
			os.Remove(filepath.Join(c.dir, info.Name()))
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range files {
		if total <= c.limit {
			return nil
		}
		err := os.Remove(filepath.Join(c.dir, info.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= info.Size()
	}
	return nil
}
