package checksum

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

type card struct {
	Name  string             `json:"name"`
	Text  json.RawMessage    `json:"text,omitempty"`
	Ns    map[string]float64 `json:"ns,omitempty"`
	Other string             `json:"content_sha256,omitempty"`
}

func TestSeal(t *testing.T) {
	for _, v := range []any{card{Name: "a <b> & é"}, card{Name: "x", Text: json.RawMessage(`{"b": [1e5, 0.10], "a":null}`), Ns: map[string]float64{"z": 1.0 / 3, "a": 2}}, struct{}{}} {
		text, err := Seal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		var other bytes.Buffer
		if err := json.Compact(&other, text); err != nil {
			t.Fatal(err)
		}
		if err := Check(other.Bytes()); err != nil {
			t.Errorf("without white space: %v", err)
		}
		// No bit of the text can be flipped without its showing.
		for i := range text {
			flipped := bytes.Clone(text)
			flipped[i] ^= 1
			if Check(flipped) == nil && string(bytes.TrimSpace(flipped)) != string(bytes.TrimSpace(text)) && !bytes.ContainsRune([]byte(" \n!\v"), rune(flipped[i])) {
				t.Errorf("byte %d is %q and nobody says so", i, flipped[i])
			}
		}
	}
}

func TestCheckWithout(t *testing.T) {
	if err := Check([]byte(`{"name":"a"}`)); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if err := Check([]byte(`{"content_sha256":"sha256:00","name":"a"}`)); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	for _, text := range []string{"", "[1]", `"x"`, "{"} {
		if Check([]byte(text)) == nil {
			t.Errorf("%q counts as sealed", text)
		}
	}
	if _, err := Seal(card{Other: "sha256:00"}); err == nil {
		t.Error("a text was sealed twice")
	}
	if _, err := Seal(map[string]any{"f": func() {}}); err == nil {
		t.Error("what JSON cannot hold was sealed")
	}
}
