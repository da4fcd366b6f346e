package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table is a small table of text: the first column is aligned left, the others
// right, two spaces apart.
type table struct{ rows [][]string }

// row adds a row; rows may differ in length.
func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// gap adds an empty line.
func (t *table) gap() { t.rows = append(t.rows, nil) }

// write prints the table.
func (t *table) write(w io.Writer) error {
	var width []int
	for _, r := range t.rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, r := range t.rows {
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
	_, err := io.WriteString(w, b.String())
	return err
}
