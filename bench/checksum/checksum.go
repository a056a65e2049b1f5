// Package checksum puts a checksum of its own content into a JSON file, so that an
// edit by hand, or a bit that the disk lost, shows when the file is read.
//
//	text, err := checksum.Seal(card)     // {"content_sha256": "sha256:…", …}
//	err = checksum.Check(text)           // ErrNone for what an older version wrote
package checksum

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Key is the member of the JSON object that holds the checksum of all others.
const Key = "content_sha256"

// ErrNone reports a text without a checksum, as older versions wrote it.
var ErrNone = errors.New("it has no " + Key)

// ErrChanged reports a text that its checksum does not belong to.
var ErrChanged = errors.New("it was changed since it was written: " + Key + " does not belong to its content")

// Seal encodes v, a JSON object, with the checksum as its first member, indented by
// two spaces.
func Seal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	stored, sum, err := sums(b.Bytes())
	if err == nil && stored != "" {
		err = errors.New(Key + " is set already")
	}
	if err != nil {
		return nil, err
	}
	rest := bytes.TrimPrefix(b.Bytes(), []byte("{"))
	sep := ","
	if rest[0] == '}' {
		sep = ""
	}
	text := fmt.Appendf(nil, "{%q:%q%s%s", Key, sum, sep, rest)
	b.Reset()
	err = json.Indent(&b, text, "", "  ")
	return b.Bytes(), err
}

// Check returns ErrChanged or ErrNone unless the text is as it was sealed, but for
// white space and the order of its members. Read the text by strictjson first.
func Check(text []byte) error {
	stored, sum, err := sums(text)
	switch {
	case err != nil:
		return err
	case stored == "":
		return ErrNone
	case stored != sum:
		return ErrChanged
	}
	return nil
}

// sums returns the checksum that an object holds and the one of its content.
func sums(text []byte) (stored, sum string, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var o map[string]any
	if err := dec.Decode(&o); err != nil {
		return "", "", err
	}
	stored, _ = o[Key].(string)
	delete(o, Key)
	b, err := json.Marshal(o) // with sorted keys
	h := sha256.Sum256(b)
	return stored, "sha256:" + hex.EncodeToString(h[:]), err
}
