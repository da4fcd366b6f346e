package cpu

import "unsafe"

// tileFunc is a micro-kernel; see internal/asm/cpu.
type tileFunc = func(kc int, a *float32, rs, cs int, b, c *float32, ldc, w int, bias *float32, flags int, next *int64)

// tiles are the micro-kernels of one set for one height.
type tiles struct {
	rows   int
	whole  tileFunc // two vectors of columns
	part   tileFunc // the first w of two vectors
	narrow tileFunc // the first w of one vector
}

// tiling is the tiles of one set, the tallest first, and how they are laid out.
type tiling struct {
	heights []tiles
	first   []uint8 // which of them is the first of so many rows, at most two of the tallest
}

// tilingOf finds the cheapest tiles for each number of rows, tall ones first. A tile
// costs as much as one of leastRows at the least: with fewer it waits for its own sums.
func tilingOf(leastRows int, heights []tiles) tiling {
	t := tiling{heights: heights, first: make([]uint8, 2*heights[0].rows+1)}
	cost := make([]int, len(t.first))
	for left := 1; left < len(cost); left++ {
		for h := range heights {
			if rows := heights[h].rows; rows <= left {
				if c := max(rows, leastRows) + cost[left-rows]; cost[left] == 0 || c < cost[left] {
					cost[left], t.first[left] = c, uint8(h)
				}
			}
		}
	}
	return t
}

// next returns the tile for the next of left rows.
func (t *tiling) next(left int) *tiles {
	return &t.heights[t.first[min(left, len(t.first)-1)]]
}

// tall returns with how many of the tallest tiles left rows begin, up to most.
func (t *tiling) tall(left, most int) int {
	n := 0
	for rows := t.heights[0].rows; n < most && left > 0 && t.next(left).rows == rows; n++ {
		left -= rows
	}
	return n
}

var (
	tilesAVX2 = tilingOf(4, []tiles{
		{6, tile6x16AVX2, tile6x16mAVX2, tile6x8mAVX2},
		{5, tile5x16AVX2, tile5x16mAVX2, tile5x8mAVX2},
		{4, tile4x16AVX2, tile4x16mAVX2, tile4x8mAVX2},
		{3, tile3x16AVX2, tile3x16mAVX2, tile3x8mAVX2},
		{2, tile2x16AVX2, tile2x16mAVX2, tile2x8mAVX2},
		{1, tile1x16AVX2, tile1x16mAVX2, tile1x8mAVX2},
	})
	tilesAVX512 = tilingOf(4, []tiles{
		{14, tile14x32AVX512, tile14x32mAVX512, tile14x16mAVX512},
		{11, tile11x32AVX512, tile11x32mAVX512, tile11x16mAVX512},
		{8, tile8x32AVX512, tile8x32mAVX512, tile8x16mAVX512},
		{6, tile6x32AVX512, tile6x32mAVX512, tile6x16mAVX512},
		{4, tile4x32AVX512, tile4x32mAVX512, tile4x16mAVX512},
		{3, tile3x32AVX512, tile3x32mAVX512, tile3x16mAVX512},
		{2, tile2x32AVX512, tile2x32mAVX512, tile2x16mAVX512},
		{1, tile1x32AVX512, tile1x32mAVX512, tile1x16mAVX512},
	})
	// For 33 to 48 columns in all, as of 40 or 47 classes: the first w of three vectors.
	thirdsAVX512 = tilingOf(3, []tiles{
		{rows: 9, part: tile9x48mAVX512},
		{rows: 6, part: tile6x48mAVX512},
		{rows: 5, part: tile5x48mAVX512},
		{rows: 4, part: tile4x48mAVX512},
		{rows: 3, part: tile3x48mAVX512},
		{rows: 2, part: tile2x48mAVX512},
		{rows: 1, part: tile1x48mAVX512},
	})
)

// packs copy that many tiles of a transposed A.
var (
	packsAVX2   = [...]func(dst, src *float32, ld, kc int){1: pack1x6AVX2, 2: pack2x6AVX2, 4: pack4x6AVX2}
	packsAVX512 = [...]func(dst, src *float32, ld, kc int){1: pack1x14AVX512, 2: pack2x14AVX512, 4: pack4x14AVX512}
)

const (
	flagAccumulate = 1 << iota
	flagReLU
)

