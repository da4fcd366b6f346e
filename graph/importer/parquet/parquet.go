// Package parquet makes package importer read tables of Apache Parquet: a program imports it for
// that alone. Columns that hold one value a row are read, of every encoding and compression that
// parquet-go knows (PLAIN, dictionaries, RLE, deltas, split streams; Snappy, gzip, Zstandard, LZ4, Brotli); values
// become what pandas writes to a table of text.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/gnnactor/gnnactor/graph/importer"
)

func init() {
	importer.Register(".parquet", open)
	importer.Register(".pq", open)
}

// file implements importer.Decoder.
type file struct {
	in      io.ReaderAt
	size    int64
	claim   func(int64, string) error
	f       *parquet.File
	columns []*parquet.Column // of the first level
	leaf    []int             // the place of each among all leaves; -1: it holds several values a row
	floats  []bool            // which of them hold floating-point numbers
}

// magic begins and ends a file.
const magic = "PAR1"

func open(in io.ReaderAt, size int64, claim func(int64, string) error) (d importer.Decoder, err error) {
	defer guard(&err)
	f := &file{in: in, size: size, claim: claim}
	if err := f.checkFooter(); err != nil {
		return nil, err
	}
	if f.f, err = parquet.OpenFile(in, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(1<<16)); err != nil {
		return nil, fmt.Errorf("%w; the file is damaged, write or fetch it again", err)
	}
	for _, c := range f.f.Root().Columns() {
		leaf, float := -1, false
		if c.Leaf() && !c.Repeated() {
			leaf, float = int(c.Index()), c.Type().Kind() == parquet.Float || c.Type().Kind() == parquet.Double
		}
		f.columns, f.leaf, f.floats = append(f.columns, c), append(f.leaf, leaf), append(f.floats, float)
	}
	return f, nil
}

// guard turns a panic of the library, which damaged files can cause, into an error.
func guard(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("it cannot be decoded: %v; the file is damaged, write or fetch it again", r)
	}
}

// checkFooter looks through the footer before the library makes what it names.
func (f *file) checkFooter() error {
	var end [8]byte
	if f.size < 12 {
		return fmt.Errorf("a file of %d bytes is no Parquet, which begins and ends with %s", f.size, magic)
	}
	if _, err := f.in.ReadAt(end[:], f.size-8); err != nil {
		return err
	}
	switch string(end[4:]) {
	case magic:
	case "PARE":
		return errors.New("it is encrypted; write it without encryption")
	default:
		return fmt.Errorf("it does not end with %s: it is no Parquet, or truncated; fetch it again", magic)
	}
	n := int64(binary.LittleEndian.Uint32(end[:4]))
	if n > f.size-12 {
		return fmt.Errorf("its footer of %d bytes is longer than the file; fetch it again", n)
	}
	footer := make([]byte, n)
	if _, err := f.in.ReadAt(footer, f.size-8-n); err != nil {
		return err
	}
	if _, err := structure(footer, func(int, int, int64) {}); err != nil {
		return fmt.Errorf("its footer is damaged: %w; fetch it again", err)
	}
	return f.claim(n*footerBytes, "a footer of Parquet")
}

// footerBytes is how many bytes of memory a byte of a footer takes at most, about: an empty description of a
// chunk of a column is one byte there.
const footerBytes = 512

// Columns implements importer.Decoder.
func (f *file) Columns() (names []string, several, floats []bool) {
	for i, c := range f.columns {
		names, several = append(names, c.Name()), append(several, f.leaf[i] < 0)
	}
	return names, several, f.floats
}

// Read implements importer.Decoder.
func (f *file) Read(columns []int) (_ importer.RecordReader, err error) {
	defer guard(&err)
	r := &reader{f: f, groups: f.f.RowGroups()}
	for _, c := range columns {
		put, err := formatter(f.columns[c])
		if err != nil {
			return nil, fmt.Errorf("the column %q: %w", f.columns[c].Name(), err)
		}
		r.columns = append(r.columns, column{leaf: f.leaf[c], name: f.columns[c].Name(), put: put})
	}
	return r, nil
}

