package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
)

// jsonSyntax is one JSON object a line; its members are the columns. Texts are taken without their
// quotes, numbers and truths as they are written, null and what is not there as missing.
type jsonSyntax struct {
	places map[string]int // of columns
}

// end implements syntax.
func (*jsonSyntax) end(b []byte) int { return bytes.LastIndexByte(b, '\n') + 1 }

// split implements syntax.
func (s *jsonSyntax) split(r *records, wanted []int) error {
	place := make([]int, len(s.places))
	for k, c := range wanted {
		place[c] = k + 1
	}
	zero := make([]span, r.width)
	for p := 0; p < len(r.buf); {
		line, _, _ := bytes.Cut(r.buf[p:], []byte("\n"))
		began := p
		p += len(line) + 1
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		row := len(r.spans)
		r.spans = append(r.spans, zero...)
		err := jsonMembers(r.buf[:began+len(line)], began, func(key, value span) error {
			c, known := s.places[string(r.buf[key.from:key.to])]
			if known && place[c] > 0 {
				r.spans[row+place[c]-1] = value
			}
			return nil
		})
		if err != nil {
			return r.errorAt(began, "%w", err)
		}
		r.at = append(r.at, uint32(began))
		r.rows++
	}
	return nil
}

// jsonMembers calls yield for each member of the object at b[p:], which is one line. Texts are
// unescaped in place.
func jsonMembers(b []byte, p int, yield func(key, value span) error) error {
	space := func() {
		for p < len(b) && (b[p] == ' ' || b[p] == '\t' || b[p] == '\r') {
			p++
		}
	}
	expect := func(c byte) error {
		if space(); p == len(b) || b[p] != c {
			return fmt.Errorf("%q is not one JSON object a line, like {\"src\": 1, \"dst\": 2} (of a list: jq -c '.[]' edges.json >edges.jsonl)", clip(b[min(p, len(b)):]))
		}
		p++
		return nil
	}
	if err := expect('{'); err != nil {
		return err
	}
	if space(); p < len(b) && b[p] == '}' {
		p++
		return jsonOver(b, p)
	}
	for {
		if space(); p == len(b) || b[p] != '"' {
			return expect('"')
		}
		key, next, err := jsonText(b, p)
		if err != nil {
			return err
		}
		p = next
		if err := expect(':'); err != nil {
			return err
		}
		if space(); p == len(b) {
			return expect('"')
		}
		var value span
		switch b[p] {
		case '"':
			if value, p, err = jsonText(b, p); err != nil {
				return err
			}
		case '{', '[':
			name := clip(b[key.from:key.to])
			return fmt.Errorf("the member %q is an object or a list; members must be texts, numbers, true, false or null: give each of its values a member of its own (pandas: df.join(pandas.DataFrame(df.pop(%[1]q).tolist()).add_prefix(%[1]q))), or take it out (jq -c 'del(.[%[1]q])')", name)
		default:
			value.from = uint32(p)
			for p < len(b) && b[p] != ',' && b[p] != '}' && b[p] != ' ' && b[p] != '\t' && b[p] != '\r' {
				p++
			}
			value.to = uint32(p)
			if word := b[value.from:value.to]; !json.Valid(word) {
				return fmt.Errorf("the member %q is %q, which is no JSON", clip(b[key.from:key.to]), clip(word))
			} else if string(word) == "null" {
				value = span{}
			}
		}
		if err := yield(key, value); err != nil {
			return err
		}
		if space(); p < len(b) && b[p] == '}' {
			p++
			return jsonOver(b, p)
		}
		if err := expect(','); err != nil {
			return err
		}
	}
}

func jsonOver(b []byte, p int) error {
	if rest := bytes.TrimSpace(b[p:]); len(rest) > 0 {
		return fmt.Errorf("%q follows the object; write one a line", clip(rest))
	}
	return nil
}

// jsonText finds the text whose quote is b[p].
func jsonText(b []byte, p int) (value span, next int, err error) {
	escaped := false
	for i := p + 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			value = span{uint32(p + 1), uint32(i)}
			if escaped {
				var s string
				if err := json.Unmarshal(b[p:i+1], &s); err != nil {
					return span{}, 0, fmt.Errorf("%q is no JSON text", clip(b[p:i+1]))
				}
				if len(s) > i-p-1 { // what is no UTF-8 grows
					return span{}, 0, fmt.Errorf("%q is not UTF-8", clip(b[p:i+1]))
				}
				value.to = value.from + uint32(copy(b[p+1:], s))
			}
			return value, i + 1, nil
		}
	}
	return span{}, 0, errors.New("a text does not end on its line")
}

// understandJSON finds the members that the first records have.
func (t *table) understandJSON(head []byte, whole bool) error {
	s := &jsonSyntax{places: map[string]int{}}
	t.syntax = s
	t.names = []string{}
	b := bytes.Clone(head)
	if !whole {
		b = b[:s.end(b)]
	}
	for line := 1; len(b) > 0; line++ {
		one, rest, _ := bytes.Cut(b, []byte("\n"))
		b = rest
		if len(bytes.TrimSpace(one)) == 0 {
			continue
		}
		err := jsonMembers(one, 0, func(key, _ span) error {
			name := string(one[key.from:key.to])
			if _, known := s.places[name]; !known {
				if len(t.names) == arrays.MaxColumns {
					return fmt.Errorf("more than %d members; is this a table?", arrays.MaxColumns)
				}
				s.places[name] = len(t.names)
				t.names = append(t.names, name)
			}
			return nil
		})
		if err != nil {
			r := &records{t: t, line: int64(line)}
			return r.errorAt(0, "%w", err)
		}
	}
	t.cols = len(t.names)
	rows, err := t.sampleOf(head, whole)
	t.sample = rows
	return err
}
