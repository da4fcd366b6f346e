package importer

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// textSyntax is a text with a separator between fields: RFC 4180's CSV, and what is written in
// its place. A field in quotes may hold separators, ends of lines and quotes, doubled. A line that
// is empty is skipped, and one that begins with # or % unless it has as many fields as the others
// and nothing between that and the first; spaces around fields are no part of them.
type textSyntax struct {
	sep    byte // 0: white space
	quotes bool
	cols   int
	skip   int // lines that the file begins with and that are not records
}

// end implements syntax.
func (s *textSyntax) end(b []byte) int {
	if !s.quotes || bytes.IndexByte(b, '"') < 0 {
		return bytes.LastIndexByte(b, '\n') + 1
	}
	end, begins := 0, true // begins: of a field
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"' && begins:
			k := bytes.IndexByte(b[i+1:], '"')
			for k >= 0 && i+k+2 < len(b) && b[i+k+2] == '"' { // doubled
				i += k + 2
				k = bytes.IndexByte(b[i+1:], '"')
			}
			if k < 0 {
				return end
			}
			i += k + 1
			begins = false
		case c == '\n':
			end, begins = i+1, true
		case s.separates(c):
			begins = true
		case c != ' ':
			begins = false
		}
	}
	return end
}

func (s *textSyntax) separates(c byte) bool {
	return c == s.sep && c != 0 || s.sep == 0 && (c == ' ' || c == '\t')
}

// split implements syntax.
func (s *textSyntax) split(r *records, wanted []int) error {
	b, p := r.buf, 0
	if r.first {
		for range s.skip {
			p += bytes.IndexByte(b[p:], '\n') + 1
		}
	}
	place := make([]int32, s.cols) // of a column in a row of spans, from 1
	for k, c := range wanted {
		place[c] = int32(k + 1)
	}
	quotes := s.quotes && bytes.IndexByte(b, '"') >= 0
	if bytes.IndexByte(b, 0) >= 0 {
		return r.errorAt(bytes.IndexByte(b, 0), "a byte of 0; is this UTF-16 without a mark, or no text? (iconv -f UTF-16LE -t UTF-8 converts it)")
	}
	zero := make([]span, r.width)
	for p < len(b) {
		began := p
		if c := b[p]; c == '\n' || c == '\r' && (p+1 == len(b) || b[p+1] == '\n') {
			p++
			continue
		} else if c == '#' || c == '%' || c == ' ' || c == '\t' {
			line, _, _ := bytes.Cut(b[p:], []byte("\n"))
			if s.comment(line) {
				p = min(p+len(line)+1, len(b))
				continue
			}
		}
		row := len(r.spans)
		r.spans = append(r.spans, zero...)
		k, next := 0, 0
		for more := true; more; k, p = k+1, next {
			if s.sep == 0 || quotes {
				for p < len(b) && (b[p] == ' ' || b[p] == '\t' && s.sep == 0) {
					p++
				}
			}
			var f span
			if quotes && p < len(b) && b[p] == '"' {
				var ok bool
				if f, next, ok = unquote(b, p); !ok {
					return r.errorAt(began, "a quoted field does not end; close the quote, or take quotes as they are (the option Quotes none, --quotes none)")
				}
				if next < len(b) && b[next] != '\n' && b[next] != '\r' && b[next] != ' ' && !s.separates(b[next]) {
					return r.errorAt(began, "%q follows the quote that ends column %d; double quotes inside of quotes, or take them as they are (the option Quotes none, --quotes none)", clip(b[next:min(next+8, len(b))]), k+1)
				}
			} else {
				f, next = s.plain(b, p)
			}
			if s.sep == 0 || quotes { // to what comes next
				for next < len(b) && !(b[next] == s.sep && s.sep != 0) && (b[next] == ' ' || b[next] == '\r' || b[next] == '\t') {
					next++
				}
			}
			if k < len(place) && place[k] > 0 {
				r.spans[row+int(place[k])-1] = f
			}
			if more = next < len(b) && b[next] != '\n'; s.sep != 0 || !more {
				next = min(next+1, len(b))
			}
		}
		if k != s.cols {
			return r.errorAt(began, "%d columns, where the lines before have %d (what separates them: --separator C; fields that hold it go in quotes)", k, s.cols)
		}
		r.at = append(r.at, uint32(began))
		r.rows++
	}
	return nil
}

// plain finds the field without quotes that begins at b[p], and what ends it.
func (s *textSyntax) plain(b []byte, p int) (f span, next int) {
	next = p
	if s.sep != 0 {
		next += fieldLength(b[p:], s.sep)
	} else {
		for next < len(b) && b[next] != ' ' && b[next] != '\t' && b[next] != '\n' {
			next++
		}
	}
	to := next
	for to > p && (b[to-1] == ' ' || b[to-1] == '\r' || b[to-1] == '\t') {
		to--
	}
	for p < to && (b[p] == ' ' || b[p] == '\t') {
		p++
	}
	return span{uint32(p), uint32(to)}, next
}

