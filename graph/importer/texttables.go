package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
)

// edgesText reads lines of "source, destination". With header, the first line
// may name the columns; with weight, a third column may hold weights and a
// fourth times, or the other way round where the header says so. Empty lines
// and those that start with # or % are skipped.
func (im *importer) edgesText(path string, header, weight bool) error {
	t, err := im.openText(path)
	if err != nil {
		return err
	}
	defer t.close()
	if err := im.startEdges(); err != nil {
		return err
	}
	p := edgeParser{header: header, weight: weight}
	w, when := make([]float32, 1), make([]int64, 1)
	for {
		line, err := t.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		src, dst, wt, ok, err := p.parse(line)
		if err != nil {
			return t.errorf("%w", err)
		}
		if !ok {
			continue
		}
		if err := im.checkID(max(src, dst)); err != nil {
			return t.errorf("%w", err)
		}
		if err := im.edges.add(src, dst); err != nil {
			return err
		}
		if p.weighted() {
			if im.weights == nil {
				if _, err := im.startEdgeTable(arrays.Weights, 1, graph.Float32); err != nil {
					return err
				}
			}
			w[0] = wt
			if err := im.weights.Row(w); err != nil {
				return err
			}
		}
		if p.timed() {
			if im.edgeTimes == nil {
				if err := im.startEdgeTimes(); err != nil {
					return err
				}
			}
			when[0] = p.when
			if _, err := im.edgeTimes.Write(arrays.Bytes(when)); err != nil {
				return err
			}
		}
	}
	if im.edges.count == 0 && im.nodes < 0 {
		return dataerr.Bad("%s: there are no edges in it; give at least one line \"source,destination\"", path)
	}
	return nil
}

// edgeParser reads the lines of an edge list.
type edgeParser struct {
	header, weight bool
	columns        int // 2 to 4, once an edge was read
	sep            byte
	timeFirst      bool  // the third column holds times
	when           int64 // time of the edge that was read, if timed
}

func (p *edgeParser) weighted() bool { return p.columns == 4 || p.columns == 3 && !p.timeFirst }
func (p *edgeParser) timed() bool    { return p.columns == 4 || p.columns == 3 && p.timeFirst }

// names reads the header: only where times are matters.
func (p *edgeParser) names(line []byte) {
	for i, rest, more := 0, line, true; more && i < 4; i++ {
		var f []byte
		f, rest, more = cut(rest, p.sep)
		switch strings.ToLower(strings.Trim(string(bytes.TrimSpace(f)), `"`)) {
		case "time", "timestamp", "ts":
			p.timeFirst = i == 2
		}
	}
}

// parse reads a line; ok is false when it holds no edge.
func (p *edgeParser) parse(line []byte) (src, dst uint32, w float32, ok bool, err error) {
	if trimmed := bytes.TrimSpace(line); len(trimmed) == 0 || trimmed[0] == '#' || trimmed[0] == '%' {
		return 0, 0, 0, false, nil
	}
	if p.columns == 0 {
		p.sep = separator(line)
		if p.header {
			p.header = false
			f, _, _ := cut(line, p.sep)
			if _, err := strconv.ParseFloat(string(bytes.TrimSpace(f)), 64); err != nil {
				p.names(line)
				return 0, 0, 0, false, nil
			}
		}
	}
	a, rest, more := cut(line, p.sep)
	if src, err = parseID(a); err != nil {
		return 0, 0, 0, false, err
	}
	if !more {
		return 0, 0, 0, false, errors.New("the line has 1 column; an edge needs a source and a destination")
	}
	b, rest, more := cut(rest, p.sep)
	if dst, err = parseID(b); err != nil {
		return 0, 0, 0, false, err
	}
	columns := 2
	for ; more; columns++ {
		if !p.weight || columns == 4 {
			return 0, 0, 0, false, fmt.Errorf("the line has too many columns; want source, destination%s", map[bool]string{true: " and perhaps a weight and a time"}[p.weight])
		}
		var c []byte
		c, rest, more = cut(rest, p.sep)
		if (columns == 2) == p.timeFirst {
			if p.when, err = strconv.ParseInt(string(bytes.TrimSpace(c)), 10, 64); err != nil {
				return 0, 0, 0, false, fmt.Errorf("time: %q is not an integer", clip(c))
			}
		} else if w, err = parseFloat(c); err != nil {
			return 0, 0, 0, false, fmt.Errorf("weight: %w", err)
		}
	}
	if p.columns != 0 && p.columns != columns {
		return 0, 0, 0, false, fmt.Errorf("the line has %d columns, but lines before it have %d", columns, p.columns)
	}
	p.columns = columns
	return src, dst, w, true, nil
}

