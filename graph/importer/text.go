package importer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

const maxLine = 16 * arrays.MaxColumns // bytes; a row of features can be long

// stream is a file's content, decompressed as its name says (.gz, .zst), and of a text that begins
// with the mark of UTF-8 or UTF-16 the UTF-8 without it.
type stream struct {
	io.Reader
	path  string
	in    *os.File
	stop  func()
	ended bool // to its end, and not cut off
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.ended = s.ended || err == io.EOF
	return n, err
}

func (im *importer) openStream(path string) (*stream, error) {
	f, err := im.src.open(path)
	if err != nil {
		return nil, err
	}
	s := &stream{path: path, in: f, stop: func() {}}
	var r io.Reader = f
	switch {
	case strings.HasSuffix(path, ".zst") && im.src.sizes[path] == 0: // no frame at all is none that is damaged
		f.Close()
		return nil, s.readError(0, io.ErrUnexpectedEOF)
	case strings.HasSuffix(path, ".gz"):
		z, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<16))
		if err != nil {
			f.Close()
			return nil, s.readError(0, err)
		}
		r = &unpacking{im, z, path}
	case strings.HasSuffix(path, ".zst"):
		// The window is allocated before anything is unpacked.
		window := uint64(min(64<<20, max(8<<20, defaultExpansion*im.src.sizes[path])))
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			f.Close()
			return nil, s.readError(0, err)
		}
		r, s.stop = &unpacking{im, z, path}, z.Close
	}
	mark := make([]byte, 3)
	n, err := io.ReadFull(r, mark)
	if err != nil && err != io.EOF && (err != io.ErrUnexpectedEOF || n == 0) {
		s.close()
		return nil, s.readError(0, err)
	}
	switch mark = mark[:n]; {
	case bytes.Equal(mark, []byte("\xef\xbb\xbf")):
		s.Reader = r
	case bytes.HasPrefix(mark, []byte("\xff\xfe")):
		s.Reader = &utf16Reader{r: bufio.NewReader(io.MultiReader(bytes.NewReader(mark[2:]), r)), order: binary.LittleEndian}
	case bytes.HasPrefix(mark, []byte("\xfe\xff")):
		s.Reader = &utf16Reader{r: bufio.NewReader(io.MultiReader(bytes.NewReader(mark[2:]), r)), order: binary.BigEndian}
	default:
		s.Reader = io.MultiReader(bytes.NewReader(mark), r)
	}
	return s, nil
}

func (s *stream) close() {
	s.stop()
	s.in.Close()
}

// readError tells an unreadable file from a damaged one.
func (s *stream) readError(line int64, err error) error {
	var pe *fs.PathError
	switch {
	case errors.Is(err, graph.ErrFormat):
		return err
	case errors.As(err, &pe):
		return fmt.Errorf("graph: %w", err)
	}
	return dataerr.Bad("%s, after line %d: %w; the file is truncated or damaged, fetch it again", s.path, line, err)
}

// utf16Reader turns UTF-16 into UTF-8; what is no text becomes U+FFFD.
type utf16Reader struct {
	r     *bufio.Reader
	order binary.ByteOrder
	out   []byte // not read yet
	high  rune   // the first half of a pair, or 0
}

// Read implements io.Reader.
func (u *utf16Reader) Read(p []byte) (int, error) {
	for len(u.out) == 0 {
		var unit [2]byte
		if _, err := io.ReadFull(u.r, unit[:]); err != nil {
			if err == io.ErrUnexpectedEOF {
				err = errors.New("an odd number of bytes in UTF-16")
			}
			return 0, err
		}
		u.add(rune(u.order.Uint16(unit[:])))
		for len(u.out) < 4096 && u.r.Buffered() >= 2 {
			if _, err := io.ReadFull(u.r, unit[:]); err != nil {
				return 0, err
			}
			u.add(rune(u.order.Uint16(unit[:])))
		}
	}
	n := copy(p, u.out)
	u.out = u.out[:copy(u.out, u.out[n:])]
	return n, nil
}

func (u *utf16Reader) add(c rune) {
	if u.high != 0 {
		c, u.high = utf16.DecodeRune(u.high, c), 0
	} else if utf16.IsSurrogate(c) && c < 0xdc00 {
		u.high = c
		return
	}
	u.out = utf8.AppendRune(u.out, c)
}

