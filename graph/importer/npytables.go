package importer

import (
	"fmt"
	"os"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// openNPY opens a NumPy file, or a member of an archive.
func (im *importer) openNPY(path string) (*npyFile, error) {
	f, err := im.open(path)
	if err != nil {
		return nil, err
	}
	return newNPY(f, path)
}

func (im *importer) open(path string) (*os.File, error) {
	member, ok := im.members[path]
	if !ok {
		return im.src.open(path)
	}
	f, err := os.Open(member)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	return f, nil
}

// npyBlock is how many values of a NumPy file are read at once.
const npyBlock = 1 << 14

// edgesNPY reads edges of shape (2, E), as GraphBolt and PyG save them, or
// (E, 2). Two rows of two mean (2, E).
func (im *importer) edgesNPY(path string) error {
	a, err := im.openNPY(path)
	if err != nil {
		return err
	}
	defer a.close()
	if len(a.shape) != 2 || a.shape[0] != 2 && a.shape[1] != 2 {
		return dataerr.Bad("%s: %s; edges need shape (2, E) or (E, 2)", path, &a.npyHeader)
	}
	if err := im.startEdges(); err != nil {
		return err
	}
	byRow := a.shape[0] == 2
	count := a.shape[1]
	if !byRow {
		count = a.shape[0]
	}
	src, dst := make([]int64, npyBlock), make([]int64, npyBlock)
	if byRow != a.fortran { // all sources lie before all destinations
		rs, rd := a.values(0, count), a.values(count, 2*count)
		for at := int64(0); at < count; at += npyBlock {
			k := min(count-at, npyBlock)
			if err := rs.ints(src[:k]); err != nil {
				return err
			}
			if err := rd.ints(dst[:k]); err != nil {
				return err
			}
			if err := im.addEdges(a, src[:k], dst[:k], func(i int) (int64, int64) { return at + int64(i), count + at + int64(i) }); err != nil {
				return err
			}
		}
		return nil
	}
	both := make([]int64, 2*npyBlock)
	r := a.values(0, 2*count)
	for at := int64(0); at < count; at += npyBlock {
		k := min(count-at, npyBlock)
		if err := r.ints(both[:2*k]); err != nil {
			return err
		}
		for i := range k {
			src[i], dst[i] = both[2*i], both[2*i+1]
		}
		if err := im.addEdges(a, src[:k], dst[:k], func(i int) (int64, int64) { return 2 * (at + int64(i)), 2*(at+int64(i)) + 1 }); err != nil {
			return err
		}
	}
	return nil
}

// addEdges checks and spools edges; place gives the indices, in file order, of
// the values of edge i.
func (im *importer) addEdges(a *npyFile, src, dst []int64, place func(i int) (int64, int64)) error {
	for i := range src {
		if err := im.checkInt(src[i]); err != nil {
			at, _ := place(i)
			return a.errorf(at, "%w", err)
		}
		if err := im.checkInt(dst[i]); err != nil {
			_, at := place(i)
			return a.errorf(at, "%w", err)
		}
		if err := im.edges.add(uint32(src[i]), uint32(dst[i])); err != nil {
			return err
		}
	}
	return nil
}

// checkInt tells what is wrong with a node id, if anything.
func (im *importer) checkInt(v int64) error {
	if v < 0 {
		return fmt.Errorf("node id %d is negative; ids start at 0", v)
	}
	if v >= graph.MaxNodes {
		return fmt.Errorf("node id %d is above the largest one supported, %d", v, graph.MaxNodes-1)
	}
	return im.checkID(uint32(v))
}

// cscNPY reads row bounds and the sources of each row's edges; their targets,
// with outgoing.
func (im *importer) cscNPY(indptrPath, indicesPath string, outgoing bool) error {
	p, err := im.openNPY(indptrPath)
	if err != nil {
		return err
	}
	defer p.close()
	x, err := im.openNPY(indicesPath)
	if err != nil {
		return err
	}
	defer x.close()
	if len(p.shape) != 1 || p.shape[0] < 1 || len(x.shape) != 1 {
		return dataerr.Bad("%s holds %s and %s holds %s; want one dimension each, indptr one longer than there are nodes",
			indptrPath, &p.npyHeader, indicesPath, &x.npyHeader)
	}
	if err := im.setNodes(p.shape[0]-1, indptrPath); err != nil {
		return err
	}
	if err := im.startEdges(); err != nil {
		return err
	}
	total := x.shape[0]
	bounds, ids := p.values(0, p.shape[0]), x.values(0, total)
	buf, src := make([]int64, npyBlock), make([]int64, npyBlock)
	end := int64(0) // of the row before
	for at := int64(0); at < p.shape[0]; at += npyBlock {
		part := buf[:min(p.shape[0]-at, npyBlock)]
		if err := bounds.ints(part); err != nil {
			return err
		}
		for i, b := range part {
			v := at + int64(i) - 1 // the row that ends at b
			if b < end || b > total || v < 0 && b != 0 {
				return p.errorf(at+int64(i), "row bound %d; bounds start at 0, must not decrease (the one before is %d) and end at %d, the length of %s",
					b, end, total, indicesPath)
			}
			for end < b {
				k := min(b-end, npyBlock)
				if err := ids.ints(src[:k]); err != nil {
					return err
				}
				for j, u := range src[:k] {
					if err := im.checkInt(u); err != nil {
						return x.errorf(end+int64(j), "%w", err)
					}
					src, dst := uint32(u), uint32(v)
					if outgoing {
						src, dst = dst, src
					}
					if err := im.edges.add(src, dst); err != nil {
						return err
					}
				}
				end += k
			}
		}
	}
	if end != total {
		return dataerr.Bad("%s ends at %d, but %s has %d values; they must agree", indptrPath, end, indicesPath, total)
	}
	return nil
}

// tableNPY opens a table of features and returns its rows and columns. One
// dimension is one column.
func (im *importer) tableNPY(path string) (a *npyFile, rows, cols int64, err error) {
	if a, err = im.openNPY(path); err != nil {
		return nil, 0, 0, err
	}
	rows, cols = 1, 1
	switch len(a.shape) {
	case 1:
		rows = a.shape[0]
	case 2:
		rows, cols = a.shape[0], a.shape[1]
	default:
		a.close()
		return nil, 0, 0, dataerr.Bad("%s: %s; a table needs shape (rows, columns)", path, &a.npyHeader)
	}
	if a.fortran && rows > 1 && cols > 1 {
		a.close()
		return nil, 0, 0, dataerr.Bad("%s: it is stored column by column; save numpy.ascontiguousarray of it", path)
	}
	if cols > arrays.MaxColumns || cols == 0 {
		a.close()
		return nil, 0, 0, dataerr.Bad("%s: %s; a table has 1 to %d columns", path, &a.npyHeader, arrays.MaxColumns)
	}
	return a, rows, cols, nil
}

// wideType returns the type that holds every value of the file.
func (h *npyHeader) wideType() graph.DType {
	switch {
	case h.kind == 'f' && h.size == 2:
		return graph.Float16
	case h.kind == 'i' && h.size == 1:
		return graph.Int8
	}
	return graph.Float32
}

// eachRow calls row with every row of a table.
func (im *importer) eachRow(a *npyFile, rows, cols int64, nan bool, row func(i int64, x []float32) error) error {
	r := a.values(0, rows*cols)
	x := make([]float32, cols)
	for i := range rows {
		if i&0xfff == 0 && im.ctx.Err() != nil {
			return im.ctx.Err()
		}
		if err := r.floats(x, nan); err != nil {
			return err
		}
		if err := row(i, x); err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) nodeFeaturesNPY(path string) error {
	a, rows, cols, err := im.tableNPY(path)
	if err != nil {
		return err
	}
	defer a.close()
	if err := im.setNodes(rows, path); err != nil {
		return err
	}
	fw, err := im.startNodeFeatures(int(cols), a.wideType(), false)
	if err != nil {
		return err
	}
	defer fw.Close()
	if err := im.eachRow(a, rows, cols, false, func(_ int64, x []float32) error { return fw.Row(x) }); err != nil {
		return err
	}
	return fw.Finish()
}

// edgeTableNPY reads one row per edge: weights or edge features.
func (im *importer) edgeTableNPY(path, name string) error {
	a, rows, cols, err := im.tableNPY(path)
	if err != nil {
		return err
	}
	defer a.close()
	if rows != im.edges.count {
		return dataerr.Bad("%s has %d rows, but there are %d edges; give one row per edge", path, rows, im.edges.count)
	}
	if name == arrays.Weights && cols != 1 {
		return dataerr.Bad("%s: %s; weights have one column", path, &a.npyHeader)
	}
	fw, err := im.startEdgeTable(name, int(cols), a.wideType())
	if err != nil {
		return err
	}
	return im.eachRow(a, rows, cols, false, func(_ int64, x []float32) error { return fw.Row(x) })
}

// labelsNPY reads labels of shape (nodes,), (nodes, 1) or (nodes, classes),
// and calls put with each row.
func (im *importer) eachLabelNPY(path string, start func(rows int64, cols int) error, row func(x []float32) error) error {
	a, rows, cols, err := im.tableNPY(path)
	if err != nil {
		return err
	}
	defer a.close()
	if err := start(rows, int(cols)); err != nil {
		return err
	}
	return im.eachRow(a, rows, cols, true, func(i int64, x []float32) error {
		if err := row(x); err != nil {
			return a.errorf(i*cols, "%w", err)
		}
		return nil
	})
}

func (im *importer) labelsNPY(path string) error {
	l := labelReader{im: im}
	err := im.eachLabelNPY(path, func(rows int64, cols int) error {
		if err := im.setNodes(rows, path); err != nil {
			return err
		}
		return l.start(path, rows, cols)
	}, l.row)
	im.labels = l.labels
	return err
}

// idsNPY reads node ids, or a mask with one boolean per node.
func (im *importer) idsNPY(path string) ([]uint32, error) {
	a, err := im.openNPY(path)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if len(a.shape) == 2 && a.shape[1] == 1 {
		a.shape = a.shape[:1]
	}
	if len(a.shape) != 1 {
		return nil, dataerr.Bad("%s: %s; want the ids of nodes, in one dimension", path, &a.npyHeader)
	}
	n := a.shape[0]
	mask := a.kind == 'b'
	if mask && im.nodes >= 0 && n != im.nodes {
		return nil, dataerr.Bad("%s: a mask of %d values for %d nodes; give one each", path, n, im.nodes)
	}
	if !mask && im.nodes >= 0 && n > im.nodes {
		return nil, dataerr.Bad("%s: %d ids for %d nodes; each may be listed once", path, n, im.nodes)
	}
	r := a.values(0, n)
	ids := []uint32{}
	buf := make([]int64, npyBlock)
	for at := int64(0); at < n; at += npyBlock {
		part := buf[:min(n-at, npyBlock)]
		if err := r.ints(part); err != nil {
			return nil, err
		}
		for i, v := range part {
			if mask {
				if v == 0 {
					continue
				}
				v = at + int64(i)
			}
			if err := im.checkInt(v); err != nil {
				return nil, a.errorf(at+int64(i), "%w", err)
			}
			ids = append(ids, uint32(v))
		}
	}
	return ids, nil
}