// reader implements importer.RecordReader.
type reader struct {
	f       *file
	groups  []parquet.RowGroup
	group   int   // the next one
	left    int64 // rows of the one that is read
	columns []column
}

// column reads a column of a group of rows.
type column struct {
	leaf   int
	name   string
	put    func(text []byte, v parquet.Value) ([]byte, error)
	pages  parquet.Pages
	page   parquet.Page
	in     parquet.ValueReader // of page
	values []parquet.Value     // read and not given yet, of ahead
	ahead  [256]parquet.Value
}

// Next implements importer.RecordReader.
func (r *reader) Next(text []byte, ends []uint32) (_ []byte, _ []uint32, err error) {
	defer guard(&err)
	for r.left == 0 {
		if err := r.nextGroup(); err != nil {
			return text, ends, err
		}
	}
	r.left--
	for i := range r.columns {
		c := &r.columns[i]
		if len(c.values) == 0 {
			if err := c.more(); err != nil {
				return text, ends, fmt.Errorf("the column %q: %w", c.name, err)
			}
		}
		v := c.values[0]
		c.values = c.values[1:]
		if !v.IsNull() {
			if text, err = c.put(text, v); err != nil {
				return text, ends, fmt.Errorf("the column %q: %w", c.name, err)
			}
		}
		ends = append(ends, uint32(len(text)))
	}
	return text, ends, nil
}

// nextGroup goes on to the next group of rows.
func (r *reader) nextGroup() error {
	r.Close()
	if r.group == len(r.groups) {
		return io.EOF
	}
	g, described := r.groups[r.group], r.f.f.Metadata().RowGroups[r.group].Columns
	r.group++
	rows := g.NumRows()
	for i := range r.columns {
		c := &r.columns[i]
		if c.leaf >= len(described) || described[c.leaf].MetaData.NumValues != rows || rows < 0 {
			return fmt.Errorf("a group of %d rows has not as many values of the column %q; the file is damaged, fetch it again", rows, c.name)
		}
		if err := r.f.checkPages(c.name, &described[c.leaf].MetaData); err != nil {
			return err
		}
		c.pages = g.ColumnChunks()[c.leaf].Pages()
	}
	r.left = rows
	return nil
}

// more reads values ahead.
func (c *column) more() error {
	for {
		if c.in != nil {
			n, err := c.in.ReadValues(c.ahead[:])
			if n > 0 {
				c.values = c.ahead[:n]
				return nil
			}
			if err != nil && err != io.EOF {
				return err
			}
			c.endPage()
		}
		page, err := c.pages.ReadPage()
		if err == io.EOF {
			return errors.New("fewer values than rows; the file is damaged, fetch it again")
		} else if err != nil {
			return fmt.Errorf("%w; the file is damaged, or of a kind that is not read: write it again", err)
		}
		c.page, c.in = page, page.Values()
	}
}

func (c *column) endPage() {
	if c.page != nil {
		parquet.Release(c.page)
		c.page, c.in, c.values = nil, nil, nil
	}
}

// Close implements importer.RecordReader.
func (r *reader) Close() {
	for i := range r.columns {
		c := &r.columns[i]
		c.endPage()
		if c.pages != nil {
			c.pages.Close()
			c.pages = nil
		}
	}
}

// What a page may take.
const (
	maxPage   = 64 << 20 // bytes, packed or unpacked
	maxValues = 16 << 20
	maxHeader = 1 << 20 // bytes; statistics of the values are in it
)

