package compute

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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

	from string // its name in the file, where that is another
}

// safetensorsSizes are the bytes per element of the format's types.
var safetensorsSizes = map[string]int{
	"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4,
	"F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}

// Bounds of what a header may hold, which keep its reader's memory within a few
// times its length. The format allows 100 MB; 65,536 tensors take some 8.
const (
	maxHeader   = 16 << 20
	maxTensors  = 1 << 16
	maxMetadata = 1 << 10
	maxDims     = 16
)

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
	Shape   shape    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// shape refuses more than maxDims dimensions before it makes room for them.
type shape []int

// UnmarshalJSON implements json.Unmarshaler.
func (s *shape) UnmarshalJSON(b []byte) error {
	if n := bytes.Count(b, []byte(",")) + 1; n > maxDims {
		return fmt.Errorf("a shape of %d dimensions; at most %d are read", n, maxDims)
	}
	return json.Unmarshal(b, (*[]int)(s))
}

// WriteSafetensors writes tensors and metadata (which may be nil) in the
// safetensors format: the length of a JSON header, the header, the data. Wider
// types come first and names are sorted, so that data is aligned and the same
// input gives the same bytes. It adds checksums to the metadata: see ChecksumKey.
func WriteSafetensors(w io.Writer, tensors []RawTensor, metadata map[string]string) error {
	order := slices.Clone(tensors)
	slices.SortStableFunc(order, func(a, b RawTensor) int {
		if d := safetensorsSizes[b.DType] - safetensorsSizes[a.DType]; d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	header := make(map[string]any, len(order)+1)
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
		dims := t.Shape
		if dims == nil {
			dims = []int{}
		}
		header[t.Name] = safetensorsEntry{t.DType, dims, [2]int64{end, end + int64(len(t.Data))}}
		end += int64(len(t.Data))
	}
	with := map[string]string{}
	maps.Copy(with, metadata)
	with[ChecksumKey] = checksums(order, metadata)
	header["__metadata__"] = with
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
// format, wrote: the tensors in order of their data, and the metadata. Where the
// metadata has checksums they are compared. It takes no more memory than the
// input is long and a few times the header, whatever that claims. Errors about
// the content wrap ErrSafetensors and say where in the file.
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
	header := &io.LimitedReader{R: r, N: int64(n)}
	entries, metadata, err := parseHeader(header)
	if err != nil {
		if _, short := io.CopyN(io.Discard, header, header.N); short != nil {
			return nil, nil, bad("header ends early, at byte %d: it should have %d bytes", 8+int64(n)-header.N, n)
		}
		return nil, nil, bad("%v", err)
	}
	var end int64
	for i := range entries {
		if entries[i].begin != end {
			return nil, nil, bad("tensor %q begins at byte %d of the data, but what is before it ends at %d; offsets must neither overlap nor leave gaps", entries[i].Name, entries[i].begin, end)
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
		return nil, nil, bad("there is more data after the %d bytes that the header describes, at byte %d of the file", end, 8+int64(n)+end)
	}
	tensors := make([]RawTensor, len(entries))
	for i, e := range entries {
		tensors[i] = e.RawTensor
		tensors[i].Data = data[e.begin:e.end:e.end]
	}
	if err := verify(tensors, metadata, 8+int64(n)); err != nil {
		return nil, nil, bad("%v", err)
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

// parseHeader reads r to its end. It checks every entry by itself and returns
// them in order of their data. Keys must be unique, which encoding/json alone
// would not notice.
func parseHeader(r io.Reader) ([]placed, map[string]string, error) {
	dec := json.NewDecoder(r)
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
			if metadata, err = parseMetadata(dec); err != nil {
				return nil, nil, fmt.Errorf("header: __metadata__: %v", err)
			}
			continue
		}
		if len(entries) == maxTensors {
			return nil, nil, fmt.Errorf("header: more than %d tensors", maxTensors)
		}
		var e safetensorsEntry
		if err := dec.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("header: tensor %q: %v", name, err)
		}
		size, known := safetensorsSizes[e.DType]
		if !known {
			return nil, nil, fmt.Errorf("header: tensor %q has the unknown type %q", name, e.DType)
		}
		if e.Shape == nil {
			return nil, nil, fmt.Errorf("header: tensor %q has no shape", name)
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

// parseMetadata reads an object of strings.
func parseMetadata(dec *json.Decoder) (map[string]string, error) {
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, nil
	}
	if t != json.Delim('{') {
		return nil, errors.New("it is no object of strings")
	}
	metadata := map[string]string{}
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return nil, err
		}
		v, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key := k.(string)
		text, ok := v.(string)
		_, twice := metadata[key]
		switch {
		case !ok:
			return nil, fmt.Errorf("%q is %v, and not a string", key, v)
		case twice:
			return nil, fmt.Errorf("key %q occurs twice", key)
		case len(metadata) == maxMetadata:
			return nil, fmt.Errorf("more than %d keys", maxMetadata)
		}
		metadata[key] = text
	}
	_, err = dec.Token()
	return metadata, err
}

// knownSize is a reader that has at most n bytes more.
type knownSize struct {
	io.Reader
	n int64
}

// Len is what readExactly trusts a length by.
func (s knownSize) Len() int { return int(min(s.n, math.MaxInt)) }

// untilDone is a reader that ends with ctx, between two pieces of at most a mebibyte.
type untilDone struct {
	io.Reader
	ctx context.Context
}

// Read implements io.Reader.
func (r untilDone) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p[:min(len(p), 1<<20)])
}

// OpenSafetensors reads the file at path, which must be a regular one. Errors
// name it. When ctx ends first the error wraps its cause.
func OpenSafetensors(ctx context.Context, path string) ([]RawTensor, map[string]string, error) {
	info, err := os.Stat(path) // to open a pipe might take for ever
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%s)", path, info.Mode().Type())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("compute: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("compute: %w", err)
	}
	defer f.Close()
	tensors, metadata, err := ReadSafetensors(knownSize{bufio.NewReaderSize(untilDone{f, ctx}, 1<<16), info.Size()})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return tensors, metadata, nil
}
