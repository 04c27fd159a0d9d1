package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// exchange is a request with its response.
type exchange struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	id     string
	status int  // of the response; 0: none yet
	sse    *sse // nil: no stream
	usage  usage

	counted bool // in Server.active
}

// newID returns a random identifier.
func newID() string { return strings.ToLower(rand.Text()) }

// requestID returns the client's X-Request-Id if it can be logged as it is, else a new one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); headerToken(id) && len(id) <= 128 {
		return id
	}
	return newID()
}

// handler serves a request. The exchange reports its error.
type handler func(*exchange) error

// endpoint adds to the handler of a path what all have in common: request id, log, metrics, limits,
// authorization, errors.
func (s *Server) endpoint(method, path string, handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		x := &exchange{server: s, w: w, r: r, ctx: r.Context(), id: requestID(r)}
		w.Header().Set("X-Request-Id", x.id)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		defer func() {
			if x.counted { // the response is complete
				s.end()
			}
		}()
		err := s.checked(x, method, path, handle)
		if err != nil {
			x.fail(err)
		}
		s.metrics.request(path, x.status)
		s.record(x, path, time.Since(start), err)
	})
}

// checked calls a handler if the request passes the checks of its endpoint.
func (s *Server) checked(x *exchange, method, path string, handle handler) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler {
				panic(v)
			}
			s.log.Error("panic", "request", x.id, "value", v, "stack", string(debug.Stack()))
			err = &apiError{status: http.StatusInternalServerError, Type: typeServer, Code: "internal_error", Message: "internal error"}
		}
	}()
	if err := s.checkHost(x.r); err != nil {
		return err
	}
	if preflight := s.cors(x); preflight {
		return nil
	}
	if err := s.origins.Check(x.r); err != nil {
		return &apiError{status: http.StatusForbidden, Type: typeInvalid, Code: "cross_origin", Message: "a web page of another origin may not use this server"}
	}
	if method != "" && x.r.Method != method && !(method == http.MethodGet && x.r.Method == http.MethodHead) {
		x.w.Header().Set("Allow", method)
		return &apiError{status: http.StatusMethodNotAllowed, Type: typeInvalid, Code: "method_not_allowed", Message: shorten(x.r.Method+" is not allowed for "+path+", want "+method, 200)}
	}
	if path == "/health" || path == pagePath {
		return handle(x)
	}
	if !s.authorized(x.r) {
		x.w.Header().Set("WWW-Authenticate", "Bearer")
		return &apiError{status: http.StatusUnauthorized, Type: typeInvalid, Code: "invalid_api_key", Message: "the API key is missing or wrong, want the header Authorization: Bearer KEY"}
	}
	if path == "/metrics" || path == loadPath {
		return handle(x)
	}
	if err := s.begin(); err != nil {
		return err
	}
	x.counted = true
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.cut, func() { cancel(errStopping) })()
	if t := s.options.RequestTimeout; t > 0 {
		defer time.AfterFunc(t, func() { cancel(errTimeout) }).Stop()
	}
	x.ctx = ctx
	if err = handle(x); err != nil && !errors.As(err, new(errGone)) {
		return s.asAPIError(ctx, err) // before ctx is canceled
	}
	return err
}

