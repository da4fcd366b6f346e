package importer

import (
	"bufio"
	"path/filepath"
	"runtime"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/hugepages"
)

// Where a table of nodes has more ids than the map of them may hold, these become runs on the disk, as those of edges do, whose merge is the
// nodes in order. The ids of edges are then written in runs, too, and find their nodes as both are read in order.

// nameRows makes the ids of the runs, those of the rows of a table of nodes, the nodes, and returns the node of each row.
func (im *importer) nameRows(t *table, id int, rows int64) ([]uint32, error) {
	if err := im.endRun(rows); err != nil {
		return nil, err
	}
	texts := im.ids.texts
	im.ids = &idMap{texts: texts}
	runtime.GC() // the map
	known := &idRun{ids: filepath.Join(im.w.Scratch(), "nodes"), texts: texts}
	var nodes, first, last int64
	begun := false
	var failed error
	err := im.writeScratch(known.ids, func(w *bufio.Writer) {
		nodes, failed = im.mergeRuns(nil, true, func(id *idReader) error {
			if !begun {
				begun, first = true, id.number
			}
			if last = id.number; texts {
				writeText(w, id.text)
			} else {
				w.Write(arrays.Bytes([]int64{id.number}))
			}
			return nil
		})
	})
	if failed != nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	place := hugepages.Make[uint32](int(rows))[:0]
	for i := range im.runs {
		nodesOf, err := im.nodesOf(&im.runs[i])
		if err != nil {
			return nil, err
		}
		for _, v := range nodesOf {
			if v == nobody {
				return nil, t.reject(int64(len(place)), []int{id}, func(r *records, i int) error { return errRowTwice(r, i, 0) })
			}
			place = append(place, v)
		}
	}
	im.runs, im.nodesClaimed = nil, true
	if err := im.setNodes(nodes, t.path); err != nil {
		return nil, err
	}
	if !texts && first == 0 && last == nodes-1 {
		im.ids = nil
		return place, nil
	}
	im.known, im.ids = known, newIDMap()
	return place, im.writeKnown(t.path)
}

// writeKnown writes the names of the nodes.
func (im *importer) writeKnown(from string) error {
	names, err := im.startNames(from, im.known.texts)
	if err != nil {
		return err
	}
	defer names.close()
	in, err := im.openRun(0, im.known, im.known.texts)
	if err != nil {
		return err
	}
	defer in.close()
	for range im.nodes {
		if err := in.next(); err != nil {
			return err
		}
		if err := names.add(in); err != nil {
			return err
		}
	}
	return names.finish()
}

// joinEdges gives the edges of t, whose ids were written in runs, the numbers of their nodes.
func (im *importer) joinEdges(t *table, c edgeColumns) error {
	if err := im.edges.flush(); err != nil {
		return err
	}
	if im.known.texts {
		im.ids.toTexts()
	}
	if err := im.endRun(im.edges.count); err != nil {
		return err
	}
	im.ids = &idMap{texts: im.ids.texts}
	runtime.GC() // the map
	if _, err := im.mergeRuns(im.known, false, nil); err != nil {
		return err
	}
	return im.renumberRuns(func(edge int64, end int) error {
		return t.reject(edge, []int{c.src, c.dst}, func(r *records, i int) error { return im.errNobody(r, i, end) })
	})
}

// refuseText says that an edge's id, which is no number, is nobody's, as those of nodes are numbers, unless that is so of an edge before it.
func (im *importer) refuseText(c edgeColumns, r *records, b *edgeBatch) error {
	row, end := len(b.ids)/2, 0
	if src, number := parseNumber(r.field(row, 0)); number {
		b.ids, end = append(b.ids, src, src), 1
	}
	b.out = resized(b.out, len(b.ids))
	if _, err := im.ids.addNumbers(b.ids, b.out); err != nil {
		return err
	}
	for i := 0; i < len(b.ids); i += 2 {
		if err := im.edges.add(b.out[i], b.out[i+1]); err != nil {
			return err
		}
	}
	if err := im.joinEdges(r.t, c); err != nil {
		return err
	}
	return im.errNobody(r, row, end)
}

// reject returns what why says of row number row, which is read again.
func (t *table) reject(row int64, wanted []int, why func(r *records, i int) error) error {
	at := int64(0)
	err := eachBatch(t, wanted, func(*records, *struct{}) error { return nil }, func(r *records, _ *struct{}) error {
		if at += int64(r.rows); row < at {
			return why(r, r.rows-int(at-row))
		}
		return nil
	})
	if err == nil {
		err = dataerr.Bad("%s: it changed while it was read", t.path)
	}
	return err
}
