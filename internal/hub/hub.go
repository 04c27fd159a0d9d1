// Package hub downloads GGUF models from a Hugging Face hub into the cache of Hugging Face on this machine, where package
// library finds them.
package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/lockstep-go/lockstep/internal/library"
)

// Hub is a Hugging Face hub, and the cache of its files on this machine.
type Hub struct {
	endpoint *url.URL
	token    string // "": none
	cache    library.Caches
	client   *http.Client

	pause time.Duration // after a first failed attempt; it doubles with each that follows
	idle  time.Duration // how long a connection may send nothing
	free  func(dir string) (bytes int64, ok bool)
}

// FromEnvironment returns the hub of $HF_ENDPOINT, by default https://huggingface.co, with the access token $HF_TOKEN.
func FromEnvironment(getenv func(string) string, cache library.Caches) (*Hub, error) {
	endpoint, err := url.Parse(strings.TrimRight(cmp.Or(getenv("HF_ENDPOINT"), "https://huggingface.co"), "/"))
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" {
		return nil, fmt.Errorf("hub: HF_ENDPOINT: %q, want an address such as https://huggingface.co", getenv("HF_ENDPOINT"))
	}
	return &Hub{
		endpoint: endpoint,
		token:    strings.TrimSpace(getenv("HF_TOKEN")),
		cache:    cache,
		client:   &http.Client{CheckRedirect: keepToken},
		pause:    time.Second,
		idle:     30 * time.Second,
		free:     freeSpace,
	}, nil
}

// maxRedirects is how many redirects a request follows.
const maxRedirects = 10

