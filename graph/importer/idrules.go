package importer

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"unicode/utf8"

	"github.com/gnnactor/gnnactor/graph"
)

const maxIDBytes = 4096

// checkID tells why field k of row i is not the id of a node.
func (r *records) checkID(i, k int) error {
	id, quoted := r.field(i, k), r.quoted(i, k)
	_, lines := r.t.syntax.(*jsonSyntax)
	switch number := !quoted && numberWithExponent().Match(id); {
	case number && r.floats != nil:
		return fmt.Errorf("the id %s is a floating-point number that stands for several whole numbers, so large is it; write ids as whole numbers or texts (pandas: df.astype(\"Int64\") before there are floats, DuckDB: CAST(id AS VARCHAR))", id)
	case number && lines:
		return errExponent(id)
	case r.isHeader(i):
		or := ""
		if len(r.wanted) == 1 {
			or = ", or if a node is called so, put it in quotes"
		}
		return fmt.Errorf("the header is here again, as where tables were put together with theirs; leave it out (tail -qn +2 b.csv c.csv >>a.csv)%s", or)
	}
	return checkText(id, quoted)
}

// checkText tells why a text is not the id of a node. Those that only programs write, of what is missing or of numbers,
// may be ids in quotes.
func checkText(id []byte, quoted bool) error {
	switch {
	case len(id) == 0:
		return errors.New("a node id is missing")
	case !utf8.Valid(id):
		return fmt.Errorf("%q is not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8)", clip(id))
	case id[0] == '{' && id[len(id)-1] == '}':
		return fmt.Errorf("%q is what networkx writes of attributes, and no id; write edges alone (nx.write_edgelist(G, path, data=False)), or say which columns are ids (--src COL --dst COL)", clip(id))
	case len(id) > maxIDBytes:
		return fmt.Errorf("an id of %d bytes (%q); at most %d are supported: is this the right column?", len(id), clip(id), maxIDBytes)
	case quoted:
		return nil
	case missingValue(id):
		return fmt.Errorf("a node id is missing (%q); leave such lines out, or if a node is called so, put it in quotes or take quotes as they are (the option Quotes none, --quotes none)", clip(id))
	case underline(id):
		return errUnderline(id, "id")
	case exponent().Match(id):
		return errExponent(id)
	}
	return nil
}

// underline tells whether b is of what programs that draw tables write under a header.
func underline(b []byte) bool { return len(b) > 1 && len(bytes.Trim(b, "-")) == 0 }

func errUnderline(b []byte, no string) error {
	return fmt.Errorf("%q is a line under a header, and no %s; write CSV (sqlite3 -csv, psql --csv), or if a node is called so, put it in quotes", clip(b), no)
}

func errExponent(id []byte) error {
	return fmt.Errorf("the id %q is a number with an exponent; write whole numbers as such (numpy: fmt=\"%%d\", R: options(scipen = 99)), or if a node is called so, put it in quotes", clip(id))
}

var (
	// exponent is how numpy and R write numbers. Only with a sign: 1e5 may be the begin of a hash.
	exponent = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[-+]?[0-9](\.[0-9]+)?[eE][-+][0-9]+$`) })
	// numberWithExponent is of what is known to be a number.
	numberWithExponent = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?[eE][-+]?[0-9]+$`) })
)

// twiceWritten refuses ids of which some are written as 1 and others as 1.0 or 1.00, as pandas does with a
// column in which one is missing, and databases do with decimal numbers.
func twiceWritten(n *graph.Names) error {
	if !n.AreTexts() {
		return nil
	}
	for v := range len(n.Bounds) - 1 {
		id := n.Text[n.Bounds[v]:n.Bounds[v+1]]
		name := wholeOf(id)
		if name == nil {
			continue
		}
		if _, found := n.Find(string(name), 0); found {
			return errTwice(name, id)
		}
	}
	return nil
}

// otherwiseWritten tells of an id that no node has whether a node is called by the same whole number, with or without .0. Of names that are on the
// disk alone it is not known.
func (im *importer) otherwiseWritten(id []byte) error {
	other := wholeOf(id)
	if _, whole := parseNumber(id); whole {
		other = append(bytes.Clone(id), ".0"...)
	}
	if other == nil || im.known != nil {
		return nil
	}
	if _, found := im.names.Find(string(other), int(im.nodes)); !found {
		return nil
	}
	if len(id) > len(other) {
		id, other = other, id
	}
	return errTwice(id, other)
}

// wholeOf returns what is in front of the point of a whole number with one and zeros behind it; nil: id is none.
func wholeOf(id []byte) []byte {
	name := bytes.TrimRight(id, "0")
	if len(name) == len(id) || !bytes.HasSuffix(name, []byte(".")) {
		return nil
	}
	name = name[:len(name)-1]
	if _, whole := parseNumber(name); !whole {
		return nil
	}
	return name
}

func errTwice(a, b []byte) error {
	return fmt.Errorf("the ids %s and %s both occur and are two nodes as texts; write whole numbers as such (pandas: df.astype(\"Int64\"))", a, b)
}
