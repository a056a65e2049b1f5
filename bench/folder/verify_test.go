package folder

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestDifferentValues(t *testing.T) {
	decode := func(s string) (v any) {
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		stored, again string
		want          []string
	}{
		{`{"a":1,"b":[1,2]}`, `{"a":1,"b":[1,2]}`, nil},
		{`{"a":0.3}`, `{"a":0.30000000000000004}`, nil},
		{`{"a":0.3}`, `{"a":0.3001}`, []string{"a is stored as 0.3 and comes to 0.3001"}},
		{`{"a":{"b":[1,{"c":"x"}]}}`, `{"a":{"b":[1,{"c":"y"}]}}`, []string{`a.b.1.c is stored as "x" and comes to "y"`}},
		{`{"a":1}`, `{"b":2}`, []string{"a is stored as 1 and comes to nothing", "b is missing and comes to 2"}},
		{`{"a":[1]}`, `{"a":[1,2]}`, []string{"a is stored as [1] and comes to [1,2]"}},
		{`{"a":null}`, `{"a":{}}`, []string{"a is stored as null and comes to {}"}},
	} {
		if got := differentValues("", decode(c.stored), decode(c.again)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s and %s: %q, want %q", c.stored, c.again, got, c.want)
		}
	}
}

func TestManyFaultsAreCut(t *testing.T) {
	v := Verdict{Path: "run"}
	for i := range mostFaults + 5 {
		v.fault("fault %d", i)
	}
	var b strings.Builder
	v.Print(&b)
	if n := strings.Count(b.String(), "fault "); n != mostFaults || !strings.Contains(b.String(), fmt.Sprintf("%d faults", mostFaults+5)) || !strings.Contains(b.String(), "and 5 more") {
		t.Errorf("%d printed:\n%s", n, b.String())
	}
}
