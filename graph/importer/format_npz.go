package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

func npzName(name string) bool { return strings.EqualFold(filepath.Ext(name), ".npz") }

// readNPZ reads an archive of NumPy arrays. Its adjacency matrix is one of
//
//   - SciPy's save_npz: format csr, csc or coo;
//   - adj_data, adj_indices, adj_indptr and adj_shape (or adj_matrix.data, …), in
//     CSR, as many data sets of papers have it;
//   - row and col; edges or edge_index, as edges.npy; indptr and indices, as
//     readNumPy knows them.
//
// An entry in row i and column j is an edge from node i to node j, its value the
// edge's weight, unless all are 1. Node features are attr_data, attr_indices,
// attr_indptr and attr_shape (attr_matrix.data, …), in CSR, or a table:
// attr_matrix, features, node_features, feature, feat or x; labels are labels, node_labels, label
// or y, splits train, train_mask or train_idx and so on, of ids or booleans.
// Other arrays are left alone. In a directory, the .npy files that readNumPy knows
// may lie beside the archive.
func (im *importer) readNPZ(path string) error {
	file, err := findFile(path, npzName, "an archive of arrays ends in .npz")
	if err != nil {
		return err
	}
	f, err := im.src.open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	a, err := decodeNPZ(f, st.Size(), file)
	if err != nil {
		return err
	}
	im.members = map[string]string{}
	if err := im.npzNodes(a); err != nil {
		return err
	}
	edges := func() error {
		if err := im.npzEdges(a); err != nil {
			return err
		}
		return im.npzSplits(a)
	}
	if file == path {
		err = edges()
	} else {
		err = im.withNodeTables(path, edges)
	}
	for _, file := range im.members {
		if e := os.Remove(file); err == nil && e != nil {
			err = dataerr.Writing(im.w.Shown(file), e)
		}
	}
	return err
}

// unpack readies an array for openNPY and returns its name there.
func (im *importer) unpack(a *npzFile, member string) (string, error) {
	name := a.name(member)
	if a.members[member] == nil {
		return "", dataerr.Bad("%s is missing; save the matrix again", name)
	}
	h, err := a.header(member)
	if err != nil {
		return "", err
	}
	if err := im.claim(h.offset+h.count()*int64(h.size), name, "unpacked"); err != nil {
		return "", err
	}
	path := filepath.Join(im.w.Scratch(), "member"+strconv.Itoa(len(im.members))+".npy")
	f, err := os.Create(path)
	if err != nil {
		return "", dataerr.Writing(im.w.Shown(path), err)
	}
	im.members[name] = path
	err = a.copyTo(canceledWriter{im, f}, member)
	if e := f.Close(); err == nil {
		err = dataerr.Writing(im.w.Shown(path), e)
	}
	return name, err
}

// canceledWriter writes a scratch file until the import is stopped.
type canceledWriter struct {
	im *importer
	f  *os.File
}

func (w canceledWriter) Write(p []byte) (int, error) {
	if err := w.im.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.f.Write(p)
	return n, dataerr.Writing(w.im.w.Shown(w.f.Name()), err)
}

// sparse is a matrix in compressed rows, or columns.
type sparse struct {
	data, indices, indptr string // names for openNPY; data may be empty
	rows, cols            int64
}

// unpackSparse readies the arrays with a prefix.
func (im *importer) unpackSparse(a *npzFile, prefix string) (m sparse, err error) {
	for _, p := range []struct {
		to   *string
		name string
	}{{&m.indptr, "indptr"}, {&m.indices, "indices"}, {&m.data, "data"}} {
		if p.name == "data" && a.members[prefix+p.name] == nil {
			continue
		}
		if *p.to, err = im.unpack(a, prefix+p.name); err != nil {
			return m, err
		}
	}
	m.rows, m.cols, err = im.npzShape(a, prefix+"shape")
	return m, err
}

// npzShape reads a matrix's rows and columns.
func (im *importer) npzShape(a *npzFile, member string) (rows, cols int64, err error) {
	name, err := im.unpack(a, member)
	if err != nil {
		return 0, 0, err
	}
	f, err := im.openNPY(name)
	if err != nil {
		return 0, 0, err
	}
	defer f.close()
	shape := make([]int64, 2)
	if f.count() != 2 {
		return 0, 0, dataerr.Bad("%s: %s; a shape has two values", name, &f.npyHeader)
	}
	if err := f.values(0, 2).ints(shape); err != nil {
		return 0, 0, err
	}
	if shape[0] < 0 || shape[1] < 0 || shape[0] > graph.MaxNodes || shape[1] > graph.MaxNodes {
		return 0, 0, dataerr.Bad("%s: %d × %d is out of range; at most %d nodes are supported", name, shape[0], shape[1], graph.MaxNodes)
	}
	return shape[0], shape[1], nil
}