// checkPages looks at the headers of a column's pages in a group of rows before the library makes what they
// name.
func (f *file) checkPages(name string, m *format.ColumnMetaData) error {
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	if at < 0 || m.TotalCompressedSize < 0 || at > f.size || m.TotalCompressedSize > f.size-at {
		return fmt.Errorf("the column %q: its %d bytes at %d are beyond the file; fetch it again", name, m.TotalCompressedSize, at)
	}
	end := at + m.TotalCompressedSize
	for at < end {
		n, packed, unpacked, values, err := f.pageHeader(at, end)
		if err != nil {
			return fmt.Errorf("the column %q: a page at byte %d: %w; the file is damaged, fetch it again", name, at, err)
		}
		if packed < 0 || unpacked < 0 || values < 0 || packed > end-at-n {
			return fmt.Errorf("the column %q: a page at byte %d of %d bytes, %d unpacked, with %d values, where %d bytes are; the file is damaged, fetch it again", name, at, packed, unpacked, values, end-at-n)
		}
		if unpacked > maxPage || packed > maxPage || values > maxValues {
			return fmt.Errorf("the column %q: a page of %d bytes with %d values; write pages of at most %d bytes and %d values (pyarrow: data_page_size=1<<20)", name, unpacked, values, maxPage, maxValues)
		}
		if err := f.claim(8*values, "values of Parquet"); err != nil { // one value can stand for all
			return err
		}
		if err := f.claim(max(unpacked-packed, 0), "a page of Parquet, unpacked"); err != nil {
			return err
		}
		at += n + packed
	}
	return nil
}

// pageHeader returns how long the header of the page at a place is, which is in front of end, and how
// many bytes and values it names.
func (f *file) pageHeader(at, end int64) (n, packed, unpacked, values int64, err error) {
	for size := int64(256); ; size *= 16 {
		b := make([]byte, min(size, end-at, maxHeader))
		if _, err := f.in.ReadAt(b, at); err != nil {
			return 0, 0, 0, 0, err
		}
		packed, unpacked, values = 0, 0, 0
		length, err := structure(b, func(outer, field int, x int64) {
			switch {
			case outer == 0 && field == 2:
				unpacked = x
			case outer == 0 && field == 3:
				packed = x
			case (outer == 5 || outer == 7 || outer == 8) && field == 1:
				values = max(values, x)
				if x < 0 {
					packed = -1
				}
			}
		})
		if err == nil || !errors.Is(err, errShort) || int64(len(b)) < size {
			return int64(length), packed, unpacked, values, err
		}
	}
}

