package ptxas

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/lockstep-go/lockstep/internal/ptxlog/ptxlogtest"
)

func TestCacheHitEqualsMiss(t *testing.T) {
	a := *uncached(t)
	a.cache = cache(filepath.Join(t.TempDir(), "made", "on", "demand"))
	miss, err := a.Assemble([]byte(ptxlogtest.Crowded(64)), "sm_80")
	if err != nil {
		t.Fatal(err)
	}
	a.path = "no-such-program" // a hit does not run it
	hit, err := a.Assemble([]byte(ptxlogtest.Crowded(64)), "sm_80")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(hit, miss) {
		t.Errorf("hit %+v, miss %+v", hit, miss)
	}
	if _, err := a.Assemble([]byte(ptxlogtest.Crowded(64)), "sm_90"); err == nil {
		t.Error("another target is a hit")
	}
}

func TestCacheKeysDiffer(t *testing.T) {
	seen := map[string]string{}
	tests := []struct{ name, version, target, text string }{
		{"base", "12.4", "sm_80", "text"},
		{"other version", "12.5", "sm_80", "text"},
		{"other target", "12.4", "sm_90", "text"},
		{"other text", "12.4", "sm_80", "Text"},
		{"text begins in the target", "12.4", "sm_80t", "ext"},
		{"target begins in the version", "12.4s", "m_80", "text"},
	}
	for _, tt := range tests {
		key := cacheKey(tt.version, tt.target, []byte(tt.text))
		if was, ok := seen[key]; ok {
			t.Errorf("%s has the key of %s", tt.name, was)
		}
		seen[key] = tt.name
	}
}

func TestCacheIgnoresDamagedFiles(t *testing.T) {
	tests := []struct {
		name   string
		damage func(raw []byte) []byte
		hit    bool
	}{
		{"intact", func(raw []byte) []byte { return raw }, true},
		{"empty", func([]byte) []byte { return nil }, false},
		{"shorter than a checksum", func(raw []byte) []byte { return raw[:8] }, false},
		{"last byte missing", func(raw []byte) []byte { return raw[:len(raw)-1] }, false},
		{"one bit changed", func(raw []byte) []byte { raw[len(raw)-1] ^= 1; return raw }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := cache(t.TempDir())
			c.store("key", []byte("Used 24"))
			raw, err := os.ReadFile(c.file("key"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(c.file("key"), tt.damage(raw), 0o600); err != nil {
				t.Fatal(err)
			}
			out, hit := c.load("key")
			if hit != tt.hit || hit && string(out) != "Used 24" {
				t.Errorf("hit %v with %q, want hit %v", hit, out, tt.hit)
			}
		})
	}
}

func TestCacheOff(t *testing.T) {
	t.Setenv(envCache, "off")
	if c := userCache(); c != "" {
		t.Errorf("cache in %s, want none", c)
	}
	if _, hit := cache("").load("key"); hit {
		t.Error("no cache has a hit")
	}
	t.Chdir(t.TempDir())
	cache("").store("key", nil)
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("no cache wrote %v (%v)", left, err)
	}
}
