package importer

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/gnnactor/gnnactor/graph"
)

const maxIDBytes = 4096

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
	case exponent.Match(id):
		return fmt.Errorf("the id %q is a number with an exponent; write whole numbers as such (numpy: fmt=\"%%d\", R: options(scipen = 99)), or if a node is called so, put it in quotes", clip(id))
	}
	return nil
}

// underline tells whether b is of what programs that draw tables write under a header.
func underline(b []byte) bool { return len(b) > 1 && len(bytes.Trim(b, "-")) == 0 }

func errUnderline(b []byte, no string) error {
	return fmt.Errorf("%q is a line under a header, and no %s; write CSV (sqlite3 -csv, psql --csv), or if a node is called so, put it in quotes", clip(b), no)
}

// exponent is how numpy and R write numbers. Only with a sign: 1e5 may be the begin of a hash.
var exponent = regexp.MustCompile(`^[-+]?[0-9](\.[0-9]+)?[eE][-+][0-9]+$`)

// twiceWritten refuses ids of which some are written as 1 and others as 1.0, as pandas does with a
// column in which one is missing.
func twiceWritten(n *graph.Names) error {
	if !n.AreTexts() {
		return nil
	}
	for v := range len(n.Bounds) - 1 {
		name, float := bytes.CutSuffix(n.Text[n.Bounds[v]:n.Bounds[v+1]], []byte(".0"))
		if !float {
			continue
		}
		if _, whole := parseNumber(name); !whole {
			continue
		}
		if _, found := n.Find(string(name), 0); found {
			return errTwice(name)
		}
	}
	return nil
}

// otherwiseWritten tells of an id that no node has whether a node is called by the same whole number, with or without .0. Of names that are on the
// disk alone it is not known.
func (im *importer) otherwiseWritten(id []byte) error {
	name, float := bytes.CutSuffix(id, []byte(".0"))
	other := string(name)
	if !float {
		other += ".0"
	}
	if _, whole := parseNumber(name); !whole || im.known != nil {
		return nil
	}
	if _, found := im.names.Find(other, int(im.nodes)); !found {
		return nil
	}
	return errTwice(name)
}

func errTwice(name []byte) error {
	return fmt.Errorf("the ids %s and %s.0 both occur and are two nodes as texts; write whole numbers as such (pandas: df.astype(\"Int64\"))", name, name)
}
