package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	defaultCacheLimit = 512 << 20
	// maxEntry is the size of the largest file that is read or written, far above that of any
	// kernel's machine code.
	maxEntry    = 64 << 20
	cacheSuffix = ".cubin"
	// cacheMagic begins every file. Its number changes with the file format.
	cacheMagic = "lockstep cubin 3\n"

	// tempPattern matches files that are being written, and tempName formats their names. A file
	// older than tempAge was left by a process that died.
	tempPattern = "new-*.tmp"
	tempName    = "new-%016x.tmp"
	tempAge     = time.Hour
)

// cache keeps compiled images on disk. A file is
//
//	magic | SHA-256 of the rest | image.log | NUL | image.cubin
//
// so a truncated or damaged file is detected and replaced. The hash does not protect against an
// attacker who can write to the directory, so the cache refuses a directory that other users can
// change or replace. It uses the directory that was checked by its handle.
type cache struct {
	dir   *os.Root // nil if the cache is off
	off   error    // why the cache is off, although it was wanted
	limit int64    // bytes

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
	c := &cache{limit: o.cacheLimit}
	if c.limit <= 0 {
		c.limit = defaultCacheLimit
	}
	if o.noCache {
		return c
	}
	path := o.cacheDir
	if path == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			c.turnOff(err)
			return c
		}
		path = filepath.Join(base, "lockstep", "cubin")
	}
	dir, err := openPrivate(path)
	if err != nil {
		c.turnOff(err)
	}
	c.dir = dir
	return c
}

func (c *cache) turnOff(err error) {
	c.failures.Add(1)
	c.off = fmt.Errorf("cuda: the kernel cache is not used: %w", err)
}

// openPrivate creates and opens a directory. It returns an error if other users can change the
// directory or replace it.
func openPrivate(path string) (*os.Root, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(dir, path); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// checkPrivate checks the open directory, and each directory above it up to the root.
func checkPrivate(dir *os.Root, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	info, err := dir.Stat(".")
	if err != nil {
		return err
	}
	named, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(info, named) {
		return fmt.Errorf("%s: replaced while it was opened", path)
	}
	if writableByOthers(info) {
		return fmt.Errorf("%s: other users may write here", path)
	}
	for parent := filepath.Dir(path); parent != path; path, parent = parent, filepath.Dir(parent) {
		info, err := os.Lstat(parent)
		if err != nil {
			return err
		}
		if replaceableByOthers(info) {
			return fmt.Errorf("%s: other users may replace %s", parent, filepath.Base(path))
		}
	}
	return nil
}

func (c *cache) enabled() bool { return c.dir != nil }

// close closes the directory. Later reads and writes fail.
func (c *cache) close() {
	if c.dir != nil {
		c.dir.Close()
	}
}

// CacheError returns why the kernel cache is off although it was wanted, or nil.
func (d *Device) CacheError() error { return d.cache.off }

// cacheKey hashes everything that the machine code depends on.
func (d *Device) cacheKey(ptx []byte) string {
	h := sha256.New()
	p := d.props
	fmt.Fprintf(h, "%s%d\n%q\n%d\n%q\n%d\n",
		cacheMagic, p.DriverVersion, d.lib.build, p.ComputeCapability, p.Name, len(ptx))
	h.Write(ptx)
	return hex.EncodeToString(h.Sum(nil))
}

// read returns the encoded image of an intact file and renews the file's time, which prune uses.
func (c *cache) read(key string) (image []byte, ok bool) {
	name := key + cacheSuffix
	raw, err := c.readFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false
	case errors.Is(err, errEntry):
		c.rejected.Add(1)
		return nil, false
	case err != nil:
		c.failures.Add(1)
		return nil, false
	}
	image, ok = decodeCached(raw)
	if !ok {
		c.rejected.Add(1)
		return nil, false
	}
	now := time.Now()
	c.dir.Chtimes(name, now, now) // a wrong time only costs a compilation later
	return image, true
}

// errEntry reports a file that cannot be an entry of the cache.
var errEntry = errors.New("not a file of the cache")

// readFile reads a regular file of at most maxEntry bytes. It does not wait for the writer of a
// pipe.
func (c *cache) readFile(name string) ([]byte, error) {
	f, err := c.dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxEntry {
		return nil, errEntry
	}
	raw := make([]byte, info.Size())
	if _, err := io.ReadFull(f, raw); err != nil {
		return nil, errEntry // cut short meanwhile
	}
	return raw, nil
}

func decodeCached(raw []byte) (image []byte, ok bool) {
	rest, ok := bytes.CutPrefix(raw, []byte(cacheMagic))
	if !ok || len(rest) < sha256.Size {
		return nil, false
	}
	sum := sha256.Sum256(rest[sha256.Size:])
	return rest[sha256.Size:], bytes.Equal(sum[:], rest[:sha256.Size])
}

func encodeCached(image []byte) []byte {
	sum := sha256.Sum256(image)
	return slices.Concat([]byte(cacheMagic), sum[:], image)
}

// write stores an encoded image. It counts a failure and ignores it: only the next start is slower.
func (c *cache) write(key string, image []byte) {
	err := c.replace(key+cacheSuffix, encodeCached(image))
	if err == nil {
		err = c.prune()
	}
	if err != nil {
		c.failures.Add(1)
	}
}

// replace writes a file atomically.
func (c *cache) replace(name string, content []byte) error {
	if len(content) > maxEntry {
		return errEntry
	}
	temp := fmt.Sprintf(tempName, rand.Uint64())
	f, err := c.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = c.dir.Rename(temp, name)
	}
	if err != nil {
		c.dir.Remove(temp)
	}
	return err
}

// prune deletes the least recently used files until the directory is within its limit.
func (c *cache) prune() error {
	all, err := fs.ReadDir(c.dir.FS(), ".")
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	var total int64
	for _, entry := range all {
		info, err := c.dir.Lstat(entry.Name())
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted meanwhile, or not a cache file
		}
		switch temp, _ := filepath.Match(tempPattern, info.Name()); {
		case strings.HasSuffix(info.Name(), cacheSuffix):
			files = append(files, info)
			total += info.Size()
		case temp && time.Since(info.ModTime()) > tempAge:
			c.dir.Remove(info.Name())
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range files {
		if total <= c.limit {
			return nil
		}
		err := c.dir.Remove(info.Name())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= info.Size()
	}
	return nil
}
