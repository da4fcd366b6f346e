package importer

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// npyHeader is what a NumPy file says about itself.
type npyHeader struct {
	kind    byte // 'b' bool, 'i', 'u', 'f'
	size    int  // bytes of a value
	big     bool // big-endian
	fortran bool // the first index varies fastest
	shape   []int64
	offset  int64 // where the values begin
}

const maxNPYHeader = 1 << 16

// decodeNPYHeader reads the header of versions 1 to 3 at the start of b, of
// which it needs at most maxNPYHeader+12 bytes.
func decodeNPYHeader(b []byte) (h npyHeader, err error) {
	if len(b) < 10 || string(b[:6]) != "\x93NUMPY" {
		return h, fmt.Errorf("offset 0: this is not a NumPy file (.npy)")
	}
	start, n := 10, int(binary.LittleEndian.Uint16(b[8:]))
	switch b[6] {
	case 1:
	case 2, 3:
		if len(b) < 12 {
			return h, fmt.Errorf("the file ends inside its header")
		}
		start = 12
		if v := binary.LittleEndian.Uint32(b[8:]); v > maxNPYHeader {
			return h, fmt.Errorf("offset 8: a header of %d bytes; at most %d are read", v, maxNPYHeader)
		} else {
			n = int(v)
		}
	default:
		return h, fmt.Errorf("offset 6: NumPy format version %d is not known; save it with numpy.save", b[6])
	}
	if len(b) < start+n {
		return h, fmt.Errorf("the file ends inside its header of %d bytes", n)
	}
	h.offset = int64(start + n)
	if err := h.parse(string(b[start : start+n])); err != nil {
		return h, fmt.Errorf("offset %d: the header cannot be used: %w", start, err)
	}
	return h, nil
}

// parse reads the dictionary {'descr': …, 'fortran_order': …, 'shape': …}.
func (h *npyHeader) parse(s string) error {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "{") || !strings.HasSuffix(s, "}") {
		return fmt.Errorf("it is not a dictionary")
	}
	s = strings.TrimSpace(s[1 : len(s)-1])
	seen := map[string]bool{}
	for s != "" {
		key, rest, err := pyString(s)
		if err != nil {
			return err
		}
		rest = strings.TrimSpace(rest)
		if !strings.HasPrefix(rest, ":") || seen[key] {
			return fmt.Errorf("key %q is repeated or has no value", clip(key))
		}
		seen[key] = true
		rest = strings.TrimSpace(rest[1:])
		switch key {
		case "descr":
			rest, err = h.parseType(rest)
		case "fortran_order":
			switch {
			case strings.HasPrefix(rest, "True"):
				h.fortran, rest = true, rest[4:]
			case strings.HasPrefix(rest, "False"):
				rest = rest[5:]
			default:
				err = fmt.Errorf("fortran_order is neither True nor False")
			}
		case "shape":
			rest, err = h.parseShape(rest)
		default:
			err = fmt.Errorf("unknown key %q", clip(key))
		}
		if err != nil {
			return err
		}
		rest = strings.TrimSpace(rest)
		if rest != "" && !strings.HasPrefix(rest, ",") {
			return fmt.Errorf("a comma is missing after %s", key)
		}
		s = strings.TrimSpace(strings.TrimPrefix(rest, ","))
	}
	if len(seen) != 3 {
		return fmt.Errorf("descr, fortran_order and shape must all be there")
	}
	return nil
}

func pyString(s string) (value, rest string, err error) {
	if s == "" || s[0] != '\'' && s[0] != '"' {
		return "", "", fmt.Errorf("a quoted string is missing")
	}
	end := strings.IndexByte(s[1:], s[0])
	if end < 0 {
		return "", "", fmt.Errorf("a string does not end")
	}
	return s[1 : 1+end], s[2+end:], nil
}

func (h *npyHeader) parseType(s string) (rest string, err error) {
	if strings.HasPrefix(s, "[") {
		return "", fmt.Errorf("its values are structures; save one column per file")
	}
	d, rest, err := pyString(s)
	if err != nil {
		return "", err
	}
	if len(d) < 3 || !strings.ContainsRune("<>|=", rune(d[0])) {
		return "", fmt.Errorf("type %q is not supported; use integers, floats or booleans", clip(d))
	}
	size, err := strconv.Atoi(d[2:])
	ok := false
	switch d[1] {
	case 'b':
		ok = size == 1
	case 'i', 'u':
		ok = size == 1 || size == 2 || size == 4 || size == 8
	case 'f':
		ok = size == 2 || size == 4 || size == 8
	}
	if err != nil || !ok {
		return "", fmt.Errorf("type %q is not supported; use integers, floats or booleans", clip(d))
	}
	h.big, h.kind, h.size = d[0] == '>', d[1], size
	return rest, nil
}

func (h *npyHeader) parseShape(s string) (rest string, err error) {
	if !strings.HasPrefix(s, "(") {
		return "", fmt.Errorf("shape is not a tuple")
	}
	end := strings.IndexByte(s, ')')
	if end < 0 {
		return "", fmt.Errorf("shape does not end")
	}
	h.shape = []int64{}
	total := int64(1)
	for f := range strings.SplitSeq(s[1:end], ",") {
		if f = strings.TrimSuffix(strings.TrimSpace(f), "L"); f == "" {
			continue
		}
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil || v < 0 {
			return "", fmt.Errorf("%q is not a dimension", clip(f))
		}
		if v > 0 && total > (1<<56)/v {
			return "", fmt.Errorf("shape %q is too large", clip(s[:end+1]))
		}
		total *= v
		if h.shape = append(h.shape, v); len(h.shape) > 8 {
			return "", fmt.Errorf("more than 8 dimensions")
		}
	}
	return s[end+1:], nil
}

