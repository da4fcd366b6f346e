package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/runtime"
)

// defaultTopLinks is how many links are named of a node, where --top does not say.
const defaultTopLinks = 10

// linkLine is the score of a pair in --output json and lines of JSON.
type linkLine struct {
	Src         any     `json:"src"`
	Dst         any     `json:"dst"`
	Score       float32 `json:"score"`
	Probability float32 `json:"probability"`
}

// predictLinks prints or writes scores of pairs, those of a file or the best of some nodes.
func (a *app) predictLinks(ctx context.Context, rt *runtime.Runtime, f *predictFlags) error {
	ds := rt.Dataset()
	var src []uint32
	var scores []runtime.LinkScore
	err := graph.Guard(func() (err error) {
		if f.pairs != "" {
			var dst []uint32
			if src, dst, err = readPairs(f.pairs, ds); err == nil {
				scores, err = rt.ScoreLinks(ctx, src, dst)
			}
			return err
		}
		nodes, err := listedNodes("--links", f.links, ds.Graph.NumNodes(), namesOf(ds))
		if err != nil {
			return err
		}
		k := f.Top
		if k == 0 {
			k = defaultTopLinks
		}
		var among []uint32
		if f.among != "" {
			if among, err = readNames(f.among, ds); err != nil {
				return err
			}
		}
		top, err := rt.TopLinks(ctx, nodes, k, f.joined, among)
		for i, best := range top {
			src = append(src, slices.Repeat(nodes[i:i+1], len(best))...)
			scores = append(scores, best...)
		}
		return err
	})
	if err != nil {
		return err
	}
	c := calledIn(ds)
	object := func(i int) linkLine {
		return linkLine{c.id(src[i]), c.id(scores[i].Node), scores[i].Score, scores[i].Probability}
	}
	text := func(i int) []string {
		number := func(x float32) string { return strconv.FormatFloat(float64(x), 'g', -1, 32) }
		return []string{string(c.name(nil, src[i])), string(c.name(nil, scores[i].Node)), number(scores[i].Score), number(scores[i].Probability)}
	}
	switch {
	case f.out != "":
		err := writeLines(f.out, []column{c.column("src"), c.column("dst"), {"score", float32s}, {"probability", float32s}}, len(scores), func(i int) (any, [][]string) { return object(i), [][]string{text(i)} })
		if err != nil {
			return err
		}
		if a.output != outputText {
			return a.showFile(f.out, len(scores), 1)
		}
		_, err = fmt.Fprintf(a.stdout, "%s: scores of %s\n", f.out, countOf(len(scores), "pair"))
		return err
	case a.output == outputJSON:
		list := make([]linkLine, len(scores))
		return graph.Guard(func() error {
			for i := range list {
				list[i] = object(i)
			}
			return a.printJSON(map[string]any{"links": list})
		})
	}
	return graph.Guard(func() error {
		w := bufio.NewWriter(a.stdout)
		for i := range scores {
			t := text(i)
			fmt.Fprintf(w, "%s\t%s\t%s\t%.3f\n", t[0], t[1], t[2], scores[i].Probability) // the error stays until Flush
		}
		return w.Flush()
	})
}

// openColumns opens a file of CSV, past a byte-order mark.
func openColumns(name string) (*os.File, *csv.Reader, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	b := bufio.NewReaderSize(file, 1<<16)
	if mark, _ := b.Peek(3); string(mark) == "\ufeff" {
		_, _ = b.Discard(3) // it was there a moment ago
	}
	r := csv.NewReader(b)
	r.ReuseRecord, r.TrimLeadingSpace = true, true
	return file, r, nil
}

// readPairs reads the pairs of nodes that a file names, in two columns of CSV, under src,dst or what else tables of edges call them, or not.
func readPairs(name string, ds *graph.Dataset) (src, dst []uint32, err error) {
	file, r, err := openColumns(name)
	if err != nil {
		return nil, nil, usagef("--pairs: %w", err)
	}
	defer file.Close()
	for first := true; ; first = false {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			if len(src) == 0 {
				return nil, nil, usagef("--pairs %s: it names no pair; give one a line, src,dst", name)
			}
			return src, dst, nil
		}
		if err != nil {
			return nil, nil, usagef("--pairs %s: %w", name, err)
		}
		line, _ := r.FieldPos(0)
		if len(fields) != 2 {
			return nil, nil, usagef("--pairs %s line %d: %d columns; give two, src,dst, with a comma between", name, line, len(fields))
		}
		ids, err := findIDs(fields, ds)
		if err != nil && first && importer.EndsOfEdges(fields) {
			continue
		}
		if err != nil {
			return nil, nil, usagef("--pairs %s line %d: %w", name, line, err)
		}
		src, dst = append(src, ids[0]), append(dst, ids[1])
	}
}

// readNames reads the nodes that the first column of a CSV file names, under id or not: a line each.
func readNames(name string, ds *graph.Dataset) (nodes []uint32, err error) {
	file, r, err := openColumns(name)
	if err != nil {
		return nil, usagef("--among: %w", err)
	}
	defer file.Close()
	nodes = []uint32{}
	for first := true; ; first = false {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			if len(nodes) == 0 {
				return nil, usagef("--among %s: it names no node; give one a line", name)
			}
			return nodes, nil
		}
		if err != nil {
			return nil, usagef("--among %s: %w", name, err)
		}
		line, _ := r.FieldPos(0)
		ids, err := findIDs(fields[:1], ds)
		if err != nil && first && fields[0] == "id" {
			continue
		}
		if err != nil {
			return nil, usagef("--among %s line %d: %w", name, line, err)
		}
		nodes = append(nodes, ids[0])
	}
}