// fieldLength returns how many bytes there are before sep or the end of the line; it looks at eight at a time.
func fieldLength(b []byte, sep byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	seps, n := uint64(sep)*ones, 0
	for ; n+8 <= len(b); n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		x, y := w^seps, w^'\n'*ones // a byte is 0 where it is one of them, and the lowest such is marked
		if found := ((x-ones)&^x | (y-ones)&^y) & high; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(b) && b[n] != sep && b[n] != '\n' {
		n++
	}
	return n
}

// comment tells whether a line that begins with #, % or a space holds no record.
func (s *textSyntax) comment(line []byte) bool {
	t := bytes.TrimSpace(line)
	if len(t) == 0 {
		return s.sep == 0 || bytes.IndexByte(line, s.sep) < 0
	}
	if t[0] != '#' && t[0] != '%' {
		return false
	}
	if len(t) == 1 || t[1] == ' ' || t[1] == '\t' || t[1] == '#' || t[1] == '%' {
		return true
	}
	return s.count(line) != s.cols
}

// count returns how many fields a line has, without those inside of quotes.
func (s *textSyntax) count(line []byte) int {
	if s.sep == 0 {
		n, within, quoted := 0, false, false
		for i, c := range line {
			switch {
			case quoted:
				quoted = c != '"'
			case c == ' ' || c == '\t' || c == '\r':
				within = false
			case c == '"' && s.quotes && (!within || line[i-1] == '"'):
				quoted = true
				fallthrough
			case !within:
				if !within {
					n++
				}
				within = true
			}
		}
		return n
	}
	n, quoted := 1, false
	for _, c := range line {
		if c == '"' && s.quotes {
			quoted = !quoted
		} else if c == s.sep && !quoted {
			n++
		}
	}
	return n
}

// unquote takes the quotes from the field that begins at b[p], in place, and returns where it lies
// and what follows it.
func unquote(b []byte, p int) (f span, next int, ok bool) {
	from := p + 1
	to, i := from, from
	for {
		k := bytes.IndexByte(b[i:], '"')
		if k < 0 {
			return span{}, 0, false
		}
		if to != i {
			copy(b[to:], b[i:i+k])
		}
		to, i = to+k, i+k+1
		if i == len(b) || b[i] != '"' {
			return span{uint32(from), uint32(to)}, i, true
		}
		b[to] = '"'
		to, i = to+1, i+1
	}
}

// understandText finds the separator, the header and the number of columns in what the file begins
// with.
func (t *table) understandText(head []byte, whole bool, known func(string) bool) error {
	if bytes.IndexByte(head, '\n') < 0 && bytes.IndexByte(head, '\r') >= 0 && whole {
		return dataerr.Bad("%s: its lines end in carriage returns alone; convert it (tr '\\r' '\\n')", t.path)
	}
	s := &textSyntax{quotes: t.im.o.Quotes != "none"}
	t.syntax = s
	rest := head
	if line, after, _ := bytes.Cut(rest, []byte("\n")); len(line) <= 6 && bytes.HasPrefix(line, []byte("sep=")) && len(bytes.TrimSpace(line)) == 5 {
		s.sep, s.skip, rest = line[4], 1, after // as spreadsheets say it
	}
	// Lines, for which quotes across them are looked past.
	var lines, comments [][]byte
	at := 0
	for at < len(rest) && len(lines) < sampled {
		line, after, more := bytes.Cut(rest[at:], []byte("\n"))
		if !more && !whole {
			break
		}
		at = len(rest) - len(after)
		trimmed := bytes.TrimSpace(line)
		switch {
		case len(trimmed) == 0:
		case trimmed[0] == '#' || trimmed[0] == '%':
			if len(lines) == 0 {
				comments = append(comments, trimmed)
			} else if len(trimmed) > 1 && trimmed[1] != ' ' && trimmed[1] != '#' && trimmed[1] != '%' {
				lines = append(lines, line)
			}
			if len(lines) > 0 && oneWord(trimmed) && len(comments) > 0 && oneWord(comments[0]) {
				return dataerr.Bad("%s: this looks like igraph's LGL, lists of neighbors; write edges (write_graph(g, path, \"ncol\"), or in Python g.write_ncol(path)), or take the comments out", t.path)
			}
			if bytes.HasPrefix(trimmed, []byte("# GMT ")) {
				return dataerr.Bad("%s: this is a list of neighbors as networkx writes it; write edges (nx.write_edgelist(G, path, data=False)), or take the comments out", t.path)
			}
		default:
			lines = append(lines, line)
		}
		if !more {
			break
		}
	}
	if len(lines) == 0 {
		s.cols = 2
		t.cols = 2
		return nil
	}
	switch o := t.im.o.Separator; {
	case o == "" && s.sep == 0:
		s.sep = separatorOf(lines, s.quotes)
	case o == "tab":
		s.sep = '\t'
	case o == "space":
		s.sep = 0
	case len(o) == 1:
		s.sep = o[0]
	}
	s.cols = s.count(lines[0])
	var unnamed []string
	if len(lines) > 1 && s.count(lines[1]) == s.cols+1 { // R's names of rows have no name themselves
		if first := fieldsOf(lines[0], s); allNamed(first) {
			unnamed = append([]string{""}, first...)
			s.cols, s.skip = s.cols+1, lineOf(head, lines[0])
		}
	}
	rows, err := t.sampleOf(head, whole)
	if err != nil {
		return err
	}
	t.cols, t.names, t.sample = s.cols, unnamed, rows
	header := t.im.o.Header
	switch {
	case unnamed != nil || len(rows) == 0:
	case header == "":
		header = looksLikeHeader(rows, known)
		fallthrough
	default:
		if header != "no" {
			t.unsure = header == ""
			t.names, t.sample, s.skip = rows[0], rows[1:], lineOf(head, lines[0])
		} else if t.im.o.Header == "" && len(comments) > 0 { // behind a # there may be one
			names := fieldsOf(bytes.TrimLeft(comments[len(comments)-1], "#% \t"), s)
			if names != nil && looksLikeHeader([][]string{names}, known) == "yes" {
				t.names = names
			}
		}
	}
	return nil
}

