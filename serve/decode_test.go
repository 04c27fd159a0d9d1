package serve

import (
	"encoding/json"
	"reflect"
	"testing"
)

// tree reads any value as encoding/json does, except that keys with null are absent.
func (d *decoder) tree() any {
	switch d.peek() {
	case '{':
		m := map[string]any{}
		d.object(func(key string) { m[key] = d.tree() })
		return m
	case '[':
		a := []any{}
		d.array(func(int) {
			if d.null() {
				a = append(a, nil)
				return
			}
			a = append(a, d.tree())
		})
		return a
	case '"':
		return d.string()
	case 't', 'f':
		return d.bool()
	}
	_, x := d.number()
	return x
}

// FuzzDecode: what the decoder accepts, encoding/json accepts with the same values, and d.skip accepts.
// d.raw returns valid JSON.
func FuzzDecode(f *testing.F) {
	for _, m := range malformedRequests() {
		if len(m.body) < 1000 {
			f.Add([]byte(m.body))
		}
	}
	for _, s := range []string{`{"a":"\ud83d\ude00\\u0041\/","b":[null,1e3,-0.5,true,{}],"c":null}`, `{"\\":"\"","":[[]]}`, " {\t\"a\" :\r\n1 , \"b\": [ ] } "} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := map[string]any{}
		err := decodeBody(body, func(d *decoder, key string) { got[key] = d.tree() })
		skipped := decodeBody(body, func(d *decoder, _ string) { d.skip() })
		if err == nil && skipped != nil {
			t.Fatalf("skip fails: %v", skipped)
		}
		raw := map[string]json.RawMessage{}
		if decodeBody(body, func(d *decoder, key string) { raw[key] = d.raw() }) == nil {
			for key, text := range raw {
				if !json.Valid(text) {
					t.Fatalf("raw: %s: %q", key, text)
				}
			}
		}
		if err != nil {
			return
		}
		var want map[string]any
		if e := json.Unmarshal(body, &want); e != nil {
			t.Fatalf("accepted, but encoding/json says %v", e)
		}
		if want = withoutNulls(want).(map[string]any); !reflect.DeepEqual(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// withoutNulls removes the keys whose value is null.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, e := range v {
			if e == nil {
				delete(v, key)
				continue
			}
			v[key] = withoutNulls(e)
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	}
	return v
}
