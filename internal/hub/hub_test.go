package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/library"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	single = "Tiny-Q4_K_M.gguf"
	large  = "Q8_0/Tiny-Q8_0-0000%d-of-00003.gguf"
)

// fake is a hub, and the other host to which it redirects for contents.
type fake struct {
	files    map[string][]byte
	token    string // that every request for a file needs; "": none
	listing  string // instead of that of files
	statuses []int  // of the next answers of the hub; 0: a good one
	cuts     []int  // of the next contents, after how many bytes the connection is cut
	spoiled  bool   // contents have other bytes
	noRange  bool   // contents come whole
	silent   bool   // a connection is not cut but sends nothing more

	other *httptest.Server

	mu       sync.Mutex
	contents []string // ranges of the requested contents; "": all
	leaked   []string // tokens that the other host saw
}

func sha(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// next removes the first element of a list.
func next(f *fake, list *[]int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(*list) == 0 {
		return 0
	}
	first := (*list)[0]
	*list = (*list)[1:]
	return first
}

// start serves f and returns a hub with an empty cache.
func start(t *testing.T, f *fake) *Hub {
	t.Helper()
	f.other = httptest.NewServer(http.HandlerFunc(f.serveContent))
	t.Cleanup(f.other.Close)
	server := httptest.NewServer(http.HandlerFunc(f.serveHub))
	t.Cleanup(server.Close)
	return open(t, server.URL, f.token, t.TempDir())
}

func open(t *testing.T, endpoint, token, dir string) *Hub {
	t.Helper()
	variables := map[string]string{"HF_ENDPOINT": endpoint + "/", "HF_TOKEN": token}
	h, err := FromEnvironment(func(name string) string { return variables[name] }, library.Caches{HuggingFace: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	h.pause = time.Millisecond
	return h
}

func (f *fake) serveHub(w http.ResponseWriter, r *http.Request) {
	if status := next(f, &f.statuses); status != 0 {
		w.WriteHeader(status)
		return
	}
	if r.URL.String() == "/api/models/org/Tiny-GGUF/revision/main?blobs=true" {
		fmt.Fprint(w, f.list())
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/org/Tiny-GGUF/resolve/"+commit+"/")
	data, exists := f.files[path]
	switch {
	case !ok || !exists:
		http.NotFound(w, r)
	case f.token != "" && r.Header.Get("Authorization") == "":
		w.WriteHeader(http.StatusUnauthorized)
	case f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token:
		w.WriteHeader(http.StatusForbidden)
	default:
		http.Redirect(w, r, f.other.URL+"/"+sha(data)+"?signature=secret", http.StatusFound)
	}
}

// list returns the listing of files. A file that is not a model has no hash, as outside LFS.
func (f *fake) list() string {
	if f.listing != "" {
		return f.listing
	}
	siblings := []map[string]any{{"rfilename": "README.md", "size": 5, "blobId": "aa"}}
	for path, data := range f.files {
		siblings = append(siblings, map[string]any{"rfilename": path, "size": len(data), "lfs": map[string]any{"sha256": sha(data), "size": len(data)}})
	}
	text, err := json.Marshal(map[string]any{"id": "org/Tiny-GGUF", "sha": commit, "siblings": siblings})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (f *fake) serveContent(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.contents = append(f.contents, r.Header.Get("Range"))
	if token := r.Header.Get("Authorization"); token != "" {
		f.leaked = append(f.leaked, token)
	}
	f.mu.Unlock()
	for _, data := range f.files {
		if "/"+sha(data) != r.URL.Path {
			continue
		}
		if f.spoiled {
			data = bytes.ToUpper(data)
		}
		if f.noRange {
			r.Header.Del("Range")
		}
		if cut := next(f, &f.cuts); cut > 0 {
			w = &cutter{w, r, cut, f.silent}
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

// cutter cuts the connection after left bytes, or waits until the client does.
type cutter struct {
	http.ResponseWriter
	request *http.Request
	left    int
	silent  bool
}

func (c *cutter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 {
		c.ResponseWriter.(http.Flusher).Flush()
		if c.silent {
			<-c.request.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// text returns n bytes that are different at each place.
func text(n int, seed string) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%s %d,", seed, i)
	}
	return b.Bytes()[:n]
}

// tiny returns the files of a repository: a model in one file, and one in three.
func tiny() map[string][]byte {
	files := map[string][]byte{single: text(5000, "single")}
	for i := 1; i <= 3; i++ {
		files[fmt.Sprintf(large, i)] = text(1000*i, fmt.Sprint("part ", i))
	}
	return files
}

// counted is what a Progress was told.
type counted struct {
	had  int64
	came int
	done []string
}

func (c *counted) progress() Progress {
	return Progress{
		Had:  func(n int64) { c.had += n },
		Came: func(n int) { c.came += n },
		Done: func(f File) { c.done = append(c.done, f.Path) },
	}
}

// pull finds and downloads a model.
func pull(ctx context.Context, h *Hub, name string, c *counted) (string, error) {
	m, err := h.Find(ctx, name)
	if err != nil {
		return "", err
	}
	return m.Download(ctx, c.progress())
}

// check checks the files of a download, and that package library finds it.
func check(t *testing.T, h *Hub, f *fake, name, path string, files ...string) {
	t.Helper()
	if found, err := h.cache.Find(name); found != path || err != nil {
		t.Errorf("%s: found %q, %v, want %q", name, found, err, path)
	}
	root := filepath.Join(h.cache.HuggingFace[0], "models--org--Tiny-GGUF")
	for _, file := range files {
		snapshot := filepath.Join(root, "snapshots", commit, filepath.FromSlash(file))
		if got, err := os.ReadFile(snapshot); err != nil || !bytes.Equal(got, f.files[file]) {
			t.Errorf("%s: %d bytes, %v, want %d", file, len(got), err, len(f.files[file]))
		}
		if to, err := os.Readlink(snapshot); err == nil && (filepath.IsAbs(to) || filepath.Base(to) != sha(f.files[file])) {
			t.Errorf("%s: a link to %s, want a relative one to its SHA-256", file, to)
		}
	}
	if got, err := os.ReadFile(filepath.Join(root, "refs", "main")); err != nil || string(got) != commit {
		t.Errorf("refs/main: %q, %v", got, err)
	}
	blobs, err := os.ReadDir(filepath.Join(root, "blobs"))
	if err != nil || len(blobs) != len(files) {
		t.Errorf("blobs: %v, %v, want %d", blobs, err, len(files))
	}
}

func TestDownload(t *testing.T) {
	parts := []string{fmt.Sprintf(large, 1), fmt.Sprintf(large, 2), fmt.Sprintf(large, 3)}
	for _, tt := range []struct {
		name, reason string
		fake         *fake
		pull         string
		files        []string
		contents     []string // ranges of the requests
	}{
		{"one file", "the usual", &fake{}, "hf:org/Tiny-GGUF:q4_k_m", []string{single}, []string{""}},
		{"by file", "a name that formats share", &fake{}, "hf:org/Tiny-GGUF:Tiny-Q4_K_M.gguf", []string{single}, []string{""}},
		{"split", "all parts are needed", &fake{}, "hf:org/Tiny-GGUF:Q8_0", parts, []string{"", "", ""}},
		{"cut", "the rest is requested", &fake{cuts: []int{100, 50}}, "hf:org/Tiny-GGUF:Q4_K_M", []string{single}, []string{"", "bytes=100-", "bytes=150-"}},
		{"cut often", "there is progress", &fake{cuts: []int{9, 9, 9, 9, 9}}, "hf:org/Tiny-GGUF:Q4_K_M", []string{single},
			[]string{"", "bytes=9-", "bytes=18-", "bytes=27-", "bytes=36-", "bytes=45-"}},
		{"no ranges", "the server sends all again", &fake{cuts: []int{100}, noRange: true}, "hf:org/Tiny-GGUF:Q4_K_M", []string{single}, []string{"", "bytes=100-"}},
		{"errors of the server", "they pass", &fake{statuses: []int{500, 503, 0, 429, 502}}, "hf:org/Tiny-GGUF:Q4_K_M", []string{single}, []string{""}},
		{"token", "a gated repository", &fake{token: "hf_x"}, "hf:org/Tiny-GGUF:Q4_K_M", []string{single}, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.fake
			f.files = tiny()
			h := start(t, f)
			var c counted
			path, err := pull(t.Context(), h, tt.pull, &c)
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			check(t, h, f, tt.pull, path, tt.files...)
			if fmt.Sprint(f.contents) != fmt.Sprint(tt.contents) || len(f.leaked) > 0 {
				t.Errorf("ranges %q, want %q; tokens at another host: %q", f.contents, tt.contents, f.leaked)
			}
			size := 0
			for _, file := range tt.files {
				size += len(f.files[file])
			}
			if c.had+int64(c.came) != int64(size) || fmt.Sprint(c.done) != fmt.Sprint(tt.files) {
				t.Errorf("progress %+v, want %d bytes", c, size)
			}
			again, err := pull(t.Context(), h, tt.pull, &c)
			if again != path || err != nil || len(f.contents) != len(tt.contents) {
				t.Errorf("again: %q, %v, %d requests", again, err, len(f.contents))
			}
		})
	}
}

// An interrupted download keeps what has come, and the next one requests the rest.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &fake{files: tiny(), cuts: []int{100}, silent: true}
	h := start(t, f)
	var first counted
	m, err := h.Find(ctx, "hf:org/Tiny-GGUF:Q4_K_M")
	if err != nil {
		t.Fatal(err)
	}
	p := first.progress()
	p.Came = func(n int) {
		if first.came += n; first.came == 100 {
			cancel()
		}
	}
	if _, err := m.Download(ctx, p); err == nil || ctx.Err() == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("error %v", err)
	}
	if _, err := h.cache.Find("hf:org/Tiny-GGUF:Q4_K_M"); err == nil {
		t.Error("an incomplete model is found")
	}
	h.free = func(string) (int64, bool) { return 4900, true }
	var c counted
	path, err := pull(t.Context(), h, "hf:org/Tiny-GGUF:Q4_K_M", &c)
	if err != nil {
		t.Fatal(err)
	}
	check(t, h, f, "hf:org/Tiny-GGUF:Q4_K_M", path, single)
	if c.had != 100 || c.came != 4900 || f.contents[1] != "bytes=100-" {
		t.Errorf("%+v, ranges %q", c, f.contents)
	}
}

func TestDownloadFails(t *testing.T) {
	const unauthorized = "401 Unauthorized: the repository is gated or private, or does not exist; set HF_TOKEN to a token that may read it"
	fives := []int{500, 500, 500, 500, 500}
	for _, tt := range []struct {
		name, reason string
		fake         *fake
		token        string
		change       func(h *Hub)
		want         string
	}{
		{"checksum", "a broken proxy", &fake{spoiled: true}, "", nil, "what came was deleted"},
		{"no token", "a gated repository", &fake{token: "hf_x"}, "", nil, unauthorized},
		{"wrong token", "it may read other repositories", &fake{token: "hf_x"}, "hf_y", nil, "403 Forbidden: the token in HF_TOKEN may not read the repository"},
		{"gone", "a file that is listed", &fake{statuses: []int{0, 404}}, "", nil, "404 Not Found"},
		{"down", "every attempt fails", &fake{statuses: append([]int{0}, fives...)}, "", nil, "500 Internal Server Error, in 4 attempts"},
		{"always cut", "no attempt has progress", &fake{cuts: []int{9, 9, 9, 9, 9}, noRange: true}, "", nil, "the connection ended after 9 of 5000 bytes: unexpected EOF, in 4 attempts"},
		{"silent", "a connection without an end", &fake{cuts: []int{9, 1, 1, 1, 1}, noRange: true, silent: true}, "",
			func(h *Hub) { h.idle = 200 * time.Millisecond }, "the server sends nothing, in 4 attempts"},
		{"full disk", "known before the first byte", &fake{}, "", func(h *Hub) { h.free = func(string) (int64, bool) { return 4999, true } },
			"not enough space: 5000 bytes are missing up to the end of this file, and "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.fake
			f.files = tiny()
			h := start(t, f)
			h.token = tt.token
			if tt.change != nil {
				tt.change(h)
			}
			path, err := pull(t.Context(), h, "hf:org/Tiny-GGUF:Q4_K_M", &counted{})
			url := h.endpoint.String() + "/org/Tiny-GGUF/resolve/" + commit + "/" + single
			if path != "" || err == nil || !strings.HasPrefix(err.Error(), "hub: "+single+": "+url+": ") || !strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %q, error %v, want one with %q", tt.reason, path, err, tt.want)
			}
			if len(f.leaked) > 0 {
				t.Errorf("tokens at another host: %q", f.leaked)
			}
			if _, err := os.Stat(filepath.Join(h.cache.Repository("org/Tiny-GGUF"), "blobs", sha(f.files[single])+".incomplete")); tt.name == "checksum" && err == nil {
				t.Error("the wrong file stays")
			}
		})
	}
}

func TestFindFails(t *testing.T) {
	list := func(path, commit, sha string, size int) string {
		path = strings.ReplaceAll(path, "\x1b", `\u001b`)
		return fmt.Sprintf(`{"sha": %q, "siblings": [{"rfilename": "%s", "size": %d, "lfs": {"sha256": %q}}]}`, commit, path, size, sha)
	}
	good := strings.Repeat("a", 64)
	for _, tt := range []struct {
		name, reason string
		pull         string // "": the repository without a format
		fake         *fake
		want         string
	}{
		{"several", "the format chooses", "", &fake{}, "several models have this name: hf:org/Tiny-GGUF:Q4_K_M, hf:org/Tiny-GGUF:Q8_0"},
		{"other format", "there is none", "hf:org/Tiny-GGUF:Q6_K", &fake{}, "no such model: the repository has hf:org/Tiny-GGUF:Q4_K_M, hf:org/Tiny-GGUF:Q8_0"},
		{"no model", "other weights", "", &fake{listing: list("model.safetensors", commit, good, 5)}, "no such model: the repository has no GGUF model"},
		{"no repository", "a typo", "hf:org/none", &fake{}, "/api/models/org/none/revision/main?blobs=true: 404 Not Found"},
		{"private", "or a typo: the hub does not say", "", &fake{statuses: []int{401}}, "set HF_TOKEN"},
		{"missing part", "an upload that goes on", "", &fake{listing: list("m-Q8_0-00001-of-00002.gguf", commit, good, 5)}, "the repository has no m-Q8_0-00002-of-00002.gguf"},
		{"other folder", "outside the cache", "", &fake{listing: list("../../m-Q8_0.gguf", commit, good, 5)}, `"../../m-Q8_0.gguf", which is no path of a file in it`},
		{"escape", "it would control the terminal", "", &fake{listing: list("\x1bm-Q8_0.gguf", commit, good, 5)}, "which is no path of a file in it"},
		{"commit", "outside the cache", "", &fake{listing: list("m-Q8_0.gguf", "../x", good, 5)}, `the commit of the repository is "../x"`},
		{"hash", "outside the cache", "", &fake{listing: list("m-Q8_0.gguf", commit, "../x", 5)}, `m-Q8_0.gguf: the hub gives the size 5 and the SHA-256 "../x"`},
		{"size", "nothing to check", "", &fake{listing: list("m-Q8_0.gguf", commit, good, 0)}, "m-Q8_0.gguf: the hub gives the size 0"},
		{"no JSON", "another server", "", &fake{listing: "<html>"}, "invalid character '<'"},
		{"huge", "another server", "", &fake{listing: strings.Repeat(" ", maxListing+1)}, "the answer has more than 67108864 bytes"},
		{"source", "not of this hub", "ollama:llama3.2", &fake{}, `"ollama:llama3.2": want hf:ORGANIZATION/REPOSITORY`},
		{"no name", "a variable that is not set", "hf:", &fake{}, `"hf:": want hf:ORGANIZATION/REPOSITORY`},
		{"parent", "outside the cache", "hf:../x", &fake{}, `"hf:../x": want hf:ORGANIZATION/REPOSITORY`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.fake
			f.files = tiny()
			if tt.pull == "" {
				tt.pull = "hf:org/Tiny-GGUF"
			}
			if m, err := start(t, f).Find(t.Context(), tt.pull); m != nil || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.pull) {
				t.Errorf("%s: %+v, error %v, want one with %q", tt.reason, m, err, tt.want)
			}
		})
	}
}

// What another program or a crash left does not end in the cache.
func TestLeftovers(t *testing.T) {
	f := &fake{files: tiny()}
	h := start(t, f)
	blob := filepath.Join(h.cache.Repository("org/Tiny-GGUF"), "blobs", sha(f.files[single]))
	snapshot := filepath.Join(h.cache.Repository("org/Tiny-GGUF"), "snapshots", commit, single)
	for _, dir := range []string{filepath.Dir(blob), filepath.Dir(snapshot)} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", snapshot); err != nil {
		t.Logf("no link that leads nowhere: %v", err)
	}
	if err := os.WriteFile(blob+".incomplete", make([]byte, 5001), 0o666); err != nil {
		t.Fatal(err)
	}
	path, err := pull(t.Context(), h, "hf:org/Tiny-GGUF:Q4_K_M", &counted{})
	if err != nil {
		t.Fatalf("more than the whole file: %v", err)
	}
	check(t, h, f, "hf:org/Tiny-GGUF:Q4_K_M", path, single)

	if err := os.Rename(blob, blob+".incomplete"); err != nil {
		t.Fatal(err)
	}
	requests := len(f.contents)
	if _, err := pull(t.Context(), h, "hf:org/Tiny-GGUF:Q4_K_M", &counted{}); err != nil || len(f.contents) != requests {
		t.Errorf("a complete file without its name: %v, %d requests", err, len(f.contents)-requests)
	}
	check(t, h, f, "hf:org/Tiny-GGUF:Q4_K_M", path, single)
}

func TestRetry(t *testing.T) {
	broken := retryable{errors.New("broken")}
	for _, tt := range []struct {
		name, reason string
		attempt      func(ctx context.Context, alive func()) (progress bool, err error)
		took         time.Duration
		want         string // "": no error
	}{
		{"broken", "the pauses double", func(context.Context, func()) (bool, error) { return false, broken }, 7 * time.Second, "broken, in 4 attempts"},
		{"refused", "it would be refused again", func(context.Context, func()) (bool, error) { return false, broken.error }, 0, "broken"},
		{"slow", "something comes", func(ctx context.Context, alive func()) (bool, error) {
			for range 3 {
				time.Sleep(20 * time.Second)
				alive()
			}
			return true, ctx.Err()
		}, time.Minute, ""},
		{"silent", "nothing comes", func(ctx context.Context, _ func()) (bool, error) {
			<-ctx.Done()
			return false, retryable{ctx.Err()}
		}, 127 * time.Second, "the server sends nothing, in 4 attempts"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, begin := &Hub{pause: time.Second, idle: 30 * time.Second}, time.Now()
			err := h.retry(t.Context(), tt.attempt)
			if took := time.Since(begin); took != tt.took || (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
				t.Errorf("%s: %s: %v after %v, want %q after %v", tt.name, tt.reason, err, took, tt.want, tt.took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		err := (&Hub{pause: time.Second, idle: time.Minute}).retry(ctx, func(context.Context, func()) (bool, error) { return false, broken })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted while it pauses: %v", err)
		}
	})
}

func TestFromEnvironment(t *testing.T) {
	for endpoint, want := range map[string]string{"": "https://huggingface.co/a", "http://x:8/y/": "http://x:8/y/a", "ftp://x": "", "huggingface.co": "", "https://": "", "%": ""} {
		h, err := FromEnvironment(func(name string) string { return map[string]string{"HF_ENDPOINT": endpoint}[name] }, library.Caches{})
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "HF_ENDPOINT") {
				t.Errorf("%s: error %v", endpoint, err)
			}
		} else if err != nil || h.url("a") != want {
			t.Errorf("%s: %v, want %s", endpoint, err, want)
		}
	}
}
