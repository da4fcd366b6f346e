package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

func mtxName(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), ".gz"), ".zst")
	return filepath.Ext(name) == ".mtx"
}

// readMatrixMarket reads a sparse matrix in the coordinate format of Matrix
// Market (Boisvert, Pozo and Remington, NISTIR 5935, 1996): entry (i, j), counted
// from 1, is an edge from node i-1 to node j-1, its value the edge's weight, unless
// there are none or all are 1; of a symmetric matrix, which lists one triangle,
// also the edge back. In a directory, the .npy files that readNumPy knows may lie
// beside it.
func (im *importer) readMatrixMarket(path string) error {
	file, err := findFile(path, mtxName, "a matrix ends in .mtx, and perhaps .gz or .zst")
	if err != nil {
		return err
	}
	edges := func() error { return im.edgesMTX(file) }
	if file == path {
		return edges()
	}
	return im.withNodeTables(path, edges)
}

func (im *importer) edgesMTX(path string) error {
	t, err := im.openText(path)
	if err != nil {
		return err
	}
	defer t.close()
	var p mtxParser
	for p.size == nil {
		line, err := t.next()
		if err == io.EOF {
			return dataerr.Bad("%s: it ends after line %d, before the line of sizes; it is truncated, fetch it again", path, t.line)
		}
		if err != nil {
			return err
		}
		if err := p.header(line); err != nil {
			return t.errorf("%w", err)
		}
	}
	if err := im.setNodes(p.size[0], path); err != nil {
		return err
	}
	if err := im.startEdges(); err != nil {
		return err
	}
	if !p.pattern {
		if _, err := im.startEdgeTable(arrays.Weights, 1, graph.Float32); err != nil {
			return err
		}
	}
	weighted, w := false, make([]float32, 1)
	add := func(src, dst uint32, weight float32) error {
		if err := im.edges.add(src, dst); err != nil || p.pattern {
			return err
		}
		weighted = weighted || weight != 1
		w[0] = weight
		return im.weights.Row(w)
	}
	for n := int64(0); ; {
		line, err := t.next()
		if err == io.EOF {
			if n != p.size[2] {
				return dataerr.Bad("%s: it has %d entries, but its header says %d; it is truncated or damaged, fetch it again", path, n, p.size[2])
			}
			break
		}
		if err != nil {
			return err
		}
		i, j, weight, ok, err := p.entry(line)
		if ok && n == p.size[2] {
			err = fmt.Errorf("there are more entries than the %d that the header says", p.size[2])
		}
		if err != nil {
			return t.errorf("%w", err)
		}
		if !ok {
			continue
		}
		n++
		if err := add(i, j, weight); err != nil {
			return err
		}
		if p.symmetric && i != j {
			if err := add(j, i, weight); err != nil {
				return err
			}
		}
	}
	if im.weights != nil && !weighted {
		im.weights.Close()
		im.weights = nil
	}
	return nil
}

// mtxParser reads the lines of a Matrix Market file.
type mtxParser struct {
	begun, pattern, symmetric bool
	size                      []int64 // rows, columns and entries, once read
}

// header reads a line up to that of the sizes.
func (p *mtxParser) header(line []byte) error {
	if !p.begun {
		p.begun = true
		return p.banner(line)
	}
	f := bytes.Fields(line)
	if len(f) == 0 || f[0][0] == '%' {
		return nil
	}
	if len(f) != 3 {
		return fmt.Errorf("%d numbers where the rows, columns and entries are due", len(f))
	}
	size := make([]int64, 3)
	for i, s := range f {
		v, err := strconv.ParseInt(string(s), 10, 64)
		if err != nil || v < 0 {
			return fmt.Errorf("%q is not a size", clip(s))
		}
		size[i] = v
	}
	if size[0] != size[1] {
		return fmt.Errorf("the matrix has %d rows and %d columns; an adjacency matrix has as many", size[0], size[1])
	}
	if size[0] > graph.MaxNodes {
		return fmt.Errorf("the matrix has %d rows; at most %d nodes are supported", size[0], graph.MaxNodes)
	}
	p.size = size
	return nil
}

// banner reads the first line: %%MatrixMarket matrix coordinate field symmetry.
func (p *mtxParser) banner(line []byte) error {
	f := strings.Fields(strings.ToLower(string(line[:min(len(line), 1024)])))
	if len(f) != 5 || f[0] != "%%matrixmarket" {
		return errors.New(`the file does not begin with "%%MatrixMarket matrix coordinate field symmetry"`)
	}
	if f[1] != "matrix" || f[2] != "coordinate" {
		return fmt.Errorf("it holds %q; a matrix in the coordinate format is needed", clip(f[2]+" "+f[1]))
	}
	switch f[3] {
	case "pattern":
		p.pattern = true
	case "real", "integer":
	default:
		return fmt.Errorf("values of the field %q; pattern, integer and real can be weights", clip(f[3]))
	}
	switch f[4] {
	case "symmetric":
		p.symmetric = true
	case "general":
	default:
		return fmt.Errorf("symmetry %q; general and symmetric matrices are read", clip(f[4]))
	}
	return nil
}

// entry reads the line of an entry; ok is false when it is empty or a comment.
func (p *mtxParser) entry(line []byte) (i, j uint32, w float32, ok bool, err error) {
	var f [4][]byte
	n := 0
	for rest := line; n < len(f); n++ {
		rest = bytes.TrimLeft(rest, " \t")
		end := bytes.IndexAny(rest, " \t")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			break
		}
		f[n], rest = rest[:end], rest[end:]
	}
	if n == 0 || f[0][0] == '%' {
		return 0, 0, 0, false, nil
	}
	want := 3
	if p.pattern {
		want = 2
	}
	if n != want {
		return 0, 0, 0, false, fmt.Errorf("the line has %s columns; an entry has %d", map[bool]string{true: "too many", false: strconv.Itoa(n)}[n == len(f)], want)
	}
	if i, err = p.index(f[0], p.size[0]); err == nil {
		j, err = p.index(f[1], p.size[1])
	}
	w = 1
	if err == nil && !p.pattern {
		if w, err = parseFloat(f[2]); err != nil {
			err = fmt.Errorf("value: %w", err)
		}
	}
	return i, j, w, err == nil, err
}

// index reads an index from 1 to size and returns it counted from 0.
func (p *mtxParser) index(b []byte, size int64) (uint32, error) {
	v := int64(0)
	for _, c := range b {
		if c < '0' || c > '9' || v > size {
			v = 0
			break
		}
		v = v*10 + int64(c-'0')
	}
	if v < 1 || v > size {
		return 0, fmt.Errorf("index %q is not in [1, %d]", clip(b), size)
	}
	return uint32(v - 1), nil
}
