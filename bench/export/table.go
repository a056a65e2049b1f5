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

// rows are the rows of one task.
type rows interface {
	len() int
	row(i int) any
	csv(w io.Writer) error
	parquet(w io.Writer) error
}

// table holds rows of one struct. Its fields are the columns: json and parquet
// name them, doc says what they hold; a pointer may be null.
type table[T any] []T

func (t table[T]) len() int      { return len(t) }
func (t table[T]) row(i int) any { return t[i] }

// Column describes a column of a table.
type Column struct {
	Name string
	Type string // string, int, float, bool, list of int, list of float or list of string
	Null bool   // may be missing: null, in CSV an empty field
	Doc  string
}

// Columns describes the columns of the tables of a task ("timing" or
// "mediation"), in their order; nil for any other.
func Columns(task string) []Column {
	switch task {
	case "timing":
		return columns(reflect.TypeFor[TimingRow]())
	case "mediation":
		return columns(reflect.TypeFor[MediationRow]())
	}
	return nil
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

func (x *Run) writeJSONL(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i := range x.rows.len() {
		if err := enc.Encode(x.rows.row(i)); err != nil {
			return err
		}
	}
	return nil
}

// csv writes lists as JSON in one field.
func (t table[T]) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	fields := reflect.VisibleFields(reflect.TypeFor[T]())
	record := make([]string, len(fields))
	for i, f := range fields {
		record[i] = f.Tag.Get("json")
	}
	if err := out.Write(record); err != nil {
		return err
	}
	for i := range t {
		v := reflect.ValueOf(&t[i]).Elem()
		for j, f := range fields {
			s, err := field(v.FieldByIndex(f.Index))
			if err != nil {
				return fmt.Errorf("column %s: %w", record[j], err)
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

func (t table[T]) parquet(w io.Writer) error {
	out := parquet.NewGenericWriter[T](w, parquet.Compression(&parquet.Zstd))
	if _, err := out.Write(t); err != nil {
		return err
	}
	return out.Close()
}
