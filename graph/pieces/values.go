package pieces

import (
	"context"
	"io"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/store"
)

// valueBytes returns the bytes of a node's values, of its name the mean.
func valueBytes(ds *graph.Dataset) (bytes int64) {
	if f := ds.NodeFeatures; f != nil {
		bytes += int64(f.Cols * f.DType.Size())
	}
	if l := ds.Labels; l != nil {
		bytes += 4
		if l.IsMulti() {
			bytes += int64(l.NumClasses) - 4
		}
	}
	if n := ds.Names; n != nil {
		bytes += 8 + int64(len(n.Text)/max(ds.Graph.NumNodes(), 1))
	}
	return bytes
}

// rowsOf returns the range of the graph's rows in which the masters of pieces are.
func (c *creator) rowsOf(writers map[int]*store.Writer) (from, to int) {
	from, to = c.ds.Graph.NumNodes(), 0
	if c.p.id != nil {
		return 0, from
	}
	for i := range writers {
		from, to = min(from, int(c.p.borders[i])), max(to, int(c.p.borders[i+1]))
	}
	return from, to
}

// values copies what is known of nodes to their pieces, in one pass over the nodes.
func (c *creator) values(ctx context.Context, writers map[int]*store.Writer) error {
	from, to := c.rowsOf(writers)
	for _, t := range c.tables() {
		out := make([]*store.ArrayWriter, c.o.Pieces)
		for i, w := range writers {
			a, err := w.Array(t.name, t.dtype, t.cols)
			if err != nil {
				return err
			}
			defer a.Close()
			if _, err := a.Write(t.before); err != nil {
				return err
			}
			out[i] = a
		}
		copyRow := func(v int, row []byte) error {
			if v%(1<<12) == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			a := out[c.p.of(c.p.idOf(uint32(v)))]
			if a == nil {
				return nil
			}
			_, err := a.Write(row)
			return err
		}
		if t.name == arrays.NodeFeatures && !c.copied {
			if err := c.checkedRows(t, copyRow); err != nil {
				return err
			}
			c.copied = true
		} else {
			for v := from; v < to; v++ {
				if err := copyRow(v, t.row(v)); err != nil {
					return err
				}
			}
		}
		for _, a := range out {
			if a != nil {
				if err := a.Finish(); err != nil {
					return err
				}
			}
		}
	}
	for _, w := range writers {
		if f := c.ds.NodeFeatures; f != nil && f.ColScale != nil {
			if err := w.Put(arrays.NodeColScale, graph.Float32, 1, arrays.Bytes(f.ColScale)); err != nil {
				return err
			}
		}
		if c.ds.Recipe != nil {
			if err := w.Put(arrays.Recipe, graph.Uint8, 1, c.ds.Recipe); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkedRows calls f with each row of a table of the store, and compares its file with the checksums.
func (c *creator) checkedRows(t table, f func(v int, row []byte) error) error {
	r, err := c.src.CheckedReader(t.name)
	if err != nil {
		return err
	}
	defer r.Close()
	size := t.cols * t.dtype.Size()
	rows := make([]byte, size*max(1, (1<<20)/max(size, 1)))
	for v, n := 0, c.ds.Graph.NumNodes(); v < n && size > 0; {
		some := rows[:min(len(rows), (n-v)*size)]
		if _, err := io.ReadFull(r, some); err != nil {
			return err
		}
		for ; len(some) > 0; v++ {
			if err := f(v, some[:size]); err != nil {
				return err
			}
			some = some[size:]
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // what is told behind the last row
		return err
	}
	return nil
}

// table is an array with a row for each node, or as many as the row's bytes are.
type table struct {
	name   string
	dtype  graph.DType
	cols   int
	row    func(v int) []byte // it is called for each node of each piece once, in order
	before []byte             // what it begins with
}

func (c *creator) tables() (list []table) {
	ds := c.ds
	if f := ds.NodeFeatures; f != nil {
		bytes := f.Cols * f.DType.Size()
		list = append(list, table{arrays.NodeFeatures, f.DType, f.Cols, func(v int) []byte { return f.Data[v*f.Stride : v*f.Stride+bytes] }, nil})
		if f.RowScale != nil {
			list = append(list, column(arrays.NodeRowScale, graph.Float32, f.RowScale))
		}
	}
	if l := ds.Labels; l != nil && l.IsMulti() {
		list = append(list, table{arrays.Labels, graph.Uint8, l.NumClasses, func(v int) []byte { return l.Multi[v*l.NumClasses : (v+1)*l.NumClasses] }, nil})
	} else if l != nil {
		list = append(list, column(arrays.Labels, graph.Int32, l.Class))
	}
	if ds.NodeTimes != nil {
		list = append(list, column(arrays.NodeTimes, graph.Int64, ds.NodeTimes))
	}
	if c.p.id != nil {
		id := make([]uint32, 1)
		list = append(list, table{arrays.Originals, graph.Uint32, 1, func(v int) []byte {
			id[0] = uint32(v)
			return arrays.Bytes(id)
		}, nil})
	}
	if n := c.ds.Names; n.AreTexts() {
		ends, end := make([]int64, c.o.Pieces), make([]int64, 1) // of the names in each piece
		list = append(list, table{arrays.NodeNames, graph.Uint8, 1, func(v int) []byte { return n.Text[n.Bounds[v]:n.Bounds[v+1]] }, nil},
			table{arrays.NameBounds, graph.Int64, 1, func(v int) []byte {
				i := c.p.of(c.p.idOf(uint32(v)))
				ends[i] += n.Bounds[v+1] - n.Bounds[v]
				end[0] = ends[i]
				return arrays.Bytes(end)
			}, make([]byte, 8)})
	} else if n != nil {
		list = append(list, column(arrays.NodeIDs, graph.Int64, n.Numbers))
	}
	return list
}

func column[T arrays.Number](name string, t graph.DType, x []T) table {
	return table{name, t, 1, func(v int) []byte { return arrays.Bytes(x[v : v+1]) }, nil}
}
