package cpu

func (p *product[T]) kernelFor(set Set) {
	p.set, p.mr, p.nr = Go, portableRows, portableCols
}

func (p *product[T]) packFast(d []T, k0, kc, j, w int) bool { return false }

func (p *product[T]) block(w *scratch, dst Matrix[T], panels []T, i0, i1, j0, j1, k0, kc int, acc, last bool) {
	p.blockPortable(dst, panels, i0, i1, j0, j1, k0, kc, acc, last)
}

// panelOf returns n values of w's panel scratch.
func panelOf[T Float](w *scratch, n int) []T {
	if s, ok := any(&w.panel).(*[]T); ok {
		*s = grow(*s, n)
		return *s
	}
	s := any(&w.panel64).(*[]T)
	*s = grow(*s, n)
	return *s
}