// kernelFor sets the register tile that set uses for elements of type T.
func (p *product[T]) kernelFor(set Set) {
	p.set, p.mr, p.nr = Go, portableRows, portableCols
	if _, ok := as32(p.a); !ok {
		return
	}
	switch set {
	case AVX2:
		p.set, p.mr, p.nr = set, 6, 16
	case AVX512:
		p.set, p.mr, p.nr = set, 14, 32
	}
}

// packFast packs op(B)[k0:k0+kc, j:j+w] in assembly, if it can, and returns how
// many columns that was.
func (p *product[T]) packFast(d []T, k0, kc, j, width int) int {
	if p.set == Go {
		return 0
	}
	if p.csb != 1 {
		return p.packTransposed(d, k0, kc, j, width)
	}
	w := width - width%p.nr
	d32, _ := as32(d[:kc*roundUp(width, p.nr)])
	b32, _ := as32(p.b[k0*p.rsb+j : (k0+kc-1)*p.rsb+j+width])
	pack, packPart := packAVX2, packPartAVX2
	if p.set == AVX512 {
		pack, packPart = packAVX512, packPartAVX512
	}
	if w < width {
		packPart(&d32[kc*w], &b32[w], 4*p.rsb, kc, width-w)
	}
	// Some panels at a time: a row is then read by the line, yet few streams
	// are written.
	const most = 2
	for n := w / p.nr; n > 0; n -= most {
		at := w - n*p.nr
		pack(&d32[kc*at], &b32[at], 4*p.rsb, kc, min(n, most))
	}
	return width
}

// packTransposed is packFast for a B that is stored transposed: eight of its rows at
// a time, and what is left of the columns and of the terms value by value.
func (p *product[T]) packTransposed(d []T, k0, kc, j, width int) int {
	d32, _ := as32(d[:kc*roundUp(width, p.nr)])
	b32, _ := as32(p.b)
	fast := kc - kc%8
	for at := 0; at < width; at += p.nr {
		panel, w := d32[kc*at:][:kc*p.nr], min(p.nr, width-at)
		jj := 0
		for ; fast > 0 && jj+8 <= w; jj += 8 {
			o := (j+at+jj)*p.csb + k0
			_ = b32[o+7*p.csb+kc-1]
			packRowsAVX2(&panel[jj], &b32[o], 4*p.nr, 4*p.csb, fast/8)
		}
		if jj > 0 && fast < kc {
			p.packValues(d[kc*at:], k0, fast, kc, j+at, 0, jj)
		}
		p.packValues(d[kc*at:], k0, 0, kc, j+at, jj, w)
		if w < p.nr {
			for k := range kc {
				clear(panel[k*p.nr+w:][:p.nr-w])
			}
		}
	}
	return width
}

// inPlace is to how many columns a product reads a transposed A where it lies:
// its lines fall into few sets of the first-level cache, so every panel of B
// reads them from the second, yet for three panels that costs less than to pack
// them.
const inPlace = 48

// packedTiles is how many tiles of a transposed A are packed at once, at most.
const packedTiles = 4

// together is how many of left rows of a transposed A are fetched at once: those that
// are packed at once, and what is left after them if that is less than two tiles.
func (p *product[T]) together(left int) int {
	if n := packedTiles * p.mr; left >= n+2*p.mr {
		return n
	}
	return left
}

// packTiles packs the next n tiles of a transposed A, which starts at a, into w.tile,
// and returns how many it packed: a power of two.
func (p *product[T]) packTiles(w *scratch, a *float32, kc, n int) int {
	w.tile = grow(w.tile, packedTiles*p.mr*kBlock)
	for n&(n-1) > 0 {
		n &= n - 1
	}
	copies := packsAVX2
	if p.set == AVX512 {
		copies = packsAVX512
	}
	copies[n](&w.tile[0], a, 4*p.csa, kc)
	return n
}

// stream is rows that the tallest AVX-512 tiles prefetch while they multiply: for
// every four terms two cache lines, along one row and then the next. Where a fetch
// holds one of the first-level cache's few buffers until it is done, as on Intel's
// processors, many at once hold up the tile's own reads.
// Its layout is known to internal/asm/cpu.
type stream struct {
	p      uintptr // the next two lines; where a row after the last would begin, in the end
	left   int     // pairs of lines to come of this row
	pairs  int     // of a row
	wrap   int     // from behind a row to the next
	budget int     // fetches of the next tile, at most
	total  int     // fetches of the tiles to come
}

// linePair is how many bytes a tile fetches at a time.
const linePair = 128

