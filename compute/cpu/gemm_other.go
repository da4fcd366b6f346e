//go:build !amd64

package cpu

type lookahead struct{}

func (p *product[T]) kernelFor(Set) { p.set, p.mr, p.nr = Go, portableRows, portableCols }

func (p *product[T]) packFast([]T, int, int, int, int) int { return 0 }

func (p *product[T]) block(w *scratch, dst Matrix[T], panels []T, i0, i1, j0, j1, k0, kc int, acc, last bool, _ int, _ bool) {
	if p.half {
		p.blockHalf(w, dst, panels, i0, i1, j0, j1, k0, kc, acc, last)
		return
	}
	p.blockPortable(dst, panels, i0, i1, j0, j1, k0, kc, acc, last)
}
