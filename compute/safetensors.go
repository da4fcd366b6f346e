package compute

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
)

// RawTensor is one tensor of a safetensors file.
type RawTensor struct {
	Name  string
	DType string // as the format spells it: F64, F32, F16, BF16, I64, ..., BOOL
	Shape []int
	Data  []byte // little-endian, row-major
}

// safetensorsSizes are the bytes per element of the format's types.
var safetensorsSizes = map[string]int{
	"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4,
	"F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}

// maxHeader is the format's own limit on the header's length.
const maxHeader = 100_000_000

// ErrSafetensors is wrapped by every error about malformed safetensors data.
var ErrSafetensors = errors.New("malformed safetensors data")

// Float32Tensor returns a tensor of type F32 with a copy of x. The product of
// shape must be len(x).
func Float32Tensor(name string, shape []int, x []float32) RawTensor {
	data := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	return RawTensor{Name: name, DType: "F32", Shape: slices.Clone(shape), Data: data}
}

// NumElements returns the product of the shape.
func (t *RawTensor) NumElements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Float32s returns the values as float32, converted from F64, F32, F16 or BF16;
// another type is an error.
func (t *RawTensor) Float32s() ([]float32, error) {
	x := make([]float32, t.NumElements())
	if err := t.float32s(x); err != nil {
		return nil, err
	}
	return x, nil
}

// float32s is Float32s into x, which has as many values.
func (t *RawTensor) float32s(x []float32) error {
	switch t.DType {
	case "F64":
		for i := range x {
			x[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:])))
		}
	case "F32":
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
	case "F16":
		for i := range x {
			x[i] = graph.Float16ToFloat32(binary.LittleEndian.Uint16(t.Data[2*i:]))
		}
	case "BF16":
		for i := range x {
			x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
		}
	default:
		return fmt.Errorf("compute: tensor %q is of type %s; only F64, F32, F16 and BF16 convert to float32", t.Name, t.DType)
	}
	return nil
}