// rowsText calls start with the number of columns of the first line and then
// row with every line's values. It returns the number of rows. With nan, an
// empty field or "nan" is NaN.
func (im *importer) rowsText(path string, nan bool, start func(cols int) error, row func(x []float32) error) (int64, error) {
	t, err := im.openText(path)
	if err != nil {
		return 0, err
	}
	defer t.close()
	var x []float32
	var sep byte
	n := int64(0)
	for {
		line, err := t.next()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		if n&0xfff == 0 && im.o.Context.Err() != nil {
			return 0, im.o.Context.Err()
		}
		if n == 0 {
			sep = separator(line)
		}
		cols := len(x)
		x = x[:0]
		for rest, more := line, true; more; {
			var f []byte
			f, rest, more = cut(rest, sep)
			v, err := parseFloat(f)
			if err != nil {
				if s := bytes.TrimSpace(f); !nan || len(s) != 0 && !bytes.EqualFold(s, []byte("nan")) {
					return 0, t.errorf("column %d: %w", len(x)+1, err)
				}
				v = float32(math.NaN())
			}
			if x = append(x, v); len(x) > arrays.MaxColumns {
				return 0, t.errorf("more than %d columns; is this a table?", arrays.MaxColumns)
			}
		}
		if n == 0 {
			if err := start(len(x)); err != nil {
				return 0, err
			}
		} else if len(x) != cols {
			return 0, t.errorf("the row has %d columns, but the rows before it have %d", len(x), cols)
		}
		if err := row(x); err != nil {
			if errors.Is(err, errRow) {
				return 0, t.errorf("%w", err)
			}
			return 0, err
		}
		n++
	}
}

// errRow marks an error about a row's values, to which the reader adds the
// place.
var errRow = errors.New("the row cannot be used")

// nodeFeaturesText reads one line per node.
func (im *importer) nodeFeaturesText(path string) error {
	var fw *store.TableWriter
	n, err := im.rowsText(path, false, func(cols int) (err error) {
		fw, err = im.startNodeFeatures(cols, graph.Float32)
		return err
	}, func(x []float32) error { return fw.Row(x) })
	if fw != nil {
		defer fw.Close()
	}
	if err != nil {
		return err
	}
	if fw == nil {
		return dataerr.Bad("%s: it is empty; give one line per node", path)
	}
	if err := im.setNodes(n, path); err != nil {
		return err
	}
	return fw.Finish()
}

// edgeTableText reads one line per edge: weights or edge features.
func (im *importer) edgeTableText(path, name string) error {
	var fw *store.TableWriter
	n, err := im.rowsText(path, false, func(cols int) (err error) {
		if name == arrays.Weights && cols != 1 {
			return dataerr.Bad("%s line 1: %d columns; weights have one", path, cols)
		}
		fw, err = im.startEdgeTable(name, cols, graph.Float32)
		return err
	}, func(x []float32) error { return fw.Row(x) })
	if err != nil {
		return err
	}
	if n != im.edges.count {
		return dataerr.Bad("%s has %d lines, but there are %d edges; give one line per edge", path, n, im.edges.count)
	}
	return nil
}

// labelsText reads one line per node.
func (im *importer) labelsText(path string) error {
	l := labelReader{im: im}
	n, err := im.rowsText(path, true, func(cols int) error { return l.start(path, max(im.nodes, 0), cols) }, l.row)
	if err != nil {
		return err
	}
	if err := im.setNodes(n, path); err != nil {
		return err
	}
	im.labels = l.labels
	return nil
}

// labelReader collects labels of consecutive nodes: one column of classes, or
// several of 0 and 1.
type labelReader struct {
	im     *importer
	cols   int
	labels graph.Labels
}

// start makes room for the labels of so many nodes.
func (l *labelReader) start(path string, nodes int64, cols int) error {
	l.cols = cols
	if err := l.im.claim(nodes*int64(max(cols, 4)), path, fmt.Sprintf("labels of %d columns for %d nodes", cols, nodes)); err != nil {
		return err
	}
	if cols == 1 {
		l.labels.Class = make([]int32, 0, nodes)
		return nil
	}
	l.labels.NumClasses = cols
	l.labels.Multi = make([]uint8, 0, nodes*int64(cols))
	return nil
}

func (l *labelReader) row(x []float32) error {
	if l.cols == 1 {
		c, err := classOf(x[0])
		if err != nil {
			return err
		}
		l.labels.Class = append(l.labels.Class, c)
		l.labels.NumClasses = max(l.labels.NumClasses, int(c)+1)
		return nil
	}
	for j, v := range x {
		if v != 0 && v != 1 {
			return fmt.Errorf("%w: label column %d is %v; with several columns each must be 0 or 1", errRow, j+1, v)
		}
		l.labels.Multi = append(l.labels.Multi, uint8(v))
	}
	return nil
}

// classOf returns the class that v names; NaN and -1 mean none.
func classOf(v float32) (int32, error) {
	if v != v || v == -1 {
		return graph.Unlabeled, nil
	}
	if v < 0 || v >= arrays.MaxClasses || v != float32(int32(v)) {
		return 0, fmt.Errorf("%w: label %v is not a class; want integers from 0, or -1 for a node without label", errRow, v)
	}
	return int32(v), nil
}

// idsText reads one node id per line.
func (im *importer) idsText(path string) ([]uint32, error) {
	t, err := im.openText(path)
	if err != nil {
		return nil, err
	}
	defer t.close()
	ids := []uint32{}
	for {
		line, err := t.next()
		if err == io.EOF {
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
		v, err := parseID(line)
		if err == nil {
			err = im.checkID(v)
		}
		if err != nil {
			return nil, t.errorf("%w", err)
		}
		if im.nodes >= 0 && int64(len(ids)) >= im.nodes {
			return nil, t.errorf("more ids than nodes (%d); each may be listed once", im.nodes)
		}
		ids = append(ids, v)
	}
}
