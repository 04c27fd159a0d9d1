// Package serve serves a model by the OpenAI HTTP API: an http.Handler over package generate.
//
//	s, err := serve.New(m.Generator(), serve.Options{})
//	if err != nil {
//		return err
//	}
//	return s.ListenAndServe(ctx, "127.0.0.1:8080")
//
// docs/serving.md describes the endpoints, parameters, limits and metrics.
package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/generate"
)

// ErrBadOptions is wrapped by the errors of New for a field of Options with an invalid value.
var ErrBadOptions = errors.New("bad option")

// Options configures a Server. The zero value has no API key and no request timeout, and logs
// nothing.
type Options struct {
	// Name is the model's name in requests and responses. "": general.name of the file, or
	// "lockstep".
	Name string
	// APIKeys, if any, are required of every endpoint but /health and the page, as "Authorization: Bearer KEY".
	APIKeys []string
	// Origins are the origins, such as https://example.com, of web pages that may use the server
	// (CORS), besides its own; "*" means all. Pages of other origins cannot read responses, and their POST
	// requests get status 403.
	Origins []string
	// Hosts are names, such as model.example.com, that the header Host may have on a loopback address,
	// besides loopback; "*" means all. Requests for other hosts get status 403, which protects from DNS
	// rebinding. A server on another address serves requests for any host.
	Hosts []string

	MaxBody     int64 // bytes of a request's body; 0: 8 MiB
	MaxRequests int   // requests to a model at once; 0: 4096. More get status 429.

	BodyTimeout    time.Duration // to read a body; 0: 30 s
	WriteTimeout   time.Duration // to write to a client that does not read; 0: 30 s
	RequestTimeout time.Duration // of a whole request to a model; 0: none
	// Grace is the time that Serve and ListenAndServe give running requests when they stop; 0: 10 s.
	Grace time.Duration

	// Log receives a record per request, without its texts. nil: none.
	Log *slog.Logger
}

// check sets defaults. Errors wrap ErrBadOptions.
func (o *Options) check() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("serve: %w: %s: %s", ErrBadOptions, field, fmt.Sprintf(format, args...))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxBody", o.MaxBody}, {"MaxRequests", int64(o.MaxRequests)}, {"BodyTimeout", int64(o.BodyTimeout)},
		{"WriteTimeout", int64(o.WriteTimeout)}, {"RequestTimeout", int64(o.RequestTimeout)}, {"Grace", int64(o.Grace)},
	} {
		if f.value < 0 {
			return bad(f.name, "%d, want 0 or more", f.value)
		}
	}
	for i, k := range o.APIKeys {
		if !headerToken(k) {
			return bad(fmt.Sprintf("APIKeys[%d]", i), "want visible ASCII without spaces")
		}
	}
	for i, origin := range o.Origins {
		if !IsOrigin(origin) {
			return bad(fmt.Sprintf("Origins[%d]", i), "%q, want a form such as https://example.com, or *", origin)
		}
	}
	for i, host := range o.Hosts {
		if !IsHost(host) {
			return bad(fmt.Sprintf("Hosts[%d]", i), "%q, want a name or an IP address without a port, or *", host)
		}
	}
	o.MaxBody = cmp.Or(o.MaxBody, 8<<20)
	o.MaxRequests = cmp.Or(o.MaxRequests, 4096)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 30*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// IsOrigin reports whether s can be an element of Options.Origins.
func IsOrigin(s string) bool {
	u, err := url.Parse(s)
	return s == "*" || err == nil && u.Scheme != "" && u.Host != "" && u.Scheme+"://"+u.Host == s
}

// headerToken reports whether s is visible ASCII without spaces, and not empty.
func headerToken(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return s != ""
}

