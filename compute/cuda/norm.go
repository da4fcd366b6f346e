//go:build linux && (amd64 || arm64) && !nogpu

package cuda

// layerNorm is the kernels' LayerNorm.
type layerNorm struct {
	dst, a, dy                   uintptr
	dstStride, aStride, dyStride int64
	gamma, beta, mean, rstd      uintptr
	terms                        uintptr
	termsStride                  int64
	eps                          float64
	rows, cols                   int32
}

// layerRows is how many rows a thread block of a layer norm makes.
const layerRows = 32

// LayerNorm is cpu's.
func (q *Queue) LayerNorm(dst, a matrix, gamma, beta []float32, eps float64, mean, rstd []float32) {
	if a.Rows == 0 {
		return
	}
	p := layerNorm{
		dst: result(q, dst.Data), dstStride: int64(dst.Stride), a: of(q, a.Data), aStride: int64(a.Stride),
		gamma: of(q, gamma), beta: of(q, beta), mean: result(q, mean), rstd: result(q, rstd), eps: eps, rows: int32(a.Rows), cols: int32(a.Cols),
	}
	q.run("layer_norm", (a.Rows+layerRows-1)/layerRows, 1, 256, words(&p))
}

// LayerNormBackward is cpu's.
func (q *Queue) LayerNormBackward(da, dy, a matrix, gamma, mean, rstd []float32, terms matrix) {
	if a.Rows == 0 || a.Cols == 0 {
		return
	}
	p := layerNorm{
		dst: result(q, da.Data), dstStride: int64(da.Stride), a: of(q, a.Data), aStride: int64(a.Stride), dy: of(q, dy.Data), dyStride: int64(dy.Stride),
		gamma: of(q, gamma), mean: of(q, mean), rstd: of(q, rstd), terms: result(q, terms.Data), termsStride: int64(terms.Stride),
		rows: int32(a.Rows), cols: int32(a.Cols),
	}
	q.run("layer_norm_backward", (a.Rows+layerRows-1)/layerRows, 1, 256, words(&p))
}

// columns is the kernels' Columns.
type columns struct {
	a, dy               uintptr
	aStride, dyStride   int64
	parts               uintptr
	gamma, beta         uintptr
	meanIn, varianceIn  uintptr
	mean, variance      uintptr
	dgamma, dbeta       uintptr
	scale, slope, shift uintptr
	dst                 uintptr
	dstStride           int64
	eps                 float64
	rows, cols          int32
}

// normRows is how many rows make a part of a sum over rows, as in compute/cpu.
const normRows = 256

// overColumns runs kernels that have a thread for each column, and first, if it is
// named, one that has a thread for each column of each part of the rows.
func (q *Queue) overColumns(first, then string, p *columns) {
	n := 64 // threads of a block
	for n < 256 && n < int(p.cols) {
		n *= 2
	}
	tiles := (int(p.cols) + n - 1) / n
	if first != "" && p.rows > 0 {
		q.run(first, (int(p.rows)+normRows-1)/normRows, tiles, n, words(p))
	}
	q.run(then, tiles, 1, n, words(p))
}

// columnScratch makes room for the parts of p and for three coefficients of its columns.
func (q *Queue) columnScratch(p *columns) {
	n, parts := uintptr(4*p.cols), (int(p.rows)+normRows-1)/normRows
	p.scale = q.scratch(int(n) * (3 + 2*parts))
	p.slope, p.shift, p.parts = p.scale+n, p.scale+2*n, p.scale+3*n
}

// Moments is cpu's.
func (q *Queue) Moments(a matrix, mean, variance []float32) {
	if a.Cols == 0 {
		return
	}
	p := columns{a: of(q, a.Data), aStride: int64(a.Stride), mean: result(q, mean), variance: result(q, variance), rows: int32(a.Rows), cols: int32(a.Cols)}
	q.columnScratch(&p)
	q.overColumns("moments_parts", "moments_join", &p)
}

// BatchNorm is cpu's.
func (q *Queue) BatchNorm(dst, a matrix, gamma, beta []float32, eps float64, mean, variance []float32) {
	if a.Rows == 0 || a.Cols == 0 {
		return
	}
	p := columns{
		a: of(q, a.Data), aStride: int64(a.Stride), gamma: of(q, gamma), beta: of(q, beta), meanIn: of(q, mean), varianceIn: of(q, variance),
		dst: result(q, dst.Data), dstStride: int64(dst.Stride), eps: eps, rows: int32(a.Rows), cols: int32(a.Cols),
	}
	q.columnScratch(&p)
	q.overColumns("", "batch_norm_columns", &p)
	q.run("batch_norm", blocks(a.Rows*a.Cols), 1, threads, words(&p))
}

// BatchNormBackward is cpu's.
func (q *Queue) BatchNormBackward(da, dy, a matrix, gamma []float32, eps float64, mean, variance, dgamma, dbeta []float32) {
	if a.Cols == 0 {
		return
	}
	p := columns{
		a: of(q, a.Data), aStride: int64(a.Stride), dy: of(q, dy.Data), dyStride: int64(dy.Stride), gamma: of(q, gamma), meanIn: of(q, mean), varianceIn: of(q, variance),
		dgamma: result(q, dgamma), dbeta: result(q, dbeta), dst: result(q, da.Data), dstStride: int64(da.Stride), eps: eps, rows: int32(a.Rows), cols: int32(a.Cols),
	}
	q.columnScratch(&p)
	q.overColumns("batch_norm_parts", "batch_norm_join", &p)
	if p.dst != 0 && a.Rows > 0 {
		q.run("batch_norm", blocks(a.Rows*a.Cols), 1, threads, words(&p))
	}
}
