package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of the connections that Serve accepts.
const (
	maxHeader     = 64 << 10 // bytes
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	flushTime     = time.Second // for the last bytes of responses when Serve stops
)

// begin counts a request as active, unless there are too many or the server stops. end must follow.
func (s *Server) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return stopping()
	case s.active >= s.options.MaxRequests:
		return busy(fmt.Sprintf("%d requests are in flight", s.active))
	}
	s.active++
	return nil
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active--; s.stopping && s.active == 0 {
		close(s.idle)
	}
}

// Stop makes /health answer 503 and refuses new requests with 503. It waits for the requests
// in flight until ctx ends, then cuts those that remain and waits for them to return. It
// returns ctx.Err() if it cut any. After Stop the server serves no further requests.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopping {
		s.stopping = true
		if s.active == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
	}
	s.cutAll(errStopping)
	<-s.idle
	return ctx.Err()
}

// ListenAndServe is Serve on a TCP address such as 127.0.0.1:8080.
func (s *Server) ListenAndServe(ctx context.Context, addr string) error {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return s.Serve(ctx, l)
}

// Serve serves the connections of a listener until ctx ends. Then it stops as Stop does, within
// Options.Grace. Meanwhile it accepts connections, so that /health can answer 503. At the end it
// closes the listener. It returns nil even if it cut requests.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:           s,
		BaseContext:       baseContext,
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	select {
	case err := <-served:
		h.Close()
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.log.Info("stopping", "grace", s.options.Grace)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Grace)
	defer cancel()
	if err := s.Stop(grace); err != nil {
		s.log.Warn("requests were cut at the end of the grace period")
	}
	// Every response is complete, but its last bytes may still be on their way.
	flush, cancelFlush := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancelFlush()
	if h.Shutdown(flush) != nil {
		h.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	s.log.Info("stopped")
	return nil
}
