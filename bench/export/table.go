package export

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// Column describes a column of a table.
type Column struct {
	Name string
	Type string // string, int, float, bool, list of int, list of float or list of string
	Null bool   // may be missing: null, in CSV an empty field
	Doc  string
}

// Columns describes the columns of rows like the one given, in their order: its fields
// are the columns; json and parquet name them, doc says what they hold; a pointer may be
// null. Without a row there are none.
func Columns(row any) []Column {
	if t := reflect.TypeOf(row); t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return columns(reflect.TypeOf(row))
}

func columns(t reflect.Type) []Column {
	var out []Column
	for _, f := range reflect.VisibleFields(t) {
		c := Column{Name: f.Tag.Get("json"), Doc: f.Tag.Get("doc")}
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind, c.Null = kind.Elem(), true
		}
		if kind.Kind() == reflect.Slice {
			c.Type = "list of "
			kind = kind.Elem()
		}
		switch kind.Kind() {
		case reflect.Int32, reflect.Int64:
			c.Type += "int"
		case reflect.Float64:
			c.Type += "float"
		default:
			c.Type += kind.Kind().String()
		}
		out = append(out, c)
	}
	return out
}

// WriteRows writes at least one row, pointers to structs of one type, as a table: JSONL, CSV
// or Parquet.
func WriteRows(w io.Writer, f Format, rows []any) error {
	switch f {
	case JSONL:
		return writeJSONL(w, rows)
	case CSV:
		return writeCSV(w, rows)
	case Parquet:
		return writeParquet(w, rows)
	}
	return fmt.Errorf("the format %q is no table", f)
}

func writeJSONL(w io.Writer, rows []any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// writeCSV writes lists as JSON in one field.
func writeCSV(w io.Writer, rows []any) error {
	out := csv.NewWriter(w)
	fields := reflect.VisibleFields(reflect.TypeOf(rows[0]).Elem())
	record := make([]string, len(fields))
	for i, f := range fields {
		record[i] = f.Tag.Get("json")
	}
	if err := out.Write(record); err != nil {
		return err
	}
	for _, r := range rows {
		v := reflect.ValueOf(r).Elem()
		for j, f := range fields {
			s, err := field(v.FieldByIndex(f.Index))
			if err != nil {
				return fmt.Errorf("column %s: %w", f.Tag.Get("json"), err)
			}
			record[j] = s
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func writeParquet(w io.Writer, rows []any) error {
	out := parquet.NewWriter(w, parquet.SchemaOf(rows[0]), parquet.Compression(&parquet.Zstd))
	for _, r := range rows {
		if err := out.Write(r); err != nil {
			return err
		}
	}
	return out.Close()
}

func field(v reflect.Value) (string, error) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "", nil
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), nil
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), nil
	case reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), nil
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64), nil
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v.Interface())
	return strings.TrimSuffix(b.String(), "\n"), err
}
