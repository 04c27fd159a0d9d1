package cuda

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tempPattern names a file that is being written; one that is older than tempAge
// was left by a process that died.
const (
	tempPattern = "new-*.tmp"
	tempAge     = time.Hour
)

// prune deletes what was not used longest until the directory is within its limit.
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
			continue // gone meanwhile, or not ours
		}
		switch stale, _ := filepath.Match(tempPattern, info.Name()); {
		case strings.HasSuffix(info.Name(), cacheSuffix):
			files = append(files, info)
			total += info.Size()
		case stale && time.Since(info.ModTime()) > tempAge:
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