// oneWord tells whether a comment is one.
func oneWord(comment []byte) bool {
	return bytes.HasPrefix(comment, []byte("# ")) && len(bytes.Fields(comment)) == 2
}

// allNamed tells whether fields can be names of columns: none is a number.
func allNamed(fields []string) bool {
	for _, f := range fields {
		if numeric(f) {
			return false
		}
	}
	return true
}

// lineOf returns how many lines there are up to the end of line, which is a part of b.
func lineOf(b, line []byte) int {
	return bytes.Count(b[:cap(b)-cap(line)], []byte("\n")) + 1
}

// fieldsOf returns the fields of a line by itself; nil: there are not as many as columns.
func fieldsOf(line []byte, s *textSyntax) []string {
	r := &records{t: new(table), buf: bytes.Clone(line), width: s.cols}
	if s.count(line) != s.cols || s.split(r, wholeRow(s.cols)) != nil || r.rows != 1 {
		return nil
	}
	return r.strings(0)
}

func (r *records) strings(i int) []string {
	x := make([]string, r.width)
	for k := range x {
		x[k] = string(r.field(i, k))
	}
	return x
}

func wholeRow(cols int) []int {
	all := make([]int, cols)
	for i := range all {
		all[i] = i
	}
	return all
}

// sampleOf returns the first records.
func (t *table) sampleOf(head []byte, whole bool) (rows [][]string, err error) {
	if !whole {
		head = head[:t.syntax.end(head)]
	}
	r := &records{t: t, buf: bytes.Clone(head), line: 1, first: true, width: t.cols}
	if s, ok := t.syntax.(*textSyntax); ok {
		r.width = s.cols
	}
	err = t.syntax.split(r, wholeRow(r.width))
	for i := range min(len(r.at), sampled) {
		rows = append(rows, r.strings(i))
	}
	if len(rows) > 0 {
		err = nil // what is wrong further down is found when it is read
	}
	return rows, err
}

// separatorOf guesses what separates the fields: what is in all lines equally often.
func separatorOf(lines [][]byte, quotes bool) byte {
	candidates := []byte("\t;,|")
	for _, c := range candidates {
		s := textSyntax{sep: c, quotes: quotes}
		n := s.count(lines[0])
		same := n > 1
		for _, line := range lines[1:] {
			same = same && s.count(line) == n
		}
		if same {
			return c
		}
	}
	for _, c := range candidates {
		if s := (textSyntax{sep: c, quotes: quotes}); s.count(lines[0]) > 1 {
			return c
		}
	}
	return 0
}

// looksLikeHeader tells whether the first of the rows names columns: "yes", "no", or "" where it
// cannot be told.
func looksLikeHeader(rows [][]string, known func(string) bool) string {
	first, numbers := rows[0], 0
	for _, f := range first {
		if known(f) {
			return "yes"
		}
		if numeric(f) {
			numbers++
		}
	}
	if numbers == len(first) || len(first) > 1 && numeric(first[0]) && numeric(first[1]) {
		return "no"
	}
	if len(rows) < 2 {
		return ""
	}
	for k, f := range first { // a name above numbers
		if numeric(f) {
			continue
		}
		all := true
		for _, row := range rows[1:] {
			all = all && numeric(row[k])
		}
		if all {
			return "yes"
		}
	}
	return ""
}

func numeric(s string) bool {
	if s == "" {
		return false
	}
	_, err := strconv.ParseFloat(strings.Replace(s, ",", ".", 1), 64)
	return err == nil
}
