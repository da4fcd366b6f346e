package store

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"os"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// TableWriter writes a table row by row in its canonical type: uint8 when
// every value is an integer in [0, 255], otherwise the type of the source
// (float16, int8) or float32. So the same values make the same file, whatever
// format they came from. It starts with uint8, and writes what it has again
// when the first other value comes.
type TableWriter struct {
	*ArrayWriter
	o   TableOptions
	raw []byte
}

// TableOptions say how a TableWriter stores values.
type TableOptions struct {
	// Wide is the type when uint8 does not do: Float32, Float16, BFloat16 or Int8.
	Wide graph.DType
	// Fixed takes Wide even where uint8 does.
	Fixed bool
	// Normalize divides rows by the sum of their absolute values; with it the type
	// is float32.
	Normalize bool
	// Scratch makes it a ScratchArray.
	Scratch bool
}

// Table begins a table of so many columns.
func (w *Writer) Table(name string, cols int, o TableOptions) (*TableWriter, error) {
	if o.Normalize {
		o.Wide, o.Fixed = graph.Float32, true
	}
	first, begin := graph.Uint8, w.Array
	if o.Fixed {
		first = o.Wide
	}
	if o.Scratch {
		begin = w.ScratchArray
	}
	a, err := begin(name, first, cols)
	if err != nil {
		return nil, err
	}
	return &TableWriter{ArrayWriter: a, o: o}, nil
}

// Row adds a row. It may change x, whose values must be finite, and for the
// types float16 and int8 representable.
func (t *TableWriter) Row(x []float32) error {
	if t.o.Normalize {
		graph.NormalizeRow(x)
	}
	if t.dtype == graph.Uint8 {
		raw, ok := appendUint8(t.raw[:0], x)
		t.raw = raw
		if ok {
			_, err := t.Write(raw)
			return err
		}
		if err := t.widen(); err != nil {
			return err
		}
	}
	t.raw = appendValues(t.raw[:0], x, t.o.Wide)
	_, err := t.Write(t.raw)
	return err
}

// appendUint8 appends x as bytes and tells whether it could.
func appendUint8(b []byte, x []float32) ([]byte, bool) {
	for _, v := range x {
		if !(v >= 0 && v <= 255) {
			return b, false
		}
		u := uint8(v)
		if math.Float32bits(float32(u)) != math.Float32bits(v) { // not whole, or -0
			return b, false
		}
		b = append(b, u)
	}
	return b, true
}

func appendValues(b []byte, x []float32, t graph.DType) []byte {
	switch t {
	case graph.Float32:
		return append(b, arrays.Bytes(x)...)
	case graph.Float16:
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, graph.Float32ToFloat16(v))
		}
	case graph.BFloat16:
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(v)>>16))
		}
	default:
		for _, v := range x {
			b = append(b, byte(int8(v)))
		}
	}
	return b
}

// widen writes the rows so far again in the wide type.
func (t *TableWriter) widen() error {
	old := t.ArrayWriter
	defer old.Close()
	narrow, err := old.Reader()
	if err != nil {
		return err
	}
	if err := os.Rename(old.path, old.path+".narrow"); err != nil {
		return dataerr.Writing(t.w.Shown(old.path), err)
	}
	t.ArrayWriter, err = old.w.arrayAt(old.path, old.name, t.o.Wide, old.Cols())
	if err != nil {
		t.ArrayWriter = old
		return err
	}
	r := bufio.NewReaderSize(narrow, 1<<20)
	row, x := make([]byte, old.cols), make([]float32, old.cols)
	var raw []byte
	for n := old.n; n > 0; n -= old.cols {
		if _, err := io.ReadFull(r, row); err != nil {
			return dataerr.Writing(t.w.Shown(old.path), err)
		}
		for j, v := range row {
			x[j] = float32(v)
		}
		raw = appendValues(raw[:0], x, t.o.Wide)
		if _, err := t.Write(raw); err != nil {
			return err
		}
	}
	if err := os.Remove(old.path + ".narrow"); err != nil {
		return dataerr.Writing(t.w.Shown(old.path), err)
	}
	return nil
}
