package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/parquet-go/parquet-go"
)

// parquetTable writes rows of text as columns of Parquet: texts, whole numbers of 64 bits, and float32; an empty cell of numbers is null.
type parquetTable struct {
	w    *parquet.GenericWriter[any]
	head []column
	rows []parquet.Row // that are handed on at once
}

// parquetRows is how many rows are handed on at once.
const parquetRows = 1 << 10

// newParquetTable takes columns whose names differ, as checkColumns says.
func newParquetTable(w io.Writer, head []column) *parquetTable {
	columns := ordered{Group: parquet.Group{}}
	for _, c := range head {
		node := parquet.String()
		switch c.of {
		case wholes:
			node = parquet.Optional(parquet.Int(64))
		case float32s:
			node = parquet.Optional(parquet.Leaf(parquet.FloatType))
		}
		columns.Group[c.name] = node
		columns.names = append(columns.names, c.name)
	}
	return &parquetTable{w: parquet.NewGenericWriter[any](w, parquet.NewSchema("gnnactor", columns), parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(1<<16)), head: head}
}

func (t *parquetTable) write(cells []string) error {
	row := make(parquet.Row, 0, len(cells))
	for i, cell := range cells {
		v, level := parquet.NullValue(), 1
		switch {
		case t.head[i].of == texts:
			v, level = parquet.ByteArrayValue([]byte(cell)), 0
		case cell == "":
			level = 0
		case t.head[i].of == wholes:
			n, err := strconv.ParseInt(cell, 10, 64)
			if err != nil {
				return fmt.Errorf("column %q: %w; name a file .csv", t.head[i].name, err)
			}
			v = parquet.Int64Value(n)
		default:
			x, err := strconv.ParseFloat(cell, 32)
			if err != nil {
				return fmt.Errorf("column %q: %w", t.head[i].name, err)
			}
			v = parquet.FloatValue(float32(x))
		}
		row = append(row, v.Level(0, level, i))
	}
	if t.rows = append(t.rows, row); len(t.rows) < parquetRows {
		return nil
	}
	return t.flush()
}

func (t *parquetTable) flush() error {
	_, err := t.w.WriteRows(t.rows)
	t.rows = t.rows[:0]
	return err
}

func (t *parquetTable) close() error {
	if err := t.flush(); err != nil {
		return err
	}
	return t.w.Close()
}

// ordered is a group whose columns keep their order; the library's come by name.
type ordered struct {
	parquet.Group
	names []string
}

// Fields implements parquet.Node.
func (o ordered) Fields() []parquet.Field {
	fields := o.Group.Fields()
	slices.SortFunc(fields, func(a, b parquet.Field) int { return slices.Index(o.names, a.Name()) - slices.Index(o.names, b.Name()) })
	return fields
}