// count returns the number of values.
func (h *npyHeader) count() int64 {
	n := int64(1)
	for _, d := range h.shape {
		n *= d
	}
	return n
}

// String describes the array as NumPy would.
func (h *npyHeader) String() string {
	dims := make([]string, len(h.shape))
	for i, d := range h.shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	kinds := map[byte]string{'b': "bool", 'i': "int", 'u': "uint", 'f': "float"}
	name := kinds[h.kind]
	if h.kind != 'b' {
		name += strconv.Itoa(8 * h.size)
	}
	return fmt.Sprintf("%s of shape (%s)", name, strings.Join(dims, ", "))
}

// npyFile is an open NumPy file whose size fits its header.
type npyFile struct {
	npyHeader
	path string
	f    *os.File
}

// newNPY reads the header of f, which errors call path, and takes f over.
func newNPY(f *os.File, path string) (*npyFile, error) {
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("graph: %w", err)
	}
	b := make([]byte, min(st.Size(), maxNPYHeader+12))
	if _, err := io.ReadFull(f, b); err != nil {
		f.Close()
		return nil, fmt.Errorf("graph: read %s: %w", path, err)
	}
	h, err := decodeNPYHeader(b)
	if err != nil {
		f.Close()
		return nil, dataerr.Bad("%s: %w", path, err)
	}
	if got, want := st.Size()-h.offset, h.count()*int64(h.size); got != want {
		f.Close()
		return nil, dataerr.Bad("%s: there are %d bytes of values after offset %d, but %s needs %d; the file is truncated or damaged, fetch it again",
			path, got, h.offset, &h, want)
	}
	return &npyFile{npyHeader: h, path: path, f: f}, nil
}

func (a *npyFile) close() { a.f.Close() }

// errorf reports what is wrong with value i (in file order).
func (a *npyFile) errorf(i int64, format string, args ...any) error {
	return dataerr.Bad("%s offset %d (value %d): %w", a.path, a.offset+i*int64(a.size), i, fmt.Errorf(format, args...))
}

// npyReader reads consecutive values.
type npyReader struct {
	a   *npyFile
	r   *bufio.Reader
	i   int64 // index of the next value
	raw []byte
}

// values returns a reader of the values [from, to) in file order.
func (a *npyFile) values(from, to int64) *npyReader {
	s := io.NewSectionReader(a.f, a.offset+from*int64(a.size), (to-from)*int64(a.size))
	return &npyReader{a: a, r: bufio.NewReaderSize(s, int(min(s.Size(), 1<<18))), i: from}
}

func (r *npyReader) read(n int) ([]byte, error) {
	n *= r.a.size
	if cap(r.raw) < n {
		r.raw = make([]byte, n)
	}
	b := r.raw[:n]
	if _, err := io.ReadFull(r.r, b); err != nil {
		return nil, dataerr.Bad("%s: %w while reading value %d; the file is truncated or cannot be read", r.a.path, err, r.i)
	}
	return b, nil
}

// bits returns value k of b as an unsigned integer of the value's size.
func (a *npyFile) bits(b []byte, k int) uint64 {
	b = b[k*a.size : (k+1)*a.size]
	switch a.size {
	case 1:
		return uint64(b[0])
	case 2:
		if a.big {
			return uint64(binary.BigEndian.Uint16(b))
		}
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		if a.big {
			return uint64(binary.BigEndian.Uint32(b))
		}
		return uint64(binary.LittleEndian.Uint32(b))
	}
	if a.big {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}

// ints fills dst with the next values. Floats are an error; so are unsigned
// values above the int64 range.
func (r *npyReader) ints(dst []int64) error {
	a := r.a
	if a.kind == 'f' {
		return dataerr.Bad("%s holds %s, but integers are needed", a.path, &a.npyHeader)
	}
	b, err := r.read(len(dst))
	if err != nil {
		return err
	}
	shift := 64 - 8*a.size
	for k := range dst {
		u := a.bits(b, k)
		if a.kind == 'i' {
			dst[k] = int64(u<<shift) >> shift
			continue
		}
		if u > math.MaxInt64 {
			return a.errorf(r.i+int64(k), "%d is too large", u)
		}
		dst[k] = int64(u)
	}
	r.i += int64(len(dst))
	return nil
}

// floats fills dst with the next values, rounded to float32. Values that are
// not finite there are an error unless nan allows NaN.
func (r *npyReader) floats(dst []float32, nan bool) error {
	a := r.a
	b, err := r.read(len(dst))
	if err != nil {
		return err
	}
	shift := 64 - 8*a.size
	for k := range dst {
		u := a.bits(b, k)
		var v float32
		switch {
		case a.kind == 'i':
			v = float32(int64(u<<shift) >> shift)
		case a.kind != 'f':
			v = float32(u)
		case a.size == 2:
			v = graph.Float16ToFloat32(uint16(u))
		case a.size == 4:
			v = math.Float32frombits(uint32(u))
		default:
			v = float32(math.Float64frombits(u))
		}
		if v-v != 0 && !(nan && v != v) {
			was := float64(v)
			if a.kind == 'f' && a.size == 8 {
				was = math.Float64frombits(u) // beyond float32's range
			}
			return a.errorf(r.i+int64(k), "%v is not a finite float32; replace it", was)
		}
		dst[k] = v
	}
	r.i += int64(len(dst))
	return nil
}
