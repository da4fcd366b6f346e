package graph

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"os"
)

// featureWriter writes a table row by row in its canonical type: uint8 when
// every value is an integer in [0, 255], otherwise the type of the source
// (float16, int8) or float32. So the same values make the same file, whatever
// format they came from. It starts with uint8, and writes what it has again
// when the first other value comes.
type featureWriter struct {
	w         *storeWriter
	path      string
	name      string
	cols      int
	wide      DType // the type when uint8 does not do
	normalize bool  // rows are normalised; the type is float32
	a         *arrayWriter
	raw       []byte
}

func (w *storeWriter) features(path, name string, cols int, wide DType, normalize bool) (*featureWriter, error) {
	narrow := Uint8
	if normalize {
		narrow, wide = Float32, Float32
	}
	a, err := w.arrayAt(path, name, element(narrow), int64(cols))
	if err != nil {
		return nil, err
	}
	return &featureWriter{w: w, path: path, name: name, cols: cols, wide: wide, normalize: normalize, a: a}, nil
}

func (fw *featureWriter) dtype() DType { return DType(fw.a.elem) }

// row adds a row. It may change x, whose values must be finite, and for the
// types float16 and int8 representable.
func (fw *featureWriter) row(x []float32) error {
	if fw.normalize {
		normalizeRow(x)
	}
	if fw.dtype() == Uint8 {
		raw, ok := appendUint8(fw.raw[:0], x)
		fw.raw = raw
		if ok {
			_, err := fw.a.Write(raw)
			return err
		}
		if err := fw.widen(); err != nil {
			return err
		}
	}
	fw.raw = appendValues(fw.raw[:0], x, fw.wide)
	_, err := fw.a.Write(fw.raw)
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

func appendValues(b []byte, x []float32, t DType) []byte {
	switch t {
	case Float32:
		return append(b, bytesOf(x)...)
	case Float16:
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, float32ToFloat16(v))
		}
	case BFloat16:
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
func (fw *featureWriter) widen() error {
	old := fw.a
	defer old.close()
	if err := old.flush(); err != nil {
		return err
	}
	if err := os.Rename(fw.path, fw.path+".narrow"); err != nil {
		return writeError(fw.w.shown(fw.path), err)
	}
	a, err := fw.w.arrayAt(fw.path, fw.name, element(fw.wide), int64(fw.cols))
	if err != nil {
		return err
	}
	fw.a = a
	if _, err := old.f.Seek(headerSize, io.SeekStart); err != nil {
		return writeError(fw.w.shown(fw.path), err)
	}
	r := bufio.NewReaderSize(old.f, 1<<20)
	row, x := make([]byte, fw.cols), make([]float32, fw.cols)
	var raw []byte
	for n := old.n; n > 0; n -= int64(fw.cols) {
		if _, err := io.ReadFull(r, row); err != nil {
			return writeError(fw.w.shown(fw.path), err)
		}
		for j, v := range row {
			x[j] = float32(v)
		}
		raw = appendValues(raw[:0], x, fw.wide)
		if _, err := a.Write(raw); err != nil {
			return err
		}
	}
	if err := os.Remove(fw.path + ".narrow"); err != nil {
		return writeError(fw.w.shown(fw.path), err)
	}
	return nil
}

func (fw *featureWriter) finish() error { return fw.a.finish() }
func (fw *featureWriter) close()        { fw.a.close() }

// float32ToFloat16 rounds to the nearest half-precision value, ties to even.
func float32ToFloat16(v float32) uint16 {
	b := math.Float32bits(v)
	sign := uint16(b >> 16 & 0x8000)
	exp := int(b>>23&0xff) - 127
	frac := b & 0x7fffff
	switch {
	case exp == 128 && frac != 0:
		return sign | 0x7e00
	case exp > 15:
		return sign | 0x7c00
	case exp < -25:
		return sign
	case exp < -14: // subnormal: in units of 2^-24
		frac |= 0x800000
		shift := uint(-exp - 1)
		return sign | uint16(roundShift(frac, shift))
	}
	return sign + uint16(exp+15)<<10 + uint16(roundShift(frac, 13)) // a carry raises the exponent, as it should
}

// roundShift returns v / 2^s rounded to the nearest integer, ties to even.
func roundShift(v uint32, s uint) uint32 {
	q, rest, half := v>>s, v&(1<<s-1), uint32(1)<<(s-1)
	if rest > half || rest == half && q&1 == 1 {
		q++
	}
	return q
}