// textReader reads a stream line by line.
type textReader struct {
	*stream
	line int64 // number of the line that next returned last, from 1
	r    *bufio.Reader
	long []byte
}

func (im *importer) openText(path string) (*textReader, error) {
	s, err := im.openStream(path)
	if err != nil {
		return nil, err
	}
	return &textReader{stream: s, r: bufio.NewReaderSize(s, 1<<16)}, nil
}

// errorf reports what is wrong with the current line.
func (t *textReader) errorf(format string, args ...any) error {
	return dataerr.Bad("%s line %d: %w", t.path, t.line, fmt.Errorf(format, args...))
}

// next returns the next line without its end, valid until the next call, or
// io.EOF.
func (t *textReader) next() ([]byte, error) {
	t.long = t.long[:0]
	for {
		part, err := t.r.ReadSlice('\n')
		if err == nil || err == io.EOF {
			if len(t.long) > 0 {
				t.long = append(t.long, part...)
				part = t.long
			}
			if err == io.EOF && len(part) == 0 {
				return nil, io.EOF
			}
			t.line++
			part = bytes.TrimSuffix(part, []byte("\n"))
			return bytes.TrimSuffix(part, []byte("\r")), nil
		}
		if err != bufio.ErrBufferFull {
			return nil, t.readError(t.line, err)
		}
		if len(t.long)+len(part) > maxLine {
			t.line++
			return nil, t.errorf("longer than %d bytes; is this a text file?", maxLine)
		}
		t.long = append(t.long, part...)
	}
}

// parseID reads a node id.
func parseID(b []byte) (uint32, error) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return 0, errors.New("a node id is missing")
	}
	v := uint64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			if i, err := strconv.ParseInt(string(b), 10, 64); err == nil && i < 0 {
				return 0, fmt.Errorf("node id %d is negative; ids start at 0", i)
			}
			if whole, ok := wholeNumber(string(b)); ok {
				return 0, fmt.Errorf("%q is not a node id; write it as %d (a column that pandas made floats: astype(\"Int64\"))", clip(b), whole)
			}
			return 0, fmt.Errorf("%q is not a node id", clip(b))
		}
		if v = v*10 + uint64(c-'0'); v >= uint64(graph.MaxNodes) {
			return 0, fmt.Errorf("node id %s is above the largest one supported, %d", clip(b), graph.MaxNodes-1)
		}
	}
	return uint32(v), nil
}

// parseFloat reads a finite value.
func parseFloat(b []byte) (float32, error) {
	if len(b) == 1 && b[0] >= '0' && b[0] <= '9' {
		return float32(b[0] - '0'), nil
	}
	b = bytes.TrimSpace(b)
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(b), len(b)), 32)
	if err != nil {
		if errors.Is(err, strconv.ErrRange) {
			return 0, fmt.Errorf("%q is beyond the range of float32", clip(b))
		}
		return 0, fmt.Errorf("%q is not a number", clip(b))
	}
	if v-v != 0 {
		return 0, fmt.Errorf("%q is not finite; replace it", clip(b))
	}
	return float32(v), nil
}

// clip shortens what an error message quotes, with %q.
func clip[T []byte | string](b T) string {
	if len(b) > 40 {
		return string(b[:40]) + "…"
	}
	return string(b)
}

// printable tells whether errors can show a name as it is.
func printable(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// separator guesses what separates the fields of a line: a tab, a comma, a
// semicolon, or else white space (0).
func separator(line []byte) byte {
	for _, c := range []byte("\t,;") {
		if bytes.IndexByte(line, c) >= 0 {
			return c
		}
	}
	return 0
}

// cut returns the first field of line and the rest; more tells whether a
// separator followed the field.
func cut(line []byte, sep byte) (field, rest []byte, more bool) {
	if sep != 0 {
		return bytes.Cut(line, []byte{sep})
	}
	line = bytes.TrimLeft(line, " ")
	i := bytes.IndexByte(line, ' ')
	if i < 0 {
		return line, nil, false
	}
	rest = bytes.TrimLeft(line[i:], " ")
	return line[:i], rest, len(rest) > 0
}
