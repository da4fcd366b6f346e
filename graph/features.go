package graph

import (
	"fmt"
	"math"
	"unsafe"
)

// DType is the type of stored values.
type DType uint8

// The types of features. The numbers are written to disk.
const (
	Float32 DType = iota + 1
	Float16
	BFloat16
	Int8
	Uint8
)

// The types of labels, ids and times, beside Uint8. Features have none of them.
const (
	Int32 DType = iota + 16
	Uint32
	Int64
)

var dtypeNames = map[DType]string{
	Float32: "float32", Float16: "float16", BFloat16: "bfloat16", Int8: "int8", Uint8: "uint8",
	Int32: "int32", Uint32: "uint32", Int64: "int64",
}

// String returns the type's name as flags and metadata spell it.
func (t DType) String() string {
	if s, ok := dtypeNames[t]; ok {
		return s
	}
	return fmt.Sprintf("dtype(%d)", uint8(t))
}

// DTypeNamed returns the type that String calls name, and whether there is one.
func DTypeNamed(name string) (DType, bool) {
	for t, s := range dtypeNames {
		if s == name {
			return t, true
		}
	}
	return 0, false
}

// OfFeatures reports whether features may have the type.
func (t DType) OfFeatures() bool { return t >= Float32 && t <= Uint8 }

// Size returns the bytes of one value.
func (t DType) Size() int {
	switch t {
	case Int64:
		return 8
	case Float32, Int32, Uint32:
		return 4
	case Float16, BFloat16:
		return 2
	}
	return 1
}

// Features is a table of Rows×Cols values, row-major. Data may lie in mapped
// memory: it is read-only, and lives as long as the store.Store it came from.
type Features struct {
	Rows, Cols int
	DType      DType
	Data       []byte    // little-endian, row i at [i*Stride, i*Stride+Cols*DType.Size())
	Stride     int       // bytes from one row to the next
	RowScale   []float32 // Int8: value = stored * RowScale[row]; nil: 1
	ColScale   []float32 // Int8: value = stored * ColScale[col]; nil: 1
}

// NewFeatures wraps a dense row-major float32 table without copying it.
// len(x) must be rows*cols.
func NewFeatures(rows, cols int, x []float32) *Features {
	if len(x) != rows*cols {
		panic("graph: NewFeatures: length is not rows*cols")
	}
	f := &Features{Rows: rows, Cols: cols, DType: Float32, Stride: cols * 4}
	if len(x) > 0 {
		f.Data = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*4)
	}
	return f
}

// Float32s returns the table as float32 values with their row stride in values,
// without copying, and whether it could (the type is Float32).
func (f *Features) Float32s() (x []float32, stride int, ok bool) {
	if f.DType != Float32 || f.Stride%4 != 0 {
		return nil, 0, false
	}
	if len(f.Data) == 0 {
		return nil, f.Stride / 4, true
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(f.Data))), len(f.Data)/4), f.Stride / 4, true
}

// Row writes row i, converted to float32, to dst[:f.Cols].
func (f *Features) Row(dst []float32, i int) {
	raw := f.Data[i*f.Stride : i*f.Stride+f.Cols*f.DType.Size()]
	dst = dst[:f.Cols]
	switch f.DType {
	case Float32:
		copy(dst, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(raw))), f.Cols))
	case Float16:
		for j := range dst {
			dst[j] = Float16ToFloat32(uint16(raw[2*j]) | uint16(raw[2*j+1])<<8)
		}
	case BFloat16:
		for j := range dst {
			dst[j] = math.Float32frombits((uint32(raw[2*j]) | uint32(raw[2*j+1])<<8) << 16)
		}
	case Uint8:
		for j := range dst {
			dst[j] = float32(raw[j])
		}
	case Int8:
		s := float32(1)
		if f.RowScale != nil {
			s = f.RowScale[i]
		}
		for j := range dst {
			v := float32(int8(raw[j])) * s
			if f.ColScale != nil {
				v *= f.ColScale[j]
			}
			dst[j] = v
		}
	default:
		panic("graph: Features.Row: unknown dtype")
	}
}

// Float16ToFloat32 converts an IEEE 754 half-precision value, exactly.
func Float16ToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	v := float32(frac) * 0x1p-24
	return math.Float32frombits(math.Float32bits(v) | sign)
}

// Float32ToFloat16 rounds to the nearest half-precision value, ties to even.
func Float32ToFloat16(v float32) uint16 {
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
