package cpu

// The portable register tile.
const (
	portableRows = 2
	portableCols = 4
)

// blockPortable computes dst[i0:i1, j0:j1] (+)= op(A)[i0:i1, k0:k0+kc]·panels.
// acc says whether dst is added to; last, whether the epilogue follows.
func (p *product[T]) blockPortable(dst Matrix[T], panels []T, i0, i1, j0, j1, k0, kc int, acc, last bool) {
	for j := j0; j < j1; j += portableCols {
		w := min(portableCols, j1-j)
		b := panels[(j-j0)*kc:][:kc*portableCols]
		var bias []T
		if last && p.e.Bias != nil {
			bias = p.e.Bias[j : j+w]
		}
		for i := i0; i < i1; i += portableRows {
			var c [portableRows][portableCols]T
			second := min(i+1, i1-1)
			if p.csa == 1 {
				tileRows(&c, p.a[i*p.rsa+k0:][:kc], p.a[second*p.rsa+k0:][:kc], b)
			} else {
				tileColumns(&c, p.a, i+k0*p.csa, second+k0*p.csa, p.csa, b)
			}
			for r := range min(portableRows, i1-i) {
				o := (i+r)*dst.Stride + j
				d := dst.Data[o : o+w]
				if acc {
					for q := range d {
						d[q] += c[r][q]
					}
				} else {
					copy(d, c[r][:w])
				}
				if last {
					finish(Go, d, bias, p.e.Act)
				}
			}
		}
	}
}

// tileRows adds a0·b and a1·b to c, with b in panels of 4 columns. The
// conversions keep the compiler from fusing.
func tileRows[T Float](c *[portableRows][portableCols]T, a0, a1, b []T) {
	var c00, c01, c02, c03, c10, c11, c12, c13 T
	a1 = a1[:len(a0)]
	for k, u := range a0 {
		v := a1[k]
		r := b[4*k : 4*k+4 : 4*k+4]
		c00 += T(u * r[0])
		c01 += T(u * r[1])
		c02 += T(u * r[2])
		c03 += T(u * r[3])
		c10 += T(v * r[0])
		c11 += T(v * r[1])
		c12 += T(v * r[2])
		c13 += T(v * r[3])
	}
	c[0] = [4]T{c00, c01, c02, c03}
	c[1] = [4]T{c10, c11, c12, c13}
}

// tileColumns is tileRows for a transposed A: the values of the two rows start
// at a[o0] and a[o1] and lie stride apart.
func tileColumns[T Float](c *[portableRows][portableCols]T, a []T, o0, o1, stride int, b []T) {
	var c00, c01, c02, c03, c10, c11, c12, c13 T
	for ; len(b) >= 4; b = b[4:] {
		u, v := a[o0], a[o1]
		o0 += stride
		o1 += stride
		c00 += T(u * b[0])
		c01 += T(u * b[1])
		c02 += T(u * b[2])
		c03 += T(u * b[3])
		c10 += T(v * b[0])
		c11 += T(v * b[1])
		c12 += T(v * b[2])
		c13 += T(v * b[3])
	}
	c[0] = [4]T{c00, c01, c02, c03}
	c[1] = [4]T{c10, c11, c12, c13}
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