// formatter returns what writes the values of a column as a table of text has them.
func formatter(c *parquet.Column) (func(text []byte, v parquet.Value) ([]byte, error), error) {
	var logical format.LogicalTypeValue
	if l := c.Type().LogicalType(); l != nil {
		logical = l.Value
	}
	kind := c.Type().Kind()
	plain := func(put func([]byte, parquet.Value) []byte) (func([]byte, parquet.Value) ([]byte, error), error) {
		return func(text []byte, v parquet.Value) ([]byte, error) { return put(text, v), nil }, nil
	}
	moment := func(at func(v parquet.Value) time.Time) (func([]byte, parquet.Value) ([]byte, error), error) {
		return plain(func(text []byte, v parquet.Value) []byte {
			return at(v).UTC().AppendFormat(text, "2006-01-02 15:04:05.999999999")
		})
	}
	switch l := logical.(type) {
	case *format.NullType:
		return plain(func(text []byte, _ parquet.Value) []byte { return text })
	case *format.DateType:
		return plain(func(text []byte, v parquet.Value) []byte {
			return time.Unix(int64(v.Int32())*86400, 0).UTC().AppendFormat(text, time.DateOnly)
		})
	case *format.TimestampType:
		unit := l.Unit.Value.Duration()
		return moment(func(v parquet.Value) time.Time {
			x, perSecond := v.Int64(), int64(time.Second/unit)
			return time.Unix(x/perSecond, x%perSecond*int64(unit))
		})
	case *format.DecimalType:
		return func(text []byte, v parquet.Value) ([]byte, error) { return appendDecimal(text, v, int(l.Scale)) }, nil
	case *format.UUIDType:
		return func(text []byte, v parquet.Value) ([]byte, error) {
			id, err := uuid.FromBytes(v.ByteArray())
			return append(text, id.String()...), err
		}, nil
	case *format.IntType:
		if !l.IsSigned && kind == parquet.Int32 {
			return plain(func(text []byte, v parquet.Value) []byte { return strconv.AppendUint(text, uint64(v.Uint32()), 10) })
		} else if !l.IsSigned {
			return plain(func(text []byte, v parquet.Value) []byte { return strconv.AppendUint(text, v.Uint64(), 10) })
		}
	case nil, *format.StringType, *format.EnumType, *format.JsonType:
	default:
		return nil, fmt.Errorf("it is of the type %s, which is not read; write numbers, texts or times, or leave it out (--feature COL names those to take)", l)
	}
	switch kind {
	case parquet.Boolean:
		return plain(func(text []byte, v parquet.Value) []byte { return strconv.AppendBool(text, v.Boolean()) })
	case parquet.Int32:
		return plain(func(text []byte, v parquet.Value) []byte { return strconv.AppendInt(text, int64(v.Int32()), 10) })
	case parquet.Int64:
		return plain(func(text []byte, v parquet.Value) []byte { return strconv.AppendInt(text, v.Int64(), 10) })
	case parquet.Float:
		return plain(func(text []byte, v parquet.Value) []byte { return appendFloat(text, float64(v.Float()), 32) })
	case parquet.Double:
		return plain(func(text []byte, v parquet.Value) []byte { return appendFloat(text, v.Double(), 64) })
	case parquet.ByteArray, parquet.FixedLenByteArray:
		return plain(func(text []byte, v parquet.Value) []byte { return append(text, v.ByteArray()...) })
	case parquet.Int96: // nanoseconds of a day and its Julian number
		return moment(func(v parquet.Value) time.Time {
			x := v.Int96()
			return time.Unix((int64(x[2])-2440588)*86400, int64(uint64(x[1])<<32|uint64(x[0])))
		})
	}
	return nil, fmt.Errorf("it is of the type %s, which is not read; write numbers, texts or times", c.Type())
}

// appendFloat writes whole numbers without a point, as far as no other is rounded to them: pandas makes floats of a column of ids in
// which one is missing.
func appendFloat(text []byte, x float64, bits int) []byte {
	exact := float64(1 << 53)
	if bits == 32 {
		exact = 1 << 24
	}
	if x == math.Trunc(x) && math.Abs(x) < exact {
		return strconv.AppendInt(text, int64(x), 10)
	}
	return strconv.AppendFloat(text, x, 'g', -1, bits)
}

// maxDecimal is how many digits a decimal number has at most.
const maxDecimal = 1000

// appendDecimal writes whole numbers without a point, too.
func appendDecimal(text []byte, v parquet.Value, scale int) ([]byte, error) {
	x := new(big.Int)
	switch v.Kind() {
	case parquet.Int64:
		x.SetInt64(v.Int64())
	case parquet.Int32:
		x.SetInt64(int64(v.Int32()))
	default:
		b := v.ByteArray() // of two's complement, the highest first
		if len(b) > maxDecimal/3 {
			return nil, fmt.Errorf("a decimal number of %d bytes", len(b))
		}
		if x.SetBytes(b); len(b) > 0 && b[0] >= 0x80 {
			x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
	}
	if scale < 0 || scale > maxDecimal {
		return nil, fmt.Errorf("a decimal number with %d digits behind the point", scale)
	}
	if x.Sign() < 0 {
		text = append(text, '-')
		x.Neg(x)
	}
	digits := x.String()
	for len(digits) <= scale {
		digits = "0" + digits
	}
	text = append(text, digits[:len(digits)-scale]...)
	if strings.Trim(digits[len(digits)-scale:], "0") != "" {
		text = append(append(text, '.'), digits[len(digits)-scale:]...)
	}
	return text, nil
}