// cors sets the headers of an allowed origin, and answers a preflight request.
func (s *Server) cors(x *exchange) (preflight bool) {
	if len(s.options.Origins) == 0 {
		return false
	}
	h := x.w.Header()
	h.Add("Vary", "Origin")
	origin := x.r.Header.Get("Origin")
	if origin == "" || !s.allowed(origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
	if x.r.Method != http.MethodOptions || x.r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	if asked := x.r.Header.Get("Access-Control-Request-Headers"); len(asked) <= 1024 {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "3600")
	x.status = http.StatusNoContent
	x.w.WriteHeader(x.status)
	return true
}

// authorized reports whether the request has one of the keys. It takes the same time whichever key
// that is, and however much of a key is right.
func (s *Server) authorized(r *http.Request) bool {
	if len(s.keys) == 0 {
		return true
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := sha256.Sum256([]byte(strings.TrimSpace(key)))
	equal := 0
	for _, k := range s.keys {
		equal |= subtle.ConstantTimeCompare(k[:], got[:])
	}
	return strings.EqualFold(scheme, "Bearer") && equal == 1
}

// body reads a JSON body within the limits of size and time.
func (x *exchange) body() ([]byte, error) {
	if err := x.jsonBody(); err != nil {
		return nil, err
	}
	o := &x.server.options
	control := http.NewResponseController(x.w)
	_ = control.SetReadDeadline(time.Now().Add(o.BodyTimeout)) // not every ResponseWriter has deadlines
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, o.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, Type: typeInvalid, Code: "body_too_large", Message: fmt.Sprintf("the body has more than %d bytes", o.MaxBody)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &apiError{status: http.StatusRequestTimeout, Type: typeInvalid, Code: "body_timeout", Message: fmt.Sprintf("the body did not arrive within %v", o.BodyTimeout)}
	case err != nil:
		return nil, badRequest("", "the body cannot be read: %v", err)
	}
	_ = control.SetReadDeadline(time.Time{})
	return body, nil
}

// jsonBody refuses other types of content. A web page can send text/plain without a preflight
// request, but not application/json.
func (x *exchange) jsonBody() *apiError {
	h := x.r.Header
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, given := params["charset"]
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") || given && !strings.EqualFold(charset, "utf-8") {
		return &apiError{status: http.StatusUnsupportedMediaType, Type: typeInvalid, Param: "Content-Type", Code: "unsupported_media_type",
			Message: fmt.Sprintf("Content-Type: %q, want application/json", shorten(h.Get("Content-Type"), 64))}
	}
	if e := h.Get("Content-Encoding"); e != "" && e != "identity" {
		return &apiError{status: http.StatusUnsupportedMediaType, Type: typeInvalid, Param: "Content-Encoding", Code: "unsupported_encoding",
			Message: fmt.Sprintf("Content-Encoding: %q, want none", shorten(e, 64))}
	}
	return nil
}

// json writes a response.
func (x *exchange) json(status int, v any) error {
	return x.write(status, "application/json", marshal(v))
}

func (x *exchange) write(status int, kind string, body []byte) error {
	x.w.Header().Set("Content-Type", kind)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.extend()
	x.status = status
	x.w.WriteHeader(status)
	if _, err := x.w.Write(body); err != nil {
		return errGone{err}
	}
	return nil
}

// extend moves the write deadline. If a client does not read until then, its request fails.
func (x *exchange) extend() {
	// Not every ResponseWriter has deadlines.
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(x.server.options.WriteTimeout))
}

// errGone is a failed write: nothing more reaches the client.
type errGone struct{ error }

func (e errGone) Unwrap() error { return e.error }

func (x *exchange) stream() *sse {
	x.sse = &sse{x: x}
	return x.sse
}

// done ends a stream.
func (x *exchange) done() error {
	if err := x.sse.send([]byte("[DONE]")); err != nil {
		return err
	}
	x.status = http.StatusOK
	return x.sse.flush()
}

// fail reports an error: as a response, or as the last event of a stream that has begun.
func (x *exchange) fail(err error) {
	e := x.server.asAPIError(x.r.Context(), err)
	if e.status == statusClosed || errors.As(err, new(errGone)) {
		x.status = statusClosed
		return
	}
	if x.sse != nil && x.sse.started {
		x.status = e.status
		if x.sse.sendJSON(errorBody{e}) == nil {
			_ = x.sse.flush()
		}
		return
	}
	if e.retryAfter > 0 {
		x.w.Header().Set("Retry-After", strconv.Itoa(e.retryAfter))
	}
	if e.status == http.StatusRequestTimeout || e.status == http.StatusRequestEntityTooLarge {
		x.w.Header().Set("Connection", "close") // the rest of the body is unread
	}
	_ = x.json(e.status, errorBody{e})
}

// record logs a request.
func (s *Server) record(x *exchange, path string, d time.Duration, err error) {
	level := slog.LevelInfo
	switch {
	case x.status >= 500:
		level = slog.LevelError
	case x.r.Method == http.MethodGet && x.status < 400:
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("request", x.id), slog.String("method", shorten(x.r.Method, 16)), slog.String("path", path),
		slog.Int("status", x.status), slog.Duration("duration", d), slog.String("remote", x.r.RemoteAddr),
	}
	if x.usage != (usage{}) {
		attrs = append(attrs, slog.Int("prompt_tokens", x.usage.prompt), slog.Int("completion_tokens", x.usage.completion))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", shorten(err.Error(), 300)))
	}
	s.log.LogAttrs(context.WithoutCancel(x.r.Context()), level, "request", attrs...)
}

// marshal encodes a value of this package, which cannot fail. It does not escape <, > and &.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// valid returns bytes as text.
func valid(b []byte) string { return strings.ToValidUTF8(string(b), "�") }

// finite replaces the log-probability of an impossible token, which JSON cannot express, as
// OpenAI does.
func finite(logprob float32) float32 {
	if math.IsInf(float64(logprob), 0) || math.IsNaN(float64(logprob)) {
		return -9999
	}
	return logprob
}
