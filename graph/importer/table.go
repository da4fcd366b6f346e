package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// A table is a file of records with columns: text with a separator, lines of JSON, or
// what a Decoder reads. Whatever its syntax, each reads it from the first record to the
// last and hands out the fields of the columns that are wanted, as text, in batches that
// are split and parsed on all processors and used in the order of the file.
type table struct {
	im     *importer
	path   string
	syntax syntax     // nil: it is no text
	names  []string   // of the columns; nil: the file does not name them
	cols   int        // how many there are
	sample [][]string // the first records, at most sampled, without a header
	unsure bool       // whether the first line is a header could not be told

	several []bool // of a table that is no text: columns of several values a record
}

// syntax splits a file into records.
type syntax interface {
	// end returns where the last record that is whole ends in b.
	end(b []byte) int
	// split finds the fields at the wanted columns, of all records in r.buf, and may
	// change r.buf.
	split(r *records, wanted []int) error
}

const (
	sampled      = 20
	tableBlock   = 1 << 18
	tableWorkers = 4 // more split faster than one uses
)

// span is where a field lies in a buffer.
type span struct{ from, to uint32 }

// records is a batch of them.
type records struct {
	t     *table
	buf   []byte
	line  int64 // number of buf's first, from 1; of a table that is no text, of its first record
	first bool  // it is the file's first batch
	rows  int
	width int
	at    []uint32 // where each record begins, for errors; of a table that is no text, its number in the batch
	spans []span   // rows × width

	wanted []int  // the columns, by their places in the table
	floats []bool // of a table that is no text: which of the wanted columns hold floating-point numbers
}

// field returns column k of the wanted ones in row i; it is valid until the next batch.
func (r *records) field(i, k int) []byte {
	s := r.spans[i*r.width+k]
	return r.buf[s.from:s.to]
}

// quoted tells whether field k of row i is a text for sure: it is in quotes, or no program writes quotes there.
func (r *records) quoted(i, k int) bool {
	if r.t.syntax == nil {
		return r.floats == nil || !r.floats[k]
	}
	if s, ok := r.t.syntax.(*textSyntax); ok && !s.quotes {
		return true
	}
	from := r.spans[i*r.width+k].from
	return from > 0 && r.buf[from-1] == '"'
}

// isHeader tells whether row i has the names of its columns. Of one alone a name in quotes may be a node's.
func (r *records) isHeader(i int) bool {
	for k, c := range r.wanted {
		if r.t.names == nil || r.t.names[c] != string(r.field(i, k)) {
			return false
		}
	}
	return len(r.wanted) > 1 || len(r.wanted) == 1 && !r.quoted(i, 0)
}

// errorf reports what is wrong with row i.
func (r *records) errorf(i int, format string, args ...any) error {
	return r.errorAt(int(r.at[i]), format, args...)
}

func (r *records) errorAt(offset int, format string, args ...any) error {
	if r.t.syntax == nil {
		return dataerr.Bad("%s row %d: %w", r.t.path, r.line+int64(offset), fmt.Errorf(format, args...))
	}
	line := r.line + int64(bytes.Count(r.buf[:offset], []byte("\n")))
	return dataerr.Bad("%s line %d: %w", r.t.path, line, fmt.Errorf(format, args...))
}

// batch is records and what was made of them.
type batch[T any] struct {
	records
	made T
	err  error
	done chan struct{}
}

// eachBatch reads t once. parse runs on several goroutines, one batch each, and makes of
// the fields of the wanted columns what use gets, on the caller's goroutine and in the
// order of the file. Both may keep nothing of a batch but T's own memory, which comes back
// to parse with a later one.
func eachBatch[T any](t *table, wanted []int, parse func(*records, *T) error, use func(*records, *T) error) (err error) {
	workers := min(runtime.GOMAXPROCS(0), tableWorkers)
	ctx, cancel := context.WithCancel(t.im.ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	free := make(chan *batch[T], 2*workers+1)
	for range cap(free) {
		free <- new(batch[T])
	}
	work, order := make(chan *batch[T], cap(free)), make(chan *batch[T], cap(free))
	var readErr error
	wg.Go(func() {
		defer close(order)
		defer close(work)
		read := t.readBlocks
		if t.syntax == nil {
			read = t.readDecoded
		}
		readErr = read(wanted, func(line int64, fill func(*records) error) bool {
			var b *batch[T]
			select {
			case b = <-free:
			case <-ctx.Done():
				return false
			}
			b.records = records{t: t, buf: b.buf[:0], line: line, wanted: wanted, width: len(wanted), at: b.at[:0], spans: b.spans[:0]}
			b.done, b.err = make(chan struct{}), fill(&b.records)
			work <- b
			order <- b
			return true
		})
	})
	for range workers {
		wg.Go(func() {
			for b := range work {
				if b.err == nil && t.syntax != nil {
					b.err = t.syntax.split(&b.records, wanted)
				}
				if b.err == nil {
					b.err = parse(&b.records, &b.made)
				}
				close(b.done)
			}
		})
	}
	for b := range order {
		<-b.done
		if err == nil {
			if err = t.im.ctx.Err(); err == nil {
				err = b.err
			}
			if err == nil {
				err = use(&b.records, &b.made)
			}
			if err != nil {
				cancel()
			}
		}
		free <- b
	}
	if err == nil {
		err = readErr
	}
	if err == nil {
		err = t.im.ctx.Err() // which may have ended the reading
	}
	return err
}

// readBlocks calls yield with the line of each piece of whole records, and what puts the piece into a batch.
func (t *table) readBlocks(_ []int, yield func(line int64, fill func(*records) error) bool) error {
	in, err := t.im.openStream(t.path)
	if err != nil {
		return err
	}
	defer in.close()
	buf, have, line, first := make([]byte, tableBlock), 0, int64(1), true
	for {
		n, err := io.ReadFull(in, buf[have:])
		have += n
		last := err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) && in.ended
		if err != nil && !last {
			return in.readError(line, err)
		}
		end := have
		if !last {
			end = t.syntax.end(buf[:have])
		}
		if end > 0 {
			block := buf[:end]
			rest := buf[end:have]
			fill := func(r *records) error {
				next := r.buf[:cap(r.buf)] // the batch takes this buffer, and its own is filled next
				if len(next) < max(tableBlock, 2*len(rest)) {
					next = make([]byte, max(tableBlock, 2*len(rest)))
				}
				have = copy(next, rest)
				r.buf, r.first, buf = block, first, next
				return nil
			}
			lines := int64(bytes.Count(block, []byte("\n"))) // before others may change it
			if !yield(line, fill) {
				return nil
			}
			first = false
			line += lines
		} else if !last && have == len(buf) {
			if len(buf) >= maxLine {
				return dataerr.Bad("%s line %d: longer than %d bytes; is this a text file, and is every quote closed? (the option Quotes none, --quotes none, takes quotes as they are)", t.path, line, maxLine)
			}
			buf = append(buf, make([]byte, len(buf))...)
		}
		if last {
			return nil
		}
	}
}

