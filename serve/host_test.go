package serve

import (
	"net"
	"testing"
)

// TestHosts: a server on loopback serves requests for loopback and for the hosts of its options. A
// server on another address serves requests for all hosts.
func TestHosts(t *testing.T) {
	tests := []struct {
		host    string
		allowed []string
		want    int
	}{
		{"127.0.0.1", nil, 200},
		{"127.0.0.1:8080", nil, 200},
		{"127.1.2.3", nil, 200},
		{"localhost", nil, 200},
		{"LocalHost.:8080", nil, 200},
		{"model.localhost:8080", nil, 200},
		{"[::1]:8080", nil, 200},
		{"[::1]", nil, 200},
		{"[::ffff:127.0.0.1]:8080", nil, 200},
		{"evil.example", nil, 403},
		{"evil.example:8080", nil, 403},
		{"127.0.0.1.evil.example", nil, 403},
		{"evil.example.", []string{"model.example"}, 403},
		{"localhost.evil.example", nil, 403},
		{"notlocalhost", nil, 403},
		{"192.168.0.1:8080", nil, 403},
		{"0.0.0.0:8080", nil, 403},
		{"[fe80::1]:8080", nil, 403},
		{"model.example:8080", []string{"other.example", "Model.Example"}, 200},
		{"a.model.example", []string{"model.example"}, 403},
		{"192.168.0.1:8080", []string{"192.168.0.1"}, 200},
		{"[fe80::1]:8080", []string{"fe80::1"}, 200},
		{"evil.example", []string{"*"}, 200},
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			url, _, _ := listen(t, newFake("a"), Options{Hosts: tt.allowed})
			for path, method := range map[string]string{"/v1/models": "GET", "/health": "GET", "/": "GET", loadPath: "GET", textPath: "POST", "/nowhere": "GET"} {
				body, want := "", tt.want
				if method == "POST" {
					body = `{"prompt":"hi"}`
				}
				if path == "/nowhere" && want == 200 {
					want = 404
				}
				r := ask(t, method, url+path, body, "Host", tt.host, "Origin", "http://"+tt.host)
				if r.status != want {
					t.Errorf("%s: status %d, want %d: %s", path, r.status, want, r.body)
				}
				if want == 403 {
					if _, _, param, code := errorOf(t, r); param != "Host" || code != "host_not_allowed" {
						t.Errorf("%s: %s", path, r.body)
					}
				}
			}
		})
	}
	t.Run("another address", func(t *testing.T) {
		l, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Skip(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		url, _, _ := listenOn(t, newFake("a"), Options{}, l)
		if r := ask(t, "GET", url+"/v1/models", "", "Host", "evil.example:"+port); r.status != 200 {
			t.Errorf("status %d: %s", r.status, r.body)
		}
	})
}
