package serve

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// varying matches the values of a response that differ from run to run.
var varying = regexp.MustCompile(`("id":"cmpl-)[a-z0-9]+|("(?:created|seed)":)\d{9,}`)

// TestDocs runs the curl commands of docs/serving.md and compares their output with the page.
func TestDocs(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("needs curl")
	}
	page, err := os.ReadFile("../docs/serving.md")
	if err != nil {
		t.Fatal(err)
	}
	url, _, _ := listen(t, newGenerator(embedded(t)), Options{})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 0 {
			continue
		}
		for _, example := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(example, "\n")
			if !strings.HasPrefix(command, "curl ") {
				t.Fatalf("not a curl command: %s", command)
			}
			c := exec.Command("sh", "-c", strings.Replace(strings.Replace(command, "curl", curl, 1), ":8080", ":"+port, 1))
			out, err := c.Output()
			if err != nil {
				t.Fatalf("%s: %v", command, err)
			}
			if got := varying.ReplaceAllString(string(out), "$1$2…"); strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("$ %s\n%s\nthe page has\n%s", command, got, want)
			}
			ran++
		}
	}
	if ran < 8 {
		t.Errorf("%d commands, want 8 or more", ran)
	}
}
