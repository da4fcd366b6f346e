package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table is a small table of text: the first column is aligned left, the others
// right, two spaces apart. An empty row ends a section; each section has column
// widths of its own.
type table struct{ rows [][]string }

// row adds a row; rows may differ in length.
func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// gap ends a section with an empty line.
func (t *table) gap() { t.rows = append(t.rows, nil) }

// write prints the table.
func (t *table) write(w io.Writer) error {
	var b strings.Builder
	for first := 0; first < len(t.rows); {
		end := first
		for end < len(t.rows) && t.rows[end] != nil {
			end++
		}
		writeSection(&b, t.rows[first:end])
		if end < len(t.rows) {
			b.WriteByte('\n')
		}
		first = end + 1
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeSection(b *strings.Builder, rows [][]string) {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range rows {
		var line strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i == 0 {
				line.WriteString(c + pad)
			} else {
				line.WriteString("  " + pad + c)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
}