// column returns the number of a column that the user names: by its header, else by its
// number from 1.
func (t *table) column(flag, name string) (int, error) {
	at := -1
	for i, n := range t.names {
		if n == name {
			if at >= 0 {
				return 0, dataerr.Bad("%s: two columns are called %q; give one by its number (%s %d)", t.path, clip(name), flag, i+1)
			}
			at = i
		}
	}
	if at >= 0 {
		return at, nil
	}
	for i, n := range t.names {
		if strings.EqualFold(n, name) {
			return i, nil
		}
	}
	n := 0
	if len(name) < 7 {
		for _, c := range name {
			if c < '0' || c > '9' {
				n = 0
				break
			}
			n = 10*n + int(c-'0')
		}
	}
	if n < 1 || n > t.cols {
		return 0, dataerr.Bad("%s has no column %q (%s); it has %s", t.path, clip(name), flag, t.columns())
	}
	return n - 1, nil
}

// columns says which there are.
func (t *table) columns() string {
	if t.names == nil {
		return fmt.Sprintf("%d columns without names (1 to %d)", t.cols, t.cols)
	}
	var b strings.Builder
	for i, n := range t.names[:min(len(t.names), 12)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", clip(n))
	}
	if len(t.names) > 12 {
		fmt.Fprintf(&b, " and %d more", len(t.names)-12)
	}
	return b.String()
}

// name returns what a column is called.
func (t *table) name(i int) string {
	if t.names != nil {
		return t.names[i]
	}
	return fmt.Sprint(i + 1)
}

// openTable opens a file and finds out what its columns are. header is "" (found out), "yes" or
// "no"; known tells, of names in small letters without anything between, whether one is of a
// header.
func (im *importer) openTable(path string, known func(string) bool) (*table, error) {
	t := &table{im: im, path: path}
	if err := t.understand(known); err != nil {
		return nil, err
	}
	if len(t.names) > 0 {
		for i, name := range t.names {
			if !printable(name) {
				return nil, dataerr.Bad("%s line 1: the name %q of column %d cannot be printed; rename it, or say that the first line is no header (the option Header no, --header no)", path, clip(name), i+1)
			}
		}
	}
	return t, nil
}

// understand finds out what a table's columns are.
func (t *table) understand(known func(string) bool) error {
	if decoderOf(t.path) != nil {
		return t.understandDecoded()
	}
	in, err := t.im.openStream(t.path)
	if err != nil {
		return err
	}
	defer in.close()
	head := make([]byte, tableBlock)
	n, err := io.ReadFull(in, head)
	whole := err != nil && in.ended
	if err != nil && !whole {
		return in.readError(1, err)
	}
	if head = head[:n]; tableExt(t.path) == ".jsonl" {
		return t.understandJSON(head, whole)
	}
	return t.understandText(head, whole, known)
}

// plainName is a column's name in small letters, without what is between them, and without
// what Neo4j adds to it (:START_ID(Person), name:string).
func plainName(s string) string {
	if before, after, ok := strings.Cut(s, ":"); ok {
		if kind, _, _ := strings.Cut(after, "("); slices.Contains([]string{"START_ID", "END_ID", "ID"}, kind) {
			s = kind
		} else if before != "" {
			s = before
		} else {
			return ":" + kind
		}
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == '_' || r == '-' || r == ' ' || r == '.' || r == '~':
			return -1
		}
		return r
	}, s)
}
