package arrays

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"
)

// create makes a file and lets write fill it through a buffer.
func create(path string, write func(io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write arrays: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buffered := bufio.NewWriterSize(f, 1<<20)
	if err := write(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write arrays: %w", err)
	}
	return nil
}

// writeArchive writes a cell as a NumPy archive: X, y, group, turn, fold and meta.json.
func writeArchive(ctx context.Context, path string, p *part) error {
	return create(path, func(w io.Writer) error {
		z := zip.NewWriter(w)
		entry := func(name string) (io.Writer, error) {
			// Stored, as numpy does it, and with one date, so that the same states give the same bytes.
			return z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)})
		}
		x, err := entry("X.npy")
		if err == nil {
			err = p.writeStates(ctx, x)
		}
		if err != nil {
			return err
		}
		numbers := []struct {
			name   string
			shape  []int
			values []int64
		}{{"y", []int{len(p.y)}, p.y}, {"group", []int{len(p.y)}, p.group}, {"turn", []int{len(p.y)}, p.turn}}
		if p.fold != nil {
			numbers = append(numbers, numbers[0])
			last := &numbers[len(numbers)-1]
			last.name, last.shape, last.values = "fold", []int{len(p.fold), len(p.y)}, slices.Concat(p.fold...)
		}
		for _, a := range numbers {
			w, err := entry(a.name + ".npy")
			if err == nil {
				_, err = w.Write(npyHeader("<i8", a.shape))
			}
			if err == nil {
				err = binary.Write(w, binary.LittleEndian, a.values)
			}
			if err != nil {
				return fmt.Errorf("write the array %s: %w", a.name, err)
			}
		}
		text, err := json.MarshalIndent(p.Meta, "", "  ")
		if err != nil {
			return fmt.Errorf("encode what the arrays are: %w", err)
		}
		m, err := entry("meta.json")
		if err == nil {
			_, err = bytes.NewReader(text).WriteTo(m)
		}
		return errors.Join(err, z.Close())
	})
}

// writeStates writes X, a layer at a time.
func (p *part) writeStates(ctx context.Context, w io.Writer) error {
	width := p.file.Spec().Width
	if _, err := w.Write(npyHeader("<f4", []int{len(p.Layers), len(p.entries), width})); err != nil {
		return err
	}
	row := make([]byte, 4*width)
	for _, l := range p.Layers {
		err := p.layer(ctx, l, func(_ int, x []float32) error {
			for i, v := range x {
				binary.LittleEndian.PutUint32(row[4*i:], math.Float32bits(v))
			}
			_, err := w.Write(row)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tableRow is a row of a Parquet table: the states of one row in one layer.
type tableRow struct {
	Layer     string    `parquet:"layer,dict"`
	Item      string    `parquet:"item"`
	Condition string    `parquet:"condition,dict"`
	Text      string    `parquet:"text,dict"`
	Position  string    `parquet:"position,dict"`
	Turn      int32     `parquet:"turn"`
	Stage     string    `parquet:"stage,dict"`
	Group     string    `parquet:"group,dict"`
	Fold      []int32   `parquet:"fold,list"` // one a partition
	X         []float32 `parquet:"x,list"`
}

// writeParquet writes a cell as a Parquet table, a row group a layer.
func writeParquet(ctx context.Context, path string, p *part) error {
	return create(path, func(w io.Writer) error {
		table := parquet.NewGenericWriter[tableRow](w, parquet.Compression(&parquet.Zstd))
		for _, l := range p.Layers {
			err := p.layer(ctx, l, func(i int, x []float32) error {
				r := tableRow{Layer: l, Item: p.Items[i], Condition: p.Cell.Context, Text: p.Cell.Text, Position: p.Cell.Position,
					Turn: int32(p.turn[i]), Stage: p.Stages[p.y[i]], Group: p.Groups[p.group[i]], X: x}
				for _, fold := range p.fold {
					r.Fold = append(r.Fold, int32(fold[i]))
				}
				_, err := table.Write([]tableRow{r})
				return err
			})
			if err == nil {
				err = table.Flush()
			}
			if err != nil {
				return fmt.Errorf("write the table: %w", err)
			}
		}
		return table.Close()
	})
}
