package cpu

// rows runs f(i) for i in [0, n), in parallel.
func (x *Exec) rows(n int, f func(i int)) {
	x.For(ceilDiv(n, rowsPerChunk), func(_, c int) {
		for i := c * rowsPerChunk; i < min(n, (c+1)*rowsPerChunk); i++ {
			f(i)
		}
	})
}

// TakeRows computes dst[i] = a[ids[i]].
func TakeRows[T Float](x *Exec, dst, a Matrix[T], ids []uint32) {
	if dst.Rows != len(ids) || dst.Cols != a.Cols {
		panic(badShapes)
	}
	if d := DeviceOf[T](x); d != nil {
		d.TakeRows(dst, a, ids)
		return
	}
	x.rows(len(ids), func(i int) { copy(dst.Row(i), a.Row(int(ids[i]))) })
}

// checkEntries panics unless a has a row for every entry that indptr counts for dst's rows.
func checkEntries[T Float](rows Matrix[T], indptr []int64, entries Matrix[T]) {
	if len(indptr) != rows.Rows+1 || indptr[0] != 0 || indptr[rows.Rows] != int64(entries.Rows) || rows.Cols != entries.Cols {
		panic(badShapes)
	}
}

// share is one over the number of row i's entries if mean, and 1.
func share[T Float](indptr []int64, i int, mean bool) T {
	if n := indptr[i+1] - indptr[i]; mean && n > 0 {
		return 1 / T(n)
	}
	return 1
}

// SumEntries computes dst[i] = the sum, or the mean, of rows [indptr[i], indptr[i+1])
// of a.
func SumEntries[T Float](x *Exec, dst Matrix[T], indptr []int64, a Matrix[T], mean bool) {
	checkEntries(dst, indptr, a)
	if d := DeviceOf[T](x); d != nil {
		d.SumEntries(dst, indptr, a, mean)
		return
	}
	x.rows(dst.Rows, func(i int) {
		d, f := dst.Row(i), share[T](indptr, i, mean)
		clear(d)
		for e := indptr[i]; e < indptr[i+1]; e++ {
			for j, v := range a.Row(int(e)) {
				d[j] += T(f * v)
			}
		}
	})
}

// SpreadEntries is SumEntries backward: it computes dst[e] = a[i], or its share of the
// mean, plus what dst held if accumulate, for e in [indptr[i], indptr[i+1]).
func SpreadEntries[T Float](x *Exec, dst Matrix[T], indptr []int64, a Matrix[T], mean, accumulate bool) {
	checkEntries(a, indptr, dst)
	if d := DeviceOf[T](x); d != nil {
		d.SpreadEntries(dst, indptr, a, mean, accumulate)
		return
	}
	x.rows(a.Rows, func(i int) {
		f := share[T](indptr, i, mean)
		for e := indptr[i]; e < indptr[i+1]; e++ {
			d := dst.Row(int(e))
			for j, v := range a.Row(i) {
				if accumulate {
					d[j] += T(f * v)
				} else {
					d[j] = f * v
				}
			}
		}
	})
}

// RowSums computes dst[i] = Σ_j a[i][j], in order.
func RowSums[T Float](x *Exec, dst []T, a Matrix[T]) {
	if len(dst) != a.Rows {
		panic(badShapes)
	}
	if d := DeviceOf[T](x); d != nil {
		d.RowSums(dst, a)
		return
	}
	x.rows(a.Rows, func(i int) {
		sum := T(0)
		for _, v := range a.Row(i) {
			sum += v
		}
		dst[i] = sum
	})
}

// SpreadRows computes dst[i][j] = a[i], plus what dst held if accumulate.
func SpreadRows[T Float](x *Exec, dst Matrix[T], a []T, accumulate bool) {
	if len(a) != dst.Rows {
		panic(badShapes)
	}
	if d := DeviceOf[T](x); d != nil {
		d.SpreadRows(dst, a, accumulate)
		return
	}
	x.rows(dst.Rows, func(i int) {
		d := dst.Row(i)
		for j := range d {
			if accumulate {
				d[j] += a[i]
			} else {
				d[j] = a[i]
			}
		}
	})
}

// Larger replaces the elements of dst that are less than those of a, unless they are NaN,
// and sets which, dense and of dst's shape, to k there. With k = 1, the first call for
// which, it sets it to 0 elsewhere.
func Larger[T Float](x *Exec, dst, a Matrix[T], which []uint32, k uint32) {
	if a.Rows != dst.Rows || a.Cols != dst.Cols || len(which) != dst.Rows*dst.Cols {
		panic(badShapes)
	}
	if d := DeviceOf[T](x); d != nil {
		d.Larger(dst, a, which, k)
		return
	}
	x.rows(dst.Rows, func(i int) {
		d, w := dst.Row(i), which[i*dst.Cols:][:dst.Cols]
		for j, v := range a.Row(i) {
			if !(v <= d[j]) && d[j] == d[j] {
				d[j], w[j] = v, k
			} else if k == 1 {
				w[j] = 0
			}
		}
	})
}

// Where computes dst = a where which, dense and of dst's shape, is k, else 0.
func Where[T Float](x *Exec, dst, a Matrix[T], which []uint32, k uint32) {
	if a.Rows != dst.Rows || a.Cols != dst.Cols || len(which) != dst.Rows*dst.Cols {
		panic(badShapes)
	}
	if d := DeviceOf[T](x); d != nil {
		d.Where(dst, a, which, k)
		return
	}
	x.rows(dst.Rows, func(i int) {
		d, w := dst.Row(i), which[i*dst.Cols:][:dst.Cols]
		for j, v := range a.Row(i) {
			d[j] = 0
			if w[j] == k {
				d[j] = v
			}
		}
	})
}
