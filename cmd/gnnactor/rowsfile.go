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

// rowsEndings are those of files that hold rows of nodes: arrays of NumPy, CSV, lines of JSON.
var rowsEndings = []string{".npy", ".csv", ".jsonl", ".ndjson"}

// checkRowsFile refuses, before any work is done, a file whose ending is none of those.
func checkRowsFile(name string, endings []string) error {
	if name != "" && !slices.Contains(endings, plotFormat(name)) {
		return usagef("--out %s: the name must end in %s", name, strings.Join(endings, ", "))
	}
	return checkReplaceable("--out", name)
}

// writeRows writes a row of numbers for each node: as the ending of the name says, an array alone, or with the nodes' names, under
// columns or, in JSON, as a list under a key.
func writeRows(name string, ids []uint32, e *runtime.Embedding, columns func(j int) string, key string, c called) error {
	if plotFormat(name) == ".npy" {
		return atomicfile.Write(name, 0o644, func(w io.Writer) error { return writeNPY(w, e) })
	}
	head := []string{"id"}
	for j := range e.Cols {
		head = append(head, columns(j))
	}
	return writeLines(name, head, len(ids), func(i int) (any, [][]string) {
		row := e.Data[i*e.Cols : (i+1)*e.Cols]
		if plotFormat(name) != ".csv" {
			return map[string]any{"id": c.id(ids[i]), key: row}, nil
		}
		line := []string{string(c.name(nil, ids[i]))}
		for _, x := range row {
			line = append(line, strconv.FormatFloat(float64(x), 'g', -1, 32))
		}
		return nil, [][]string{line}
	})
}

// writeLines writes what each of n has: a line of JSON, or lines of CSV under head.
func writeLines(name string, head []string, n int, each func(i int) (any, [][]string)) error {
	return atomicfile.Write(name, 0o644, func(w io.Writer) error {
		return graph.Guard(func() error {
			out := bufio.NewWriterSize(w, 1<<20)
			table, lines := csv.NewWriter(out), json.NewEncoder(out)
			if plotFormat(name) == ".csv" {
				if err := table.Write(head); err != nil {
					return err
				}
			}
			for i := range n {
				object, rows := each(i)
				if plotFormat(name) != ".csv" {
					if err := lines.Encode(object); err != nil {
						return err
					}
				}
				for _, row := range rows {
					if plotFormat(name) != ".csv" {
						break
					}
					if err := table.Write(row); err != nil {
						return err
					}
				}
			}
			table.Flush()
			if err := table.Error(); err != nil {
				return err
			}
			return out.Flush()
		})
	})
}
