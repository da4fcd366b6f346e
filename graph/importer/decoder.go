package importer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// A Decoder reads a table that is no text: records with named columns. Register makes its files known.
type Decoder interface {
	// Columns returns the columns' names, in order, which of them hold several values a record, which
	// Read refuses, and which hold floating-point numbers, written as text with an exponent where they are so large that
	// they stand for others, too.
	Columns() (names []string, several, floats []bool)
	// Read begins with the first record. Of each, it gives the fields of the columns, which are numbers from
	// 0. Several Readers may be in use, one after the other.
	Read(columns []int) (RecordReader, error)
}

// RecordReader gives one record after the other.
type RecordReader interface {
	// Next appends the fields of the next record to text, one after the other as a table of text has
	// them and a missing one as nothing, and where in text each ends to ends. After the last one the
	// error is io.EOF. An error that is not the file system's is about the file's contents.
	Next(text []byte, ends []uint32) ([]byte, []uint32, error)
	Close()
}

// OpenDecoder opens a table of so many bytes. Before it makes more memory of it than a small part of them it
// asks claim for as many bytes, and returns its error.
type OpenDecoder func(in io.ReaderAt, size int64, claim func(bytes int64, what string) error) (Decoder, error)

var decoders = map[string]OpenDecoder{}

// Register makes Import read files whose names end in ext, like ".parquet", as tables by open. It is for
// the init of packages.
func Register(ext string, open OpenDecoder) { decoders[ext] = open }

// decoderOf returns what reads a file of that name; nil: it is text.
func decoderOf(path string) OpenDecoder { return decoders[strings.ToLower(filepath.Ext(path))] }

// decoded opens a table that is no text.
func (im *importer) decoded(path string) (d Decoder, stop func(), err error) {
	f, err := im.src.open(path)
	if err != nil {
		return nil, nil, err
	}
	d, err = decoderOf(path)(f, im.src.sizes[path], func(n int64, what string) error { return im.claim(n, path, what) })
	if err != nil {
		f.Close()
		return nil, nil, decodeError(path, 0, err)
	}
	return d, func() { f.Close() }, nil
}

// decodeError says where a file is wrong: at a record, from 1, or 0.
func decodeError(path string, row int64, err error) error {
	var pe *fs.PathError
	switch {
	case errors.Is(err, graph.ErrFormat):
		return err
	case errors.As(err, &pe):
		return fmt.Errorf("graph: %w", err)
	case row == 0:
		return dataerr.Bad("%s: %w", path, plainError(err))
	}
	return dataerr.Bad("%s, at row %d: %w", path, row, plainError(err))
}

// understandDecoded finds the columns, and the first records of those that have one value each.
func (t *table) understandDecoded() error {
	d, stop, err := t.im.decoded(t.path)
	if err != nil {
		return err
	}
	defer stop()
	t.names, t.several, _ = d.Columns()
	if t.names == nil {
		t.names = []string{}
	}
	t.cols = len(t.names)
	var wanted []int
	for i := range min(t.cols, sampledColumns) {
		if !t.several[i] {
			wanted = append(wanted, i)
		}
	}
	r, err := d.Read(wanted)
	if err != nil {
		return decodeError(t.path, 0, err)
	}
	defer r.Close()
	for len(t.sample) < sampled {
		text, ends, err := r.Next(nil, nil)
		if err == io.EOF {
			return nil
		} else if err != nil {
			return decodeError(t.path, int64(len(t.sample))+1, err)
		}
		row, from := make([]string, t.cols), uint32(0)
		for k, c := range wanted {
			row[c], from = string(text[from:ends[k]]), ends[k]
		}
		t.sample = append(t.sample, row)
	}
	return nil
}

// sampledColumns is of how many columns of a table that is no text the first records are looked at.
const sampledColumns = 64

// readDecoded is readBlocks of a table that is no text.
func (t *table) readDecoded(wanted []int, yield func(line int64, fill func(*records) error) bool) error {
	for _, c := range wanted {
		if t.several[c] {
			return dataerr.Bad("%s: the column %q is a list or a structure, of several values a row; write each as a column of its own, or choose the columns that are used (--feature COL, --feature none)", t.path, clip(t.names[c]))
		}
	}
	d, stop, err := t.im.decoded(t.path)
	if err != nil {
		return err
	}
	defer stop()
	in, err := d.Read(wanted)
	if err != nil {
		return decodeError(t.path, 0, err)
	}
	defer in.Close()
	_, _, all := d.Columns()
	floats := make([]bool, len(wanted))
	for k, c := range wanted {
		floats[k] = all[c]
	}
	row, ended := int64(1), false
	var ends []uint32
	fill := func(r *records) (err error) {
		r.floats = floats
		for len(r.buf) < tableBlock && r.rows < tableBlock/8 {
			from := uint32(len(r.buf))
			if r.buf, ends, err = in.Next(r.buf, ends[:0]); err != nil {
				ended = true
				if err == io.EOF {
					break
				}
				return decodeError(t.path, row, err)
			}
			r.at = append(r.at, uint32(r.rows))
			for _, end := range ends {
				r.spans = append(r.spans, span{from, end})
				from = end
			}
			r.rows++
			row++
		}
		return t.im.claim(int64(len(r.buf)), t.path, "unpacked")
	}
	for !ended && yield(row, fill) {
	}
	return nil
}

// tableEnds says what tables are called.
func tableEnds() string {
	also := "; Parquet's are read by programs that import graph/importer/parquet"
	if len(decoders) > 0 {
		var list []string
		for ext := range decoders {
			list = append(list, ext)
		}
		slices.Sort(list)
		also = ", or " + strings.Join(list, " or ")
	}
	return "a table ends in .csv, .tsv, .txt, .edges, .jsonl or .ndjson, and perhaps .gz or .zst" + also
}