type safetensorsEntry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// WriteSafetensors writes tensors and metadata (which may be nil) in the
// safetensors format: the length of a JSON header, the header, the data. Wider
// types come first and names are sorted, so that data is aligned and the same
// input gives the same bytes.
func WriteSafetensors(w io.Writer, tensors []RawTensor, metadata map[string]string) error {
	order := slices.Clone(tensors)
	slices.SortStableFunc(order, func(a, b RawTensor) int {
		if d := safetensorsSizes[b.DType] - safetensorsSizes[a.DType]; d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	header := make(map[string]any, len(order)+1)
	if len(metadata) > 0 {
		header["__metadata__"] = metadata
	}
	var end int64
	for _, t := range order {
		size, known := safetensorsSizes[t.DType]
		switch {
		case !known:
			return fmt.Errorf("compute: tensor %q: type %q is not one of safetensors'", t.Name, t.DType)
		case t.NumElements()*size != len(t.Data):
			return fmt.Errorf("compute: tensor %q: shape %v of %s is %d bytes, not %d", t.Name, t.Shape, t.DType, t.NumElements()*size, len(t.Data))
		case header[t.Name] != nil || t.Name == "__metadata__":
			return fmt.Errorf("compute: tensor name %q is taken", t.Name)
		}
		shape := t.Shape
		if shape == nil {
			shape = []int{}
		}
		header[t.Name] = safetensorsEntry{t.DType, shape, [2]int64{end, end + int64(len(t.Data))}}
		end += int64(len(t.Data))
	}
	text, err := json.Marshal(header) // sorts the keys
	if err != nil {
		return fmt.Errorf("compute: safetensors header: %w", err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeader {
		return fmt.Errorf("compute: safetensors header of %d bytes is over the format's limit of %d", len(text), maxHeader)
	}
	out := bufio.NewWriterSize(w, 1<<16)
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(text)))
	out.Write(length[:]) // a bufio.Writer keeps its first error for Flush
	out.Write(text)
	for _, t := range order {
		out.Write(t.Data)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("compute: writing safetensors: %w", err)
	}
	return nil
}

// ReadSafetensors reads what WriteSafetensors, or any other writer of the
// format, wrote: the tensors in order of their data, and the metadata. It takes
// no more memory than the input is long, whatever the header claims. Errors
// about the content wrap ErrSafetensors.
func ReadSafetensors(r io.Reader) ([]RawTensor, map[string]string, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("compute: %w: %s", ErrSafetensors, fmt.Sprintf(format, args...))
	}
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, nil, bad("shorter than the 8 bytes of the header's length (%v)", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n < 2 || n > maxHeader {
		return nil, nil, bad("header of %d bytes; it must have 2 to %d", n, maxHeader)
	}
	text, err := readExactly(r, int64(n))
	if err != nil {
		return nil, nil, bad("header ends early: %v", err)
	}
	entries, metadata, err := parseHeader(text)
	if err != nil {
		return nil, nil, bad("%v", err)
	}
	var end int64
	for i := range entries {
		if entries[i].begin != end {
			return nil, nil, bad("tensor %q begins at byte %d, but the data before it ends at %d; offsets must neither overlap nor leave gaps", entries[i].Name, entries[i].begin, end)
		}
		end = entries[i].end
	}
	data, err := readExactly(r, end)
	if err != nil {
		return nil, nil, bad("data ends early: %v", err)
	}
	if k, err := io.ReadFull(r, length[:1]); k != 0 || (err != io.EOF && err != io.ErrUnexpectedEOF) {
		if err != nil {
			return nil, nil, fmt.Errorf("compute: reading safetensors: %w", err)
		}
		return nil, nil, bad("there is more data after the %d bytes that the header describes", end)
	}
	tensors := make([]RawTensor, len(entries))
	for i, e := range entries {
		tensors[i] = e.RawTensor
		tensors[i].Data = data[e.begin:e.end:e.end]
	}
	return tensors, metadata, nil
}

// readExactly reads n bytes, growing with what arrives and not with what n says.
func readExactly(r io.Reader, n int64) ([]byte, error) {
	if m, ok := r.(interface{ Len() int }); ok && n <= int64(m.Len()) { // it lies in memory
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		return b, err
	}
	var b bytes.Buffer
	got, err := io.CopyN(&b, r, n)
	if err != nil {
		return nil, fmt.Errorf("%d of %d bytes: %w", got, n, err)
	}
	return b.Bytes(), nil
}

type placed struct {
	RawTensor
	begin, end int64
}

// parseHeader checks every entry by itself and returns them in order of their
// data. Keys must be unique, which encoding/json alone would not notice.
func parseHeader(text []byte) ([]placed, map[string]string, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, fmt.Errorf("header is not a JSON object")
	}
	var entries []placed
	var metadata map[string]string
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, nil, fmt.Errorf("header: %v", err)
		}
		name := t.(string) // the decoder lets only strings be keys
		if seen[name] {
			return nil, nil, fmt.Errorf("header: key %q occurs twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			if err := dec.Decode(&metadata); err != nil {
				return nil, nil, fmt.Errorf("header: __metadata__: %v", err)
			}
			continue
		}
		var e safetensorsEntry
		if err := dec.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("header: tensor %q: %v", name, err)
		}
		size, known := safetensorsSizes[e.DType]
		if !known {
			return nil, nil, fmt.Errorf("header: tensor %q has the unknown type %q", name, e.DType)
		}
		bytes := int64(size)
		for _, d := range e.Shape {
			if d < 0 || (d > 0 && bytes > math.MaxInt64/int64(d)) {
				return nil, nil, fmt.Errorf("header: tensor %q has the impossible shape %v", name, e.Shape)
			}
			bytes *= int64(d)
		}
		if e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0] || e.Offsets[1]-e.Offsets[0] != bytes {
			return nil, nil, fmt.Errorf("header: tensor %q of shape %v and type %s needs %d bytes, but its offsets are %v", name, e.Shape, e.DType, bytes, e.Offsets)
		}
		entries = append(entries, placed{RawTensor{Name: name, DType: e.DType, Shape: e.Shape}, e.Offsets[0], e.Offsets[1]})
	}
	if _, err := dec.Token(); err != nil {
		return nil, nil, fmt.Errorf("header: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, nil, fmt.Errorf("header: more text after the JSON object")
	}
	slices.SortStableFunc(entries, func(a, b placed) int {
		if a.begin != b.begin {
			return int(min(max(a.begin-b.begin, -1), 1))
		}
		return int(min(max(a.end-b.end, -1), 1))
	})
	return entries, metadata, nil
}

// OpenSafetensors reads the file at path. Errors name the file.
func OpenSafetensors(path string) ([]RawTensor, map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("compute: %w", err)
	}
	defer f.Close()
	tensors, metadata, err := ReadSafetensors(bufio.NewReaderSize(f, 1<<16))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return tensors, metadata, nil
}