// square records the number of nodes of an adjacency matrix.
func (im *importer) square(a *npzFile, rows, cols int64) error {
	if rows != cols {
		return dataerr.Bad("%s: the matrix has %d rows and %d columns; an adjacency matrix has as many", a.path, rows, cols)
	}
	return im.setNodes(rows, a.path)
}

// npzEdges reads the adjacency matrix.
func (im *importer) npzEdges(a *npzFile) error {
	for _, prefix := range []string{"adj_", "adj_matrix."} {
		if a.members[prefix+"indptr"] != nil {
			return im.compressedEdges(a, prefix, true)
		}
	}
	if a.members["format"] != nil {
		format, err := a.text("format")
		if err != nil {
			return err
		}
		switch format {
		case "csr", "csc":
			return im.compressedEdges(a, "", format == "csr")
		case "coo":
			return im.coordinateEdges(a)
		}
		return dataerr.Bad("%s: %q; csr, csc and coo are read: save it as one of them", a.name("format"), clip(format))
	}
	if a.members["row"] != nil && a.members["col"] != nil {
		return im.coordinateEdges(a)
	}
	if edges := a.first("edges", "edge_index"); edges != "" {
		name, err := im.unpack(a, edges)
		if err != nil {
			return err
		}
		return im.edgesNPY(name)
	}
	if a.members["indptr"] != nil && a.members["indices"] != nil {
		indptr, err := im.unpack(a, "indptr")
		if err != nil {
			return err
		}
		indices, err := im.unpack(a, "indices")
		if err != nil {
			return err
		}
		return im.cscNPY(indptr, indices, false)
	}
	return dataerr.Bad("%s: no adjacency matrix in it; want SciPy's save_npz, adj_indptr and adj_indices, row and col, or edges", a.path)
}

func (im *importer) compressedEdges(a *npzFile, prefix string, outgoing bool) error {
	m, err := im.unpackSparse(a, prefix)
	if err != nil {
		return err
	}
	if err := im.square(a, m.rows, m.cols); err != nil {
		return err
	}
	if err := im.cscNPY(m.indptr, m.indices, outgoing); err != nil {
		return err
	}
	return im.npzWeights(m.data)
}

func (im *importer) coordinateEdges(a *npzFile) error {
	if a.members["shape"] != nil {
		rows, cols, err := im.npzShape(a, "shape")
		if err != nil {
			return err
		}
		if err := im.square(a, rows, cols); err != nil {
			return err
		}
	}
	var ends [2]*npyFile
	for i, member := range []string{"row", "col"} {
		name, err := im.unpack(a, member)
		if err != nil {
			return err
		}
		if ends[i], err = im.openNPY(name); err != nil {
			return err
		}
		defer ends[i].close()
	}
	row, col := ends[0], ends[1]
	if len(row.shape) != 1 || len(col.shape) != 1 || row.count() != col.count() {
		return dataerr.Bad("%s holds %s and %s holds %s; want one dimension each, as long as the other", row.path, &row.npyHeader, col.path, &col.npyHeader)
	}
	if err := im.startEdges(); err != nil {
		return err
	}
	src, dst := make([]int64, npyBlock), make([]int64, npyBlock)
	rs, rd := row.values(0, row.count()), col.values(0, row.count())
	for at := int64(0); at < row.count(); at += npyBlock {
		k := min(row.count()-at, npyBlock)
		if err := rs.ints(src[:k]); err != nil {
			return err
		}
		if err := rd.ints(dst[:k]); err != nil {
			return err
		}
		for i := range k {
			if err := im.checkInt(src[i]); err != nil {
				return row.errorf(at+i, "%w", err)
			}
			if err := im.checkInt(dst[i]); err != nil {
				return col.errorf(at+i, "%w", err)
			}
			if err := im.edges.add(uint32(src[i]), uint32(dst[i])); err != nil {
				return err
			}
		}
	}
	if a.members["data"] == nil {
		return nil
	}
	data, err := im.unpack(a, "data")
	if err != nil {
		return err
	}
	return im.npzWeights(data)
}

// npzWeights reads the matrix's values, unless all are 1.
func (im *importer) npzWeights(data string) error {
	if data == "" {
		return nil
	}
	f, err := im.openNPY(data)
	if err != nil {
		return err
	}
	defer f.close()
	x := make([]float32, npyBlock)
	r := f.values(0, f.count())
	for at := int64(0); at < f.count(); at += npyBlock {
		part := x[:min(f.count()-at, npyBlock)]
		if err := r.floats(part, false); err != nil {
			return err
		}
		for _, v := range part {
			if v != 1 {
				return im.edgeTableNPY(data, arrays.Weights)
			}
		}
	}
	return nil
}