// keepToken removes the token from a redirect to another host. http.Client would send it to another port, and to
// subdomains.
func keepToken(request *http.Request, via []*http.Request) error {
	if first := via[0].URL; request.URL.Host != first.Host || request.URL.Scheme != first.Scheme {
		request.Header.Del("Authorization")
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	return nil
}

// Model is a model in a repository of a hub.
type Model struct {
	Files []File // the parts, in order

	hub    *Hub
	folder string // of the repository in the cache
	commit string
}

// File is a file of a model.
type File struct {
	Path string // in the repository, with slashes
	Size int64  // bytes

	sha256 string // in hexadecimal
	url    string
}

// Size returns the size of all files in bytes.
func (m *Model) Size() (bytes int64) {
	for _, f := range m.Files {
		bytes += f.Size
	}
	return bytes
}

// Patterns of what is part of a URL or of a path in the cache.
var (
	repositoryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?$`)
	commitHash     = regexp.MustCompile(`^[0-9a-f]{40,64}$`)
	sha256Hash     = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// listing is a repository at a commit, as /api/models/REPOSITORY/revision/main?blobs=true describes it.
type listing struct {
	SHA      string `json:"sha"` // of the commit
	Siblings []struct {
		Name string `json:"rfilename"`
		Size int64  `json:"size"`
		LFS  struct {
			SHA256 string `json:"sha256"`
		} `json:"lfs"`
	} `json:"siblings"`
}

// maxListing is the size of the largest listing that is read, in bytes.
const maxListing = 64 << 20

// ErrName means that a name is not one of library.Select.
var ErrName = errors.New("want hf:ORGANIZATION/REPOSITORY[:FORMAT or FILE]")

// Find returns the model of a name at the current commit of its repository. The name is one of library.Select.
func (h *Hub) Find(ctx context.Context, name string) (*Model, error) {
	rest, ok := strings.CutPrefix(name, "hf:")
	repository, _, _ := strings.Cut(rest, ":")
	if !ok || !repositoryName.MatchString(repository) {
		return nil, fmt.Errorf("hub: %q: %w", name, ErrName)
	}
	list, err := h.list(ctx, h.url("api", "models", repository, "revision", "main")+"?blobs=true")
	if err != nil {
		return nil, fmt.Errorf("hub: %s: %w", name, err)
	}
	if !commitHash.MatchString(list.SHA) {
		return nil, fmt.Errorf("hub: %s: the commit of the repository is %.80q, want hexadecimal digits", name, list.SHA)
	}
	var all []string
	for _, s := range list.Siblings {
		all = append(all, s.Name)
	}
	selected, err := library.Select(name, all)
	if err != nil {
		return nil, err
	}
	m := &Model{hub: h, folder: h.cache.Repository(repository), commit: list.SHA}
	for _, path := range selected {
		if !filepath.IsLocal(filepath.FromSlash(path)) || strings.ContainsFunc(path, unicode.IsControl) {
			return nil, fmt.Errorf("hub: %s: the repository has %q, which is no path of a file in it", name, path)
		}
		for _, s := range list.Siblings {
			if s.Name != path {
				continue
			}
			f := File{Path: path, Size: s.Size, sha256: s.LFS.SHA256, url: h.url(repository, "resolve", list.SHA, path)}
			if f.Size <= 0 || !sha256Hash.MatchString(f.sha256) {
				return nil, fmt.Errorf("hub: %s: %s: the hub gives the size %d and the SHA-256 %.80q, want both", name, path, f.Size, f.sha256)
			}
			m.Files = append(m.Files, f)
			break
		}
	}
	return m, nil
}

// url returns the URL of a path of the hub.
func (h *Hub) url(elements ...string) string {
	u := *h.endpoint
	u.Path, u.RawPath = u.Path+"/"+strings.Join(elements, "/"), ""
	return u.String()
}

// list reads a listing. The error names the URL.
func (h *Hub) list(ctx context.Context, url string) (list listing, err error) {
	err = h.retry(ctx, func(ctx context.Context, alive func()) (progress bool, err error) {
		body, _, err := h.get(ctx, url, 0)
		if err != nil {
			return false, err
		}
		defer body.Close()
		alive()
		text, err := io.ReadAll(io.LimitReader(body, maxListing+1))
		if err != nil {
			return false, retryable{err}
		}
		if len(text) > maxListing {
			return false, fmt.Errorf("the answer has more than %d bytes", maxListing)
		}
		return false, json.Unmarshal(text, &list)
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", url, err)
	}
	return list, err
}

// get requests what a URL has from a byte on. The answer begins at byte from: the server may ignore the one that was asked
// for.
func (h *Hub) get(ctx context.Context, url string, offset int64) (body io.ReadCloser, from int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("User-Agent", "lockstep")
	request.Header.Set("Accept-Encoding", "identity")
	if h.token != "" {
		request.Header.Set("Authorization", "Bearer "+h.token)
	}
	if offset > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	answer, err := h.client.Do(request)
	if err != nil {
		return nil, 0, retryable{withoutURL(err)}
	}
	switch {
	case answer.StatusCode == http.StatusOK:
		return answer.Body, 0, nil
	case answer.StatusCode == http.StatusPartialContent && offset > 0:
		if got := answer.Header.Get("Content-Range"); !strings.HasPrefix(got, fmt.Sprintf("bytes %d-", offset)) {
			answer.Body.Close()
			return nil, 0, fmt.Errorf("the server sends the range %.80q, want one that begins at byte %d", got, offset)
		}
		return answer.Body, offset, nil
	}
	answer.Body.Close()
	return nil, 0, h.refused(answer)
}

// withoutURL removes the URL from an error of http.Client. It may be that of a redirect, with a signature.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// refused returns the error of an answer without content.
func (h *Hub) refused(answer *http.Response) error {
	status := answer.StatusCode
	err := fmt.Errorf("%d %s", status, http.StatusText(status))
	switch {
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return retryable{err}
	case answer.Request.URL.Host != h.endpoint.Host:
		return fmt.Errorf("%s: %w", answer.Request.URL.Host, err)
	case status != http.StatusUnauthorized && status != http.StatusForbidden:
		return err
	case h.token == "":
		return fmt.Errorf("%w: the repository is gated or private, or does not exist; set HF_TOKEN to a token that may read it", err)
	}
	return fmt.Errorf("%w: the token in HF_TOKEN may not read the repository, or it does not exist", err)
}

// retryable is an error that another attempt may not have.
type retryable struct{ error }

func (r retryable) Unwrap() error { return r.error }

// attempts is how often a request is made without any progress.
const attempts = 4

// errIdle ends an attempt whose connection sends nothing.
var errIdle = errors.New("the server sends nothing")

// retry calls attempt until it succeeds, fails with an error that is not retryable, or fails too often without progress.
// Its context ends if alive is not called for h.idle.
func (h *Hub) retry(ctx context.Context, attempt func(ctx context.Context, alive func()) (progress bool, err error)) error {
	for failed := 0; ; {
		inner, cancel := context.WithCancelCause(ctx)
		timer := time.AfterFunc(h.idle, func() { cancel(errIdle) })
		progress, err := attempt(inner, func() { timer.Reset(h.idle) })
		timer.Stop()
		cancel(nil)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, again := errors.AsType[retryable](err); !again {
			return err
		}
		if context.Cause(inner) == errIdle {
			err = errIdle
		}
		if progress {
			failed = 0
		}
		if failed++; failed == attempts {
			return fmt.Errorf("%w, in %d attempts", err, attempts)
		}
		select {
		case <-time.After(h.pause << (failed - 1)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
