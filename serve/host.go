package serve

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// A web page can point the name of its own site at 127.0.0.1 (DNS rebinding). Its browser then takes
// a server on loopback for that site, and lets the page send any request and read the answer. But
// the header Host still has the name of the site. So a server on loopback serves only requests for
// loopback, and for the hosts of Options.Hosts.

// loopback is a context key. Its value is true for requests to a listener on loopback.
type loopback struct{}

// baseContext is http.Server.BaseContext.
func baseContext(l net.Listener) context.Context {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return context.WithValue(context.Background(), loopback{}, ok && tcp.IP.IsLoopback())
}

// checkHost refuses a request to a listener on loopback that names another host. Browsers always
// send the header; without it the request is not from one.
func (s *Server) checkHost(r *http.Request) *apiError {
	if on, _ := r.Context().Value(loopback{}).(bool); !on || r.Host == "" {
		return nil
	}
	host := hostOf(r.Host)
	if addr, err := netip.ParseAddr(host); err == nil && addr.Unmap().IsLoopback() {
		return nil
	}
	named := func(allowed string) bool { return allowed == "*" || hostOf(allowed) == host }
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.ContainsFunc(s.options.Hosts, named) {
		return nil
	}
	return &apiError{
		status: http.StatusForbidden, Type: typeInvalid, Param: "Host", Code: "host_not_allowed",
		Message: "Host: " + shorten(host, 100) + " is neither loopback nor allowed by --allow-host",
	}
}

// hostOf returns the host of a header Host without port, brackets and final dot, in lower case, so
// that hosts can be compared.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$`)

// IsHost reports whether s can be an element of Options.Hosts.
func IsHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return s == "*" || err == nil || hostName.MatchString(s)
}