// Server serves one model. It is an http.Handler, safe for concurrent use.
type Server struct {
	options Options
	backend backend
	info    info
	name    string
	keys    [][sha256.Size]byte
	log     *slog.Logger
	metrics *metrics
	routes  *http.ServeMux
	origins *http.CrossOriginProtection

	mu       sync.Mutex
	active   int           // requests in flight
	stopping bool          // no new requests
	idle     chan struct{} // closed when stopping and active is 0

	cut    context.Context // ends the requests that outlast the grace period
	cutAll context.CancelCauseFunc
}

// New returns a server of a generator's model. The generator remains the caller's; close it after
// the server has stopped. Errors: ErrBadOptions.
func New(g *generate.Generator, o Options) (*Server, error) { return newServer(newGenerator(g), o) }

func newServer(b backend, o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{options: o, backend: b, info: b.info(), log: o.Log, idle: make(chan struct{})}
	s.name = cmp.Or(o.Name, s.info.name, "lockstep")
	for _, k := range o.APIKeys {
		s.keys = append(s.keys, sha256.Sum256([]byte(k)))
	}
	s.cut, s.cutAll = context.WithCancelCause(context.Background())
	s.metrics = newMetrics(s.name, b.load)
	s.origins = http.NewCrossOriginProtection()
	for _, origin := range o.Origins {
		if origin == "*" {
			s.origins.AddInsecureBypassPattern("/")
		} else if err := s.origins.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("serve: %w: Origins: %w", ErrBadOptions, err)
		}
	}
	s.routes = http.NewServeMux()
	for _, r := range []struct {
		method, path string
		handle       handler
	}{
		{"POST", "/v1/chat/completions", s.chat},
		{"POST", "/v1/completions", s.completions},
		{"POST", "/v1/embeddings", s.embeddings},
		{"GET", "/v1/models", s.models},
		{"GET", "/v1/models/{id...}", s.modelByID},
		{"POST", "/tokenize", s.tokenize},
		{"POST", "/detokenize", s.detokenize},
		{"GET", "/metrics", s.serveMetrics},
		{"GET", loadPath, s.load},
		{"GET", pagePath, s.page},
		{"GET", "/health", s.health},
	} {
		s.routes.Handle(r.path, s.endpoint(r.method, r.path, r.handle))
	}
	s.routes.Handle("/", s.endpoint("", "other", func(x *exchange) error {
		return &apiError{status: http.StatusNotFound, Type: typeInvalid, Code: "unknown_url", Message: shorten("no such endpoint: "+x.r.Method+" "+x.r.URL.Path, 200)}
	}))
	return s, nil
}

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.routes.ServeHTTP(w, r) }

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Context int    `json:"max_model_len"`
	Chat    bool   `json:"chat"` // the file has a chat template
}

func (s *Server) model() modelObject {
	return modelObject{s.name, "model", 0, "lockstep", s.info.context, s.info.chat}
}

func (s *Server) models(x *exchange) error {
	return x.json(http.StatusOK, struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", []modelObject{s.model()}})
}

func (s *Server) modelByID(x *exchange) error {
	if err := s.checkModel(x.r.PathValue("id")); err != nil {
		return err
	}
	return x.json(http.StatusOK, s.model())
}

// checkModel refuses the name of another model. "" means the served one.
func (s *Server) checkModel(name string) *apiError {
	if name == "" || name == s.name {
		return nil
	}
	return &apiError{
		status: http.StatusNotFound, Type: typeInvalid, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("model: %q is not served, %q is", shorten(name, 64), s.name),
	}
}

// health answers 503 if the server stops or the device is lost, else 200. Another failed step does
// not count: without requests no step could succeed, and the server would stay unready.
func (s *Server) health(x *exchange) error {
	s.mu.Lock()
	stops := s.stopping
	s.mu.Unlock()
	failed := s.backend.load().StepError
	switch {
	case stops:
		return stopping()
	case errors.Is(failed, driver.ErrDeviceLost):
		return deviceLost(failed)
	}
	return x.json(http.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
}

// allowed reports whether pages of an origin may use the server.
func (s *Server) allowed(origin string) bool {
	return slices.Contains(s.options.Origins, "*") || slices.Contains(s.options.Origins, origin)
}
