// Package charttest reads charts in tests.
package charttest

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// Elements counts the elements of an SVG text by name. The test fails if the text is not
// well-formed XML.
func Elements(t testing.TB, text string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return counts
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if s, ok := token.(xml.StartElement); ok {
			counts[s.Name.Local]++
		}
	}
}