// npzNodes reads features and labels.
func (im *importer) npzNodes(a *npzFile) error {
	read := func(f func(string) error, names ...string) error {
		member := a.first(names...)
		if member == "" {
			return nil
		}
		name, err := im.unpack(a, member)
		if err != nil {
			return err
		}
		return f(name)
	}
	var err error
	switch p := a.first("attr_indptr", "attr_matrix.indptr"); p {
	case "":
		err = read(im.nodeFeaturesNPY, "attr_matrix", "features", "node_features", "feature", "feat", "x")
	default:
		err = im.sparseFeatures(a, strings.TrimSuffix(p, "indptr"))
	}
	if err != nil {
		return err
	}
	return read(im.labelsNPY, "labels", "node_labels", "label", "y")
}

// npzSplits reads the splits.
func (im *importer) npzSplits(a *npzFile) error {
	for i, names := range [][]string{
		{"train", "train_mask", "train_idx"},
		{"valid", "valid_mask", "valid_idx", "val", "val_mask", "val_idx"},
		{"test", "test_mask", "test_idx"},
	} {
		member := a.first(names...)
		if member == "" {
			continue
		}
		if im.nodes < 0 { // masks are of all nodes
			if err := im.setNodes(im.edges.maxID+1, "the edges"); err != nil {
				return err
			}
		}
		name, err := im.unpack(a, member)
		if err != nil {
			return err
		}
		if im.splits[i], err = im.idsNPY(name); err != nil {
			return err
		}
	}
	return nil
}

// sparseFeatures writes out the rows of a sparse table of features.
func (im *importer) sparseFeatures(a *npzFile, prefix string) error {
	m, err := im.unpackSparse(a, prefix)
	if err != nil {
		return err
	}
	if m.cols < 1 || m.cols > arrays.MaxColumns {
		return dataerr.Bad("%s: %d × %d; a table has 1 to %d columns", a.name(prefix+"shape"), m.rows, m.cols, arrays.MaxColumns)
	}
	if err := im.claim(4*m.rows*m.cols, a.name(prefix+"shape"), fmt.Sprintf("a table of %d × %d, mostly zeros", m.rows, m.cols)); err != nil {
		return err
	}
	if err := im.setNodes(m.rows, a.name(prefix+"shape")); err != nil {
		return err
	}
	files := make([]*npyFile, 0, 3)
	for _, name := range []string{m.indptr, m.indices, m.data} {
		if name == "" {
			return dataerr.Bad("%s is missing; save the matrix again", a.name(prefix+"data"))
		}
		f, err := im.openNPY(name)
		if err != nil {
			return err
		}
		defer f.close()
		if len(f.shape) != 1 {
			return dataerr.Bad("%s holds %s; want one dimension", name, &f.npyHeader)
		}
		files = append(files, f)
	}
	indptr, indices, data := files[0], files[1], files[2]
	total := indices.count()
	if indptr.count() != m.rows+1 || data.count() != total {
		return dataerr.Bad("%s: %d row bounds, %d indices and %d values do not make a matrix of %d rows; save it again",
			a.name(prefix+"shape"), indptr.count(), total, data.count(), m.rows)
	}
	fw, err := im.startNodeFeatures(int(m.cols), graph.Float32, false)
	if err != nil {
		return err
	}
	defer fw.Close()
	bounds, ids, values := indptr.values(0, m.rows+1), indices.values(0, total), data.values(0, total)
	bound, id, value := make([]int64, 1), make([]int64, npyBlock), make([]float32, npyBlock)
	row := make([]float32, m.cols)
	at := int64(0)
	for v := int64(-1); v < m.rows; v++ {
		if err := bounds.ints(bound); err != nil {
			return err
		}
		if end := bound[0]; end < at || end > total || v < 0 && end != 0 || v == m.rows-1 && end != total {
			return indptr.errorf(v+1, "row bound %d; bounds start at 0, must not decrease (the one before is %d) and end at %d", end, at, total)
		}
		if v < 0 {
			continue
		}
		clear(row)
		for at < bound[0] {
			k := min(bound[0]-at, npyBlock)
			if err := ids.ints(id[:k]); err != nil {
				return err
			}
			if err := values.floats(value[:k], false); err != nil {
				return err
			}
			for i, c := range id[:k] {
				if c < 0 || c >= m.cols {
					return indices.errorf(at+int64(i), "column %d is out of range [0, %d)", c, m.cols)
				}
				if row[c] += value[i]; row[c]-row[c] != 0 {
					return data.errorf(at+int64(i), "the sum of the values of column %d is not finite", c)
				}
			}
			at += k
		}
		if v&0xfff == 0 && im.ctx.Err() != nil {
			return im.ctx.Err()
		}
		if err := fw.Row(row); err != nil {
			return err
		}
	}
	return fw.Finish()
}
