package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestCheckRefusesWhatEncodingJSONTakes(t *testing.T) {
	utf16 := "{\x00\"\x00a\x00\"\x00:\x001\x00}\x00"
	for _, c := range []struct{ name, text, field, what string }{
		{"byte order mark", "\xEF\xBB\xBF{}", "", "byte order mark"},
		{"UTF-16 with a mark", "\xFF\xFE" + utf16, "", "UTF-16"},
		{"UTF-16 without", utf16, "", "UTF-16"},
		{"UTF-16, big end first", "\x00{\x00}", "", "UTF-16"},
		{"a byte that is no UTF-8", "{\"a\":{\"b\":[\"x\",\"\xFF\"]}}", "a.b[1]", "byte FF"},
		{"half a surrogate pair", `{"a":["\ud83d"]}`, "a[0]", "surrogate"},
		{"a key twice", `{"a":{"b":1,"b":2}}`, "a.b", "twice"},
		{"a key twice, one escaped", `{"b":1,"\u0062":2}`, "b", "twice"},
		{"two cases of a key", `{"sid":1,"x":[{"turn":3,"Turn":8}]}`, "x[0].Turn", `"turn" and "Turn"`},
		{"two cases of a letter that has three", `{"sid":1,"ſid":2}`, "ſid", `"sid" and "ſid"`},
		{"a key of control characters", "{\"a\\u001b[2J\\n.b\":{\"c\":1,\"c\":2}}", `"a\x1b[2J\n.b".c`, "twice"},
		{"a long key twice", `{"` + strings.Repeat("k", 999) + `":1,"` + strings.Repeat("k", 999) + `":2}`, strings.Repeat("k", 60) + "…", "twice"},
		{"cut", `{"a":{"b":1`, "a", "ends too early"},
		{"two values", `{"a":1} {"a":2}`, "", "text follows"},
		{"nothing", "  \n", "", "no JSON"},
		{"a comma too many", `{"a":1,}`, "", "not JSON"},
	} {
		var e *Error
		if err := Check([]byte(c.text)); !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.What, c.what) || e.Remedy == "" {
			t.Errorf("%s: %#v", c.name, err)
		}
	}
}

func TestCheckTakesWhatIsRight(t *testing.T) {
	for _, text := range []string{`{}`, ` {"a":[1,{"a":"é\ud83d\ude00"},{"a":2}],"b":{"a":null}}` + "\n", `[{"a":1},{"A":1}]`, `{"a":"turn","b":"Turn"}`, `"x"`, `{"a":"\u0000"}`} {
		if err := Check([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	var e *Error
	if err := Check([]byte(`{"a":["\u0000"]}`), RefuseNUL); !errors.As(err, &e) || e.Field != "a[0]" {
		t.Errorf("NUL: %v", err)
	}
	var v struct{ A int }
	var te *json.UnmarshalTypeError
	if err := Unmarshal([]byte(`{"a":"x"}`), &v); !errors.As(err, &te) {
		t.Errorf("another type: %v", err)
	}
}

func TestUnmarshalSaysWhereAnotherTypeStands(t *testing.T) {
	for _, c := range []struct{ text, field, what string }{
		{`{"l":[{"t":1},{"t":"x"}]}`, "l[1].t", "a JSON string stands where a whole number is expected"},
		{`{"l":[{"t":1.5}]}`, "l[0].t", "a JSON number 1.5 stands where a whole number"},
		{`{"l":{"t":1}}`, "l", "a JSON object stands where a list"},
		{`{"p":["a"]}`, "p[0]", "where a number is expected"},
		{`[1]`, "", "a JSON array stands where an object"},
	} {
		var v struct {
			L []struct{ T int }
			P []float64
		}
		var e *Error
		if err := Unmarshal([]byte(c.text), &v); !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.What, c.what) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"\xEF\xBB\xBFa": "line 1: the text begins with a byte order mark", "\xFF\xFEa\x00": "line 1: the text is UTF-16", "a\x00b\x00": "line 1: the text is UTF-16",
		"a\nb\r\nc\xE9": "line 3: byte E9 is no UTF-8", "ab\n\x00": "line 2: the text holds the character NUL",
	} {
		if err := Text([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := Text([]byte("é\r\n\t😀")); err != nil {
		t.Error(err)
	}
}

func TestNullEntries(t *testing.T) {
	var v struct {
		P [][]float64
		Q *int
	}
	var e *Error
	if err := Unmarshal([]byte(`{"q":null,"p":[[4],[5,null]]}`), &v, RefuseNullEntries); !errors.As(err, &e) || e.Field != "p[1][1]" {
		t.Errorf("null in a list: %v", err)
	}
	if err := Unmarshal([]byte(`{"q":null,"p":[[4],[5]]}`), &v, RefuseNullEntries); err != nil {
		t.Errorf("null as a field's value: %v", err)
	}
}

// What an error quotes is short and on one line.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("k\\n", 9999)
	var number struct{ K int }
	if err := Unmarshal([]byte(`{"k":`+strings.Repeat("9", 9999)+`}`), &number); err == nil || len(err.Error()) > 300 {
		t.Errorf("a long number: %v", err)
	}
	deep := strings.Repeat(`{"key":`, 9000)
	for _, text := range []string{`{"` + long + `":1,"` + strings.ToUpper(long[:1]) + long[1:] + `":2}`, deep, `{"` + long + `":"\ud800"}`} {
		if err := Check([]byte(text)); err == nil || len(err.Error()) > 700 || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%.60s: %.900v", text, err)
		}
	}
}

// What Check accepts encoding/json reads to the same value as before, and nothing panics.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a":[1,"x",{"b":null}]}`, "\xFF", `{"a":1,"A":2}`, `"\ud800"`, `[[[[`, `1e999`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if Check(b, RefuseNUL) != nil {
			return
		}
		var v, w any
		if err := json.Unmarshal(b, &v); err != nil {
			if strings.Contains(err.Error(), "1e") || strings.Contains(err.Error(), "number") || strings.Contains(err.Error(), "depth") {
				return // beyond float64, or too deep for it
			}
			t.Fatalf("%q: accepted, and encoding/json says %v", b, err)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &w); err != nil || !reflect.DeepEqual(v, w) {
			t.Fatalf("%q was not kept: %s", b, again)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	text := []byte(`{"items":[` + strings.Repeat(`{"step":"ask","item":"17","p":[0.25,0.75],"text":"a line of some length, as people write"},`, 999) + `{}]}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := Check(text); err != nil {
			b.Fatal(err)
		}
	}
}

// An object of many keys is searched as one of few is.
func TestManyKeys(t *testing.T) {
	keys := func(last string) []byte {
		var b strings.Builder
		b.WriteString("{")
		for i := range 200 {
			fmt.Fprintf(&b, `"k%d":1,`, i)
		}
		return []byte(b.String() + `"` + last + `":1}`)
	}
	for last, twice := range map[string]bool{"k200": false, "K3": true, "K150": true} {
		if err := Check(keys(last)); (err != nil) != twice {
			t.Errorf("with the key %s at the end: %v", last, err)
		}
	}
}
