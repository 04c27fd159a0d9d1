// Package atomicfile writes files atomically. It replaces only regular files, and a GGUF model
// only by another.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"
)

// Errors for errors.Is.
var (
	// ErrNotRegular reports an existing path that is a directory, device, pipe or socket, or a
	// link to one.
	ErrNotRegular = errors.New("want a regular file")
	// ErrModel reports an existing GGUF file that would be replaced by something else.
	ErrModel = errors.New("is a GGUF model, and only a GGUF model may replace it")
)

// Write calls write with a temporary file beside the file it replaces, syncs the file and
// renames it to path. On an error it removes the temporary file, and an existing file at
// path stays unchanged. The new file has the permissions of the existing one, or the
// default ones. If path is a symbolic link, Write replaces its target. Errors of package
// os name path.
//
// The temporary file of a process that was killed is removed by the next Write or Check in
// the same directory.
func Write(path string, write func(io.Writer) error) error {
	target, tmp, err := begin(path)
	if err != nil {
		return withPath(err, path)
	}
	defer tmp.discard() // also if write panics
	if err := write(tmp.file); err != nil {
		if p, ok := errors.AsType[*os.PathError](err); ok && p.Path == tmp.file.Name() {
			return withPath(err, path)
		}
		return err // not an error of the temporary file
	}
	err = tmp.file.Sync()
	if err == nil { // again: write may take hours
		var now string
		if now, err = resolve(path); err == nil && now != target {
			err = errRetargeted
		}
	}
	if err == nil && isModel(target) && !startsAsModel(tmp.file) {
		err = ErrModel
	}
	if err == nil {
		err = tmp.publish(target)
	}
	return withPath(err, path)
}

// Check returns the errors of Write that are known in advance, so that a command can fail
// before it computes what it will write. The error wraps ErrModel if path is a GGUF file.
func Check(path string) error {
	target, tmp, err := begin(path)
	if err != nil {
		return withPath(err, path)
	}
	tmp.discard()
	if isModel(target) {
		return withPath(ErrModel, path)
	}
	return nil
}

var errRetargeted = errors.New("the link has another target now")

// begin returns the file to replace, and a temporary file beside it.
func begin(path string) (target string, tmp temporary, err error) {
	if target, err = resolve(path); err == nil {
		tmp, err = create(target)
	}
	return target, tmp, err
}

// resolve returns the file to replace: path or, if that is a symbolic link, its target. An
// existing one must be a regular file.
func resolve(path string) (string, error) {
	link, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("is %s: %w", kind(info.Mode()), ErrNotRegular)
	}
	if link.Mode()&os.ModeSymlink != 0 {
		return filepath.EvalSymlinks(path)
	}
	return path, nil
}

// kind names the type of a file that is not regular.
func kind(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&os.ModeDevice != 0:
		return "a device"
	case mode&os.ModeNamedPipe != 0:
		return "a pipe"
	case mode&os.ModeSocket != 0:
		return "a socket"
	}
	return "a special file"
}

// magic begins every GGUF file.
const magic = "GGUF"

func isModel(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return startsAsModel(f)
}

func startsAsModel(f io.ReaderAt) bool {
	var head [len(magic)]byte
	n, _ := f.ReadAt(head[:], 0)
	return string(head[:n]) == magic
}

// temporary is a file that is being written. This process holds a lock on it, where the
// system has locks, until the file has its final name.
type temporary struct{ file *os.File }

// open has the temporary files of this process. Its mutex is held while such a file is
// created, renamed or removed.
var open = struct {
	mu    sync.Mutex
	files map[*os.File]bool
}{files: map[*os.File]bool{}}

// tempName matches the names of temporary files.
var tempName = regexp.MustCompile(`^\.lockstep-[0-9a-f]{16}\.tmp$`)

// create removes stale temporary files beside path, and creates one with the permissions for
// path. os.CreateTemp ignores the umask.
func create(path string) (temporary, error) {
	dir := filepath.Dir(path)
	removeStale(dir)
	perm, keep := os.FileMode(0o666), false
	if old, err := os.Stat(path); err == nil {
		perm, keep = old.Mode().Perm(), true
	}
	open.mu.Lock()
	defer open.mu.Unlock()
	for {
		name := filepath.Join(dir, fmt.Sprintf(".lockstep-%016x.tmp", rand.Uint64()))
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return temporary{}, err
		}
		if !lock(f) { // another process took it for stale
			f.Close()
			os.Remove(name)
			continue
		}
		if keep {
			err = f.Chmod(perm) // restores bits that the umask cleared
		}
		if err != nil {
			return temporary{}, errors.Join(err, f.Close(), os.Remove(name))
		}
		open.files[f] = true
		return temporary{f}, nil
	}
}

// removeStale removes the temporary files of writers that died. It ignores errors: these
// files only take space.
func removeStale(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	names, _ := d.Readdirnames(-1)
	d.Close()
	for _, name := range names {
		if !tempName.MatchString(name) {
			continue
		}
		name = filepath.Join(dir, name)
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			removeIfStale(name, info)
		}
	}
}

// publish renames the file to path.
func (t temporary) publish(path string) error {
	open.mu.Lock()
	defer open.mu.Unlock()
	if err := rename(t.file, path); err != nil {
		return err
	}
	delete(open.files, t.file)
	return nil
}

// discard removes the file, unless it was published.
func (t temporary) discard() {
	open.mu.Lock()
	defer open.mu.Unlock()
	if open.files[t.file] {
		delete(open.files, t.file)
		t.file.Close()
		os.Remove(t.file.Name())
	}
}

// Abort removes the temporary files of all calls of Write in this process. Those calls, and
// later ones, never return. It is for a process that exits at once.
func Abort() {
	open.mu.Lock()
	for f := range open.files {
		f.Close() // Windows removes no open file
		os.Remove(f.Name())
	}
}

// withPath returns a PathError of path. It drops the temporary name of an error of package os.
func withPath(err error, path string) error {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*os.PathError](err); ok {
		err = p.Err
	} else if l, ok := errors.AsType[*os.LinkError](err); ok {
		err = l.Err
	}
	return &os.PathError{Op: "write", Path: path, Err: err}
}
