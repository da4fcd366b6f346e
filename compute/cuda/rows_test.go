//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
)

// What goes over rows and entries is the processor's, forward and backward, with rows
// that have no entries.
func TestRows(t *testing.T) {
	b := newBench(t)
	for _, s := range shapes {
		rows, cols := s[0], s[1]
		indptr := make([]int64, rows+1)
		for i := range rows {
			indptr[i+1] = indptr[i] + int64(b.r.IntN(4))
		}
		entries := int(indptr[rows])
		ids := make([]uint32, entries)
		for i := range ids {
			ids[i] = uint32(b.r.IntN(rows))
		}
		perRow, perEntry := b.random(rows, cols, 1), b.random(entries, cols, 0)
		sparse := cpu.Sparse[float32]{Rows: rows, Cols: rows, Indptr: indptr, Indices: ids, Values: b.random(1, entries, 0).Data}
		bias, column := b.random(1, cols, 0).Data, b.random(1, rows, 0).Data
		for _, flag := range []bool{false, true} {
			for name, f := range map[string]func(x *cpu.Exec, toRows, toEntries, column, transposed cpu.Matrix[float32]){
				"TakeRows":   func(x *cpu.Exec, _, e, _, _ cpu.Matrix[float32]) { cpu.TakeRows(x, e, perRow, ids) },
				"SumEntries": func(x *cpu.Exec, r, _, _, _ cpu.Matrix[float32]) { cpu.SumEntries(x, r, indptr, perEntry, flag) },
				"SpreadEntries": func(x *cpu.Exec, _, e, _, _ cpu.Matrix[float32]) {
					cpu.SpreadEntries(x, e, indptr, perRow, flag, !flag)
				},
				"RowSums":        func(x *cpu.Exec, _, _, c, _ cpu.Matrix[float32]) { cpu.RowSums(x, c.Data, perRow) },
				"SpreadRows":     func(x *cpu.Exec, r, _, _, _ cpu.Matrix[float32]) { cpu.SpreadRows(x, r, column, flag) },
				"TransposeDense": func(x *cpu.Exec, _, _, _, tr cpu.Matrix[float32]) { cpu.TransposeDense(x, tr, perRow, flag) },
				"SparseProduct": func(x *cpu.Exec, r, _, _, _ cpu.Matrix[float32]) {
					e := cpu.Epilogue[float32]{Accumulate: flag}
					if !flag {
						e.Bias, e.Act = bias, cpu.ReLU
					}
					cpu.SparseProduct(x, r, &sparse, perRow, e)
				},
			} {
				host := []cpu.Matrix[float32]{b.random(rows, cols, 3), b.random(entries, cols, 2), b.random(rows, 1, 0), b.random(cols, rows, 1)}
				device := make([]cpu.Matrix[float32], len(host))
				for i, m := range host {
					device[i] = b.device(m)
				}
				f(b.x, device[0], device[1], device[2], device[3])
				f(b.host, host[0], host[1], host[2], host[3])
				for i := range host {
					b.same(fmt.Sprint(name, s, flag), device[i], host[i], 1e-5)
				}
				b.q.Reset()
			}
		}
	}
}

// The largest of matrices, and which it was: the first of equals, and the first NaN.
func TestLarger(t *testing.T) {
	b := newBench(t)
	for _, s := range shapes {
		var host, device []cpu.Matrix[float32]
		for range 4 {
			m := b.random(s[0], s[1], 1)
			for i, v := range m.Data {
				m.Data[i] = float32(math.Round(float64(v))) // some are equal
				if b.r.IntN(20) == 0 {
					m.Data[i] = float32(math.NaN())
				}
			}
			host, device = append(host, m), append(device, b.device(m))
		}
		n := s[0] * s[1]
		which, onDevice := make([]uint32, n), cuda.Alloc[uint32](b.q, n)
		for i := range which {
			which[i] = 9
		}
		for k := uint32(1); k < 3; k++ {
			cpu.Larger(b.x, device[0], device[k], onDevice, k)
			cpu.Larger(b.host, host[0], host[k], which, k)
		}
		b.same(fmt.Sprint("Larger", s), device[0], host[0], 0)
		for k := range uint32(4) {
			cpu.Where(b.x, device[3], device[0], onDevice, k)
			cpu.Where(b.host, host[3], host[0], which, k)
			b.same(fmt.Sprint("Where", s, k), device[3], host[3], 0)
		}
	}
}
