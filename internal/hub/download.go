package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
)

// Progress is told what a download does.
type Progress struct {
	Had  func(bytes int64) // they were here before; negative: they must come again
	Came func(bytes int)
	Done func(f File) // it is complete
}

// Download puts the files of a model into the cache, and returns the path of the first one:
//
//	blobs/SHA256.incomplete        what has come; the next download continues it
//	blobs/SHA256                   a complete file, which is not downloaded again
//	snapshots/COMMIT/PATH          links to blobs, once all files are complete
//	refs/main                      COMMIT
//
// Several processes may download a file at the same time: they write the same bytes at the same places. Errors name the file
// and its URL.
func (m *Model) Download(ctx context.Context, p Progress) (string, error) {
	blobs := filepath.Join(m.folder, "blobs")
	if err := os.MkdirAll(blobs, 0o777); err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	if err := m.checkSpace(blobs); err != nil {
		return "", err
	}
	for _, f := range m.Files {
		if err := m.download(ctx, f, p); err != nil {
			return "", fmt.Errorf("hub: %s: %s: %w", f.Path, f.url, err)
		}
		p.Done(f)
	}
	for _, f := range m.Files {
		if err := m.link(f); err != nil {
			return "", fmt.Errorf("hub: %s: %w", f.Path, err)
		}
	}
	main := filepath.Join(m.folder, "refs", "main")
	err := os.MkdirAll(filepath.Dir(main), 0o777)
	if err == nil {
		err = atomicfile.Write(main, func(w io.Writer) error {
			_, err := io.WriteString(w, m.commit)
			return err
		})
	}
	if err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	return m.snapshot(m.Files[0]), nil
}

// blob returns the path of the content of a file.
func (m *Model) blob(f File) string { return filepath.Join(m.folder, "blobs", f.sha256) }

// incomplete returns the path of what has come of a file.
func (m *Model) incomplete(f File) string { return m.blob(f) + ".incomplete" }

// snapshot returns the path of a file by its name.
func (m *Model) snapshot(f File) string {
	return filepath.Join(m.folder, "snapshots", m.commit, filepath.FromSlash(f.Path))
}

// sizeOf returns the size of a file in bytes, or -1 if it does not exist.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

// here reports whether a file is complete. Programs on systems without links have it in the snapshot alone.
func (m *Model) here(f File) bool {
	return sizeOf(m.blob(f)) == f.Size || sizeOf(m.snapshot(f)) == f.Size
}

// checkSpace returns an error if the disk has no space for what is missing. It names the first file that does not fit.
func (m *Model) checkSpace(dir string) error {
	free, ok := m.hub.free(dir)
	need := int64(0)
	for _, f := range m.Files {
		if m.here(f) {
			continue
		}
		need += f.Size - max(sizeOf(m.incomplete(f)), 0)
		if ok && need > free {
			return fmt.Errorf("hub: %s: %s: not enough space: %d bytes are missing up to the end of this file, and %s has space for %d", f.Path, f.url, need, dir, free)
		}
	}
	return nil
}

// download completes the blob of a file.
func (m *Model) download(ctx context.Context, f File, p Progress) error {
	if m.here(f) {
		p.Had(f.Size)
		return nil
	}
	out, err := os.OpenFile(m.incomplete(f), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer out.Close()
	r := receiver{hub: m.hub, file: f, out: out, sum: sha256.New(), progress: p}
	if err := r.resume(ctx); err != nil {
		return err
	}
	if r.have < f.Size {
		if err := m.hub.retry(ctx, r.receive); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Sync(), out.Close()); err != nil { // Windows renames and removes no open file
		return err
	}
	if got := hex.EncodeToString(r.sum.Sum(nil)); got != f.sha256 {
		if err := os.Remove(m.incomplete(f)); err != nil {
			return fmt.Errorf("the SHA-256 is %s, want %s: %w", got, f.sha256, err)
		}
		return fmt.Errorf("the SHA-256 is %s, want %s; what came was deleted", got, f.sha256)
	}
	err = os.Rename(m.incomplete(f), m.blob(f))
	if err != nil && m.here(f) {
		return nil // another process was faster
	}
	return err
}

// link puts a complete file into the snapshot. Without the right to make symbolic links, as on Windows, it is a hard link.
func (m *Model) link(f File) error {
	name := m.snapshot(f)
	if sizeOf(name) == f.Size {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) { // a link that leads nowhere
		return err
	}
	target, err := filepath.Rel(filepath.Dir(name), m.blob(f))
	if err != nil {
		return err
	}
	if os.Symlink(target, name) == nil {
		return nil
	}
	return os.Link(m.blob(f), name)
}

// receiver writes a file and computes its hash.
type receiver struct {
	hub      *Hub
	file     File
	out      *os.File
	sum      hash.Hash // of the first have bytes
	have     int64
	most     int64 // the largest have of all attempts
	progress Progress
}

// bufferSize is how many bytes are read at once.
const bufferSize = 1 << 20

// resume reads the part of the file that an earlier download left.
func (r *receiver) resume(ctx context.Context) error {
	size := sizeOf(r.out.Name())
	if size > r.file.Size {
		return r.out.Truncate(0) // no part of this file
	}
	for r.have < size && ctx.Err() == nil {
		n, err := io.CopyN(r.sum, r.out, min(bufferSize, size-r.have))
		r.have += n
		r.progress.Had(n)
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// receive requests what is missing, and writes what comes. progress is true if the file was never that complete.
func (r *receiver) receive(ctx context.Context, alive func()) (progress bool, err error) {
	body, from, err := r.hub.get(ctx, r.file.url, r.have)
	if err != nil {
		return false, err
	}
	defer body.Close()
	if from != r.have { // the server sends all of it
		r.progress.Had(-r.have)
		r.have = 0
		r.sum.Reset()
	}
	buffer := make([]byte, bufferSize)
	for r.have < r.file.Size {
		n, err := body.Read(buffer[:min(bufferSize, r.file.Size-r.have)])
		alive()
		if _, err := r.out.WriteAt(buffer[:n], r.have); err != nil {
			return false, err
		}
		r.sum.Write(buffer[:n])
		r.have += int64(n)
		r.progress.Came(n)
		if err != nil && r.have < r.file.Size {
			progress = r.have > r.most
			r.most = max(r.most, r.have)
			return progress, retryable{fmt.Errorf("the connection ended after %d of %d bytes: %w", r.have, r.file.Size, err)}
		}
	}
	return true, nil
}
