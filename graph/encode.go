package graph

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// Encoding is how feature values are stored: a type, and for Int8 whether each
// row or each column has a scale of its own.
type Encoding struct {
	DType     DType
	PerColumn bool // Int8: value = stored·ColScale[column]; else stored·RowScale[row]
}

// Encodings returns the names that ParseEncoding reads.
func Encodings() []string { return []string{"float32", "float16", "bfloat16", "int8", "int8:column"} }

// ParseEncoding reads one of Encodings; "int8" has a scale per row.
func ParseEncoding(name string) (Encoding, error) {
	switch name {
	case "float32":
		return Encoding{DType: Float32}, nil
	case "float16":
		return Encoding{DType: Float16}, nil
	case "bfloat16":
		return Encoding{DType: BFloat16}, nil
	case "int8":
		return Encoding{DType: Int8}, nil
	case "int8:column":
		return Encoding{DType: Int8, PerColumn: true}, nil
	}
	return Encoding{}, fmt.Errorf("graph: %q is not one of the feature types %v", name, Encodings())
}

// String returns the name that ParseEncoding reads.
func (e Encoding) String() string {
	if e.PerColumn {
		return e.DType.String() + ":column"
	}
	return e.DType.String()
}

// Encode returns a copy of f in memory whose values are rounded to the nearest
// that e has, ties to even. With Int8 the scale is the largest absolute value of
// the row or column divided by 127, so a value is off by at most half a scale. A
// value that is not finite or that the type cannot hold is an error that wraps
// ErrFormat, and when ctx ends first its cause.
func (f *Features) Encode(ctx context.Context, e Encoding) (*Features, error) {
	out := &Features{Rows: f.Rows, Cols: f.Cols, DType: e.DType, Stride: f.Cols * e.DType.Size()}
	out.Data = make([]byte, 0, f.Rows*out.Stride)
	var err error
	out.RowScale, out.ColScale, err = f.EncodeTo(ctx, e, func(row []byte) error {
		out.Data = append(out.Data, row...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// EncodeTo is Encode with the rows handed to write, each valid until the next, and
// the scales returned. An error of write ends it.
func (f *Features) EncodeTo(ctx context.Context, e Encoding, write func(row []byte) error) (rowScale, colScale []float32, err error) {
	stop := interrupt.New(ctx)
	enc, err := newEncoder(stop, f, e)
	if err != nil {
		return nil, nil, err
	}
	for i := range f.Rows {
		if stop.Ended() {
			break
		}
		f.Row(enc.x, i)
		if err := enc.row(i); err != nil {
			return nil, nil, err
		}
		if err := write(enc.raw); err != nil {
			return nil, nil, err
		}
	}
	if err := stop.Err(); err != nil {
		return nil, nil, fmt.Errorf("graph: interrupted while features were encoded: %w", err)
	}
	return enc.rowScale, enc.colScale, nil
}

// encoder converts a table row by row.
type encoder struct {
	f                  *Features
	e                  Encoding
	rowScale, colScale []float32
	x                  []float32
	raw                []byte
}

func newEncoder(stop *interrupt.Poll, f *Features, e Encoding) (*encoder, error) {
	if _, err := ParseEncoding(e.String()); err != nil {
		return nil, err
	}
	enc := &encoder{f: f, e: e, x: make([]float32, f.Cols)}
	switch {
	case e.PerColumn:
		enc.colScale = make([]float32, f.Cols)
		for i := range f.Rows {
			if stop.Ended() {
				break
			}
			f.Row(enc.x, i)
			for j, v := range enc.x {
				enc.colScale[j] = max(enc.colScale[j], abs32(v)) // NaN stays, and is refused below
			}
		}
		for j, m := range enc.colScale {
			enc.colScale[j] = m / 127
		}
	case e.DType == Int8:
		enc.rowScale = make([]float32, f.Rows)
	}
	return enc, nil
}

func abs32(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// row converts enc.x, which is row i, to enc.raw.
func (enc *encoder) row(i int) error {
	enc.raw = enc.raw[:0]
	for j, v := range enc.x {
		if !(abs32(v) <= math.MaxFloat32) {
			return dataerr.Bad("node features: row %d, column %d is %v; values must be finite", i, j, v)
		}
	}
	switch enc.e.DType {
	case Float32:
		enc.raw = append(enc.raw, arrays.Bytes(enc.x)...)
	case Float16, BFloat16:
		to := Float32ToFloat16
		if enc.e.DType == BFloat16 {
			to = float32ToBFloat16
		}
		for j, v := range enc.x {
			h := to(v)
			if h&0x7fff == to(float32(math.Inf(1))) {
				return dataerr.Bad("node features: row %d, column %d is %v, which %v cannot hold; choose float32, bfloat16 or int8", i, j, v, enc.e.DType)
			}
			enc.raw = binary.LittleEndian.AppendUint16(enc.raw, h)
		}
	case Int8:
		if enc.e.PerColumn {
			for j, v := range enc.x {
				enc.raw = append(enc.raw, byte(quantize(v, enc.colScale[j])))
			}
			break
		}
		most := float32(0)
		for _, v := range enc.x {
			most = max(most, abs32(v))
		}
		enc.rowScale[i] = most / 127
		for _, v := range enc.x {
			enc.raw = append(enc.raw, byte(quantize(v, enc.rowScale[i])))
		}
	}
	return nil
}

// quantize returns v/scale rounded to the nearest integer in [-127, 127], ties
// to even. A scale of 0 comes with values of about 0.
func quantize(v, scale float32) int8 {
	if scale == 0 {
		return 0
	}
	q := math.RoundToEven(float64(v) / float64(scale))
	return int8(max(-127, min(127, q)))
}

// float32ToBFloat16 rounds to the nearest bfloat16 value, ties to even. v is no
// NaN.
func float32ToBFloat16(v float32) uint16 {
	b := math.Float32bits(v)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
