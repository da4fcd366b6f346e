package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/runtime"
)

// rowsEndings are those of files that hold rows of nodes: arrays of NumPy, CSV, lines of JSON, Parquet.
var rowsEndings = []string{".npy", ".csv", ".jsonl", ".ndjson", ".parquet", ".pq"}

// inColumns reports whether a file's name says that it has columns; else it has an object a line, or an array.
func inColumns(name string) bool {
	return slices.Contains([]string{".csv", ".parquet", ".pq"}, plotFormat(name))
}

// column is one of a file of rows, with what its cells are texts of.
type column struct {
	name string
	of   cellKind
}

type cellKind int

const (
	texts cellKind = iota
	wholes
	float32s
)

// checkRowsFile refuses, before any work is done, a file whose ending is none of those.
func checkRowsFile(name string, endings []string) error {
	if name != "" && !slices.Contains(endings, plotFormat(name)) {
		return usagef("--out %s: the name must end in %s", name, strings.Join(endings, ", "))
	}
	return checkReplaceable("--out", name)
}

// checkColumns refuses a file of Parquet whose columns would have the same names.
func checkColumns(name string, columns []string) error {
	if !slices.Contains(rowsEndings[4:], plotFormat(name)) {
		return nil
	}
	seen := map[string]bool{}
	for _, c := range columns {
		if seen[c] {
			return usagef("--out %s: two columns would be called %q, which Parquet does not allow; name a file .csv", name, c)
		}
		seen[c] = true
	}
	return nil
}

// writeRows writes a row of numbers for each node: as the ending of the name says, an array alone, or with the nodes' names, under
// columns or, in JSON, as a list under a key.
func writeRows(name string, ids []uint32, e *runtime.Embedding, columns func(j int) string, key string, c called) error {
	if plotFormat(name) == ".npy" {
		return atomicfile.Write(name, 0o644, func(w io.Writer) error { return writeNPY(w, e) })
	}
	head := []column{c.column("id")}
	for j := range e.Cols {
		head = append(head, column{columns(j), float32s})
	}
	return writeLines(name, head, len(ids), func(i int) (any, [][]string) {
		row := e.Data[i*e.Cols : (i+1)*e.Cols]
		if !inColumns(name) {
			return map[string]any{"id": c.id(ids[i]), key: row}, nil
		}
		line := []string{string(c.name(nil, ids[i]))}
		for _, x := range row {
			line = append(line, strconv.FormatFloat(float64(x), 'g', -1, 32))
		}
		return nil, [][]string{line}
	})
}

// writeLines writes what each of n has: a line of JSON, or rows under head, of which an empty cell has nothing.
func writeLines(name string, head []column, n int, each func(i int) (any, [][]string)) error {
	return atomicfile.Write(name, 0o644, func(w io.Writer) error {
		return graph.Guard(func() error {
			out := bufio.NewWriterSize(w, 1<<20)
			lines := json.NewEncoder(out)
			row, end := func([]string) error { return nil }, out.Flush
			switch plotFormat(name) {
			case ".csv":
				table := csv.NewWriter(out)
				row, end = table.Write, func() error {
					table.Flush()
					return table.Error()
				}
				var names []string
				for _, c := range head {
					names = append(names, c.name)
				}
				if err := row(names); err != nil {
					return err
				}
			case ".parquet", ".pq":
				table := newParquetTable(out, head)
				row, end = table.write, table.close
			}
			for i := range n {
				object, rows := each(i)
				if !inColumns(name) {
					if err := lines.Encode(object); err != nil {
						return err
					}
					continue
				}
				for _, cells := range rows {
					if err := row(cells); err != nil {
						return err
					}
				}
			}
			if err := end(); err != nil {
				return err
			}
			return out.Flush()
		})
	})
}