// streamOf returns the stream of rows of so many bytes, of which p is the first.
func streamOf(p *float32, rows, ld, bytes int) stream {
	at := uintptr(unsafe.Pointer(p))
	off := at % 64
	n := ceilDiv(int(off)+bytes, linePair)
	return stream{p: at - off, left: n, pairs: n, wrap: ld - linePair*n, total: rows * n}
}

// lookahead is what AVX-512 tiles prefetch of A and of B.
type lookahead struct {
	a, b, none   stream
	eachA, eachB int // fetches of a tile
}

// next returns what the next tile is to fetch: nothing, if it is none of the tallest.
func (l *lookahead) next(tallest bool) *int64 {
	s := &l.none
	switch {
	case !tallest:
	case l.a.total > 0:
		s = &l.a
	case l.b.total > 0:
		s = &l.b
	}
	s.budget = min(l.eachA+l.eachB, s.total)
	s.total -= s.budget
	return (*int64)(unsafe.Pointer(s))
}

// fetchA sets what of A the next tiles fetch, rows of it from p on.
func (l *lookahead) fetchA(p *float32, rows, ld, bytes, tiles int) {
	l.a = streamOf(p, rows, ld, bytes)
	l.eachA = ceilDiv(l.a.total, tiles)
}

// fetcher prefetches what comes next, some at a time, between AVX2 tiles. Of a
// transposed A: the rows of the next block of K, and those of B if they are yet
// to be packed. Of A as it is: the rows of the next tile.
type fetcher struct {
	a, b           unsafe.Pointer // the next lines; b nil: none of B
	lda, ldb       int            // in bytes
	aLines, bLines int
	rows           int // rows to come, or in each step
	each           int // rows in each step
	steps          int // of A as it is
}

// fetchBlock returns what prefetches op(A)[i0:i1, k0:k0+kc] and, if both, op(B)[k0:k0+kc,
// j0:j1], in the given number of steps.
func (p *product[T]) fetchBlock(i0, i1, j0, j1, k0, kc, steps int, both bool) (f fetcher) {
	if kc == 0 || p.csa == 1 {
		return f
	}
	f = fetcher{lda: 4 * p.csa, aLines: ceilDiv(i1-i0, 16), rows: kc, each: ceilDiv(kc, steps)}
	f.a = unsafe.Pointer(&p.a[i0*p.rsa+k0*p.csa])
	if both && p.csb == 1 {
		f.b, f.ldb, f.bLines = unsafe.Pointer(&p.b[k0*p.rsb+j0]), 4*p.rsb, ceilDiv(min(j1-j0, p.rsb), 16)
	}
	return f
}

// fetchTile returns what prefetches A[i:i1, k0:k0+kc], at most a tile of it, in the
// given number of steps.
func (p *product[T]) fetchTile(i, i1, k0, kc, steps int) (f fetcher) {
	if i >= i1 {
		return f
	}
	lines := ceilDiv(kc, 16)
	f = fetcher{lda: 4 * p.rsa, rows: min(p.mr, i1-i), aLines: ceilDiv(lines, steps)}
	f.steps = lines / f.aLines
	f.a = unsafe.Pointer(&p.a[i*p.rsa+k0])
	return f
}

func (f *fetcher) step() {
	if f.each == 0 {
		fetchRows((*float32)(f.a), f.lda, f.rows, f.aLines)
		if f.steps--; f.steps > 0 {
			f.a = unsafe.Add(f.a, 64*f.aLines)
		} else {
			f.rows = 0
		}
		return
	}
	n := min(f.rows, f.each)
	f.rows -= n
	fetchRows((*float32)(f.a), f.lda, n, f.aLines)
	if f.rows > 0 {
		f.a = unsafe.Add(f.a, n*f.lda)
	}
	if f.b == nil {
		return
	}
	fetchRows((*float32)(f.b), f.ldb, n, f.bLines)
	if f.rows > 0 {
		f.b = unsafe.Add(f.b, n*f.ldb)
	}
}

