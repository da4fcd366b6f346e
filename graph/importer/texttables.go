package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
)

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
		if n&0xfff == 0 && im.ctx.Err() != nil {
			return 0, im.ctx.Err()
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
		fw, err = im.startNodeFeatures(cols, graph.Float32, false)
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
