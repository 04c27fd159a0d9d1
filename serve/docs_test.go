package serve

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestDocs runs the curl commands of pages and compares their output with what the pages show, where
// … stands for anything.
func TestDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("generates a page of answers")
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		lacks(t, "curl")
	}
	for name, least := range map[string]int{"docs/serving.md": 8, "README.md": 1} {
		t.Run(name, func(t *testing.T) {
			page, err := os.ReadFile("../" + name)
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
						continue
					}
					c := exec.Command("sh", "-c", strings.Replace(strings.Replace(command, "curl", curl, 1), ":8080", ":"+port, 1))
					out, err := c.Output()
					if err != nil {
						t.Fatalf("%s: %v", command, err)
					}
					ran++
					pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", ".*")
					if got := strings.TrimSpace(string(out)); !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
						t.Errorf("$ %s\n%s\nthe page has\n%s", command, got, want)
					}
				}
			}
			if ran < least {
				t.Errorf("%d commands, want %d or more", ran, least)
			}
		})
	}
}