// block computes dst[i0:i1, j0:j1] (+)= op(A)[i0:i1, k0:k0+kc]·panels. acc says
// whether dst is added to; last, whether the epilogue follows. After it come
// next terms more, of which B is yet to be packed if both.
func (p *product[T]) block(w *scratch, dst Matrix[T], panels []T, i0, i1, j0, j1, k0, kc int, acc, last bool, next int, both bool) {
	if p.half {
		p.blockHalf(w, dst, panels, i0, i1, j0, j1, k0, kc, acc, last)
		return
	}
	if p.set == Go {
		p.blockPortable(dst, panels, i0, i1, j0, j1, k0, kc, acc, last)
		return
	}
	a, _ := as32(p.a)
	d, _ := as32(dst.Data)
	b, _ := as32(panels)
	var bias []float32
	flags := 0
	if acc {
		flags |= flagAccumulate
	}
	if last {
		bias, _ = as32(p.e.Bias)
		if p.e.Act == ReLU {
			flags |= flagReLU
		}
	}
	layout := &tilesAVX2
	if p.set == AVX512 {
		layout = &tilesAVX512
	}
	// The last values that are read and written.
	_ = a[(i1-1)*p.rsa+(k0+kc-1)*p.csa]
	_ = d[(i1-1)*dst.Stride+j1-1]
	_ = b[kc*roundUp(j1-j0, p.nr)-1]
	nr := p.nr
	thirds := p.set == AVX512 && j1-j0 > nr && j1-j0 <= nr+nr/2
	if thirds {
		layout, nr = &thirdsAVX512, nr+nr/2
	}
	np, mr := ceilDiv(j1-j0, nr), layout.heights[0].rows
	var ahead fetcher
	wide, look := p.set == AVX512, &w.look
	*look = lookahead{}
	if !wide {
		ahead = p.fetchBlock(i0, i1, j0, j1, k0+kc, next, ceilDiv(i1-i0, mr)*np, both)
	} else if pb, _ := as32(p.b); both && next > 0 && p.csb == 1 {
		look.b = streamOf(&pb[(k0+kc)*p.rsb+j0], next, 4*p.rsb, 4*min(j1-j0, p.rsb))
		look.eachB = ceilDiv(look.b.total, max(1, layout.tall(i1-i0, i1))*np)
	}
	ready, tile := 0, 0 // packed tiles of A to come, and the next one
	fetched := i0       // the rows of A before it are, behind i1 those of the next block
	for i := i0; i < i1; {
		t := layout.next(i1 - i)
		pa, rs, cs := &a[i*p.rsa+k0*p.csa], 4*p.rsa, 4*p.csa
		if p.csa != 1 && t.rows == p.mr && j1-j0 > inPlace {
			if ready == 0 {
				ready = p.packTiles(w, pa, kc, layout.tall(i1-i, packedTiles))
				tile = 0
				if at := i + ready*p.mr; wide && at >= fetched && layout.tall(i1-at, 1) > 0 {
					n := p.together(i1 - at)
					fetched = at + n
					look.fetchA(&a[at*p.rsa+k0*p.csa], kc, cs, 4*n, ready*np)
				} else if wide && next > 0 && fetched <= i1 {
					fetched = i1 + 1
					tiles := layout.tall(i1-i, i1) // to come
					look.fetchA(&a[i0*p.rsa+(k0+kc)*p.csa], next, cs, 4*p.together(i1-i0), tiles*np)
				}
			}
			pa, rs, cs = &w.tile[tile*p.mr*kBlock], 4, 4*p.mr
			tile++
			ready--
		}
		if at := i + t.rows; p.csa == 1 && !wide {
			ahead = p.fetchTile(at, i1, k0, kc, np)
		} else if p.csa == 1 && at < i1 {
			look.fetchA(&a[at*p.rsa+k0], min(mr, i1-at), rs, 4*kc, np)
		}
		pd := unsafe.Pointer(&d[i*dst.Stride+j0])
		pb := unsafe.Pointer(&b[0])
		var pbias unsafe.Pointer
		if bias != nil {
			pbias = unsafe.Pointer(&bias[j0])
		}
		for left := j1 - j0; ; left -= nr {
			f := t.whole
			if left <= nr/2 {
				f = t.narrow
			} else if left < nr || thirds {
				f = t.part
			}
			f(kc, pa, rs, cs, (*float32)(pb), (*float32)(pd), 4*dst.Stride, left, (*float32)(pbias), flags, look.next(t.rows == mr))
			if ahead.rows > 0 {
				ahead.step()
			}
			if left <= nr {
				break
			}
			pb = unsafe.Add(pb, 4*nr*kc)
			pd = unsafe.Add(pd, 4*nr)
			if pbias != nil {
				pbias = unsafe.Add(pbias, 4*nr)
			}
		}
		i += t.rows
	}
	if last && p.e.Act > ReLU {
		for i := i0; i < i1; i++ {
			activate(p.set, dst.Data[i*dst.Stride+j0:i*dst.Stride+j1], p.e.Act)
		}
	}
}
