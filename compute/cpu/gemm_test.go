package cpu

import (
	"fmt"
	"slices"
	"testing"
)

// gemmReference computes op(A)·op(B) in float64, and |op(A)|·|op(B)|.
func gemmReference[T Float](a Matrix[T], ta bool, b Matrix[T], tb bool, m, n, k int) (c, size Matrix[float64]) {
	c, size = NewMatrix[float64](m, n), NewMatrix[float64](m, n)
	for i := range m {
		for j := range n {
			var s, z float64
			for q := range k {
				u, v := i*a.Stride+q, q*b.Stride+j
				if ta {
					u = q*a.Stride + i
				}
				if tb {
					v = j*b.Stride + q
				}
				p := float64(a.Data[u]) * float64(b.Data[v])
				s += p
				if p < 0 {
					p = -p
				}
				z += p
			}
			c.Row(i)[j], size.Row(i)[j] = s, z
		}
	}
	return c, size
}

// gemmWanted returns what dst comes to, and the size of what is summed.
func gemmWanted[T Float](a Matrix[T], ta bool, b Matrix[T], tb bool, dst Matrix[T], e Epilogue[T]) [2]Matrix[float64] {
	k := a.Cols
	if ta {
		k = a.Rows
	}
	want, size := gemmReference(a, ta, b, tb, dst.Rows, dst.Cols, k)
	for i := range dst.Rows {
		for j := range dst.Cols {
			w, z := &want.Row(i)[j], &size.Row(i)[j]
			if e.Accumulate {
				*w += float64(dst.Row(i)[j])
				*z++
			}
			if e.Bias != nil {
				*w += float64(e.Bias[j])
				*z++
			}
			if e.Act == ReLU && *w < 0 {
				*w = 0
			}
		}
	}
	return [2]Matrix[float64]{want, size}
}

// testGemm keeps in known what a product comes to and its size, which are the same for
// every Exec.
func testGemm[T Float](t *testing.T, x *Exec, tol float64, known map[string][2]Matrix[float64]) {
	r := source(1)
	shapes := [][3]int{{1, 1, 1}, {2, 3, 0}, {5, 7, 3}, {6, 16, 256}, {7, 17, 257}, {13, 47, 100}, {14, 32, 64}, {29, 65, 513},
		{1, 8, 300}, {3, 24, 31}, {100, 9, 20}, {200, 40, 33}, {301, 47, 70}, {30, 48, 65}, {20, 49, 30}, {17, 1, 9}, {12, 16, 2048}, {108, 65, 2100}, {12, 16, 8200}, {5, 33, 17000}}
	for _, s := range shapes {
		m, n, k := s[0], s[1], s[2]
		if m*n*k > largestProduct {
			continue
		}
		for form := range 3 {
			ta, tb := form == 1, form == 2
			if k > 1000 && !ta {
				continue
			}
			for variant := range 4 {
				gap := variant % 2 * 3
				a, b := random[T](r, m, k, gap), random[T](r, k, n, gap)
				if ta {
					a = random[T](r, k, m, gap)
				}
				if tb {
					b = random[T](r, n, k, gap)
				}
				dst := random[T](r, m, n, gap)
				var e Epilogue[T]
				if variant >= 1 {
					e.Bias = random[T](r, 1, n, 0).Data
				}
				e.Accumulate = variant >= 2
				if variant == 3 {
					e.Act = ReLU
				}
				name := fmt.Sprintf("%T %v ta=%v tb=%v variant %d", T(0), s, ta, tb, variant)
				if _, is := known[name]; !is {
					known[name] = gemmWanted(a, ta, b, tb, dst, e)
				}
				before := append([]T(nil), dst.Data...)
				Gemm(x, dst, a, ta, b, tb, e)
				got := NewMatrix[float64](m, n)
				for i := range m {
					for j, v := range dst.Row(i) {
						got.Row(i)[j] = float64(v)
					}
				}
				near(t, name, got, known[name][0], known[name][1], tol)
				for i := range dst.Data {
					if i%dst.Stride >= n && dst.Data[i] == dst.Data[i] != (before[i] == before[i]) {
						t.Fatalf("%s: wrote into the gap between rows", name)
					}
				}
			}
		}
	}
}

func TestGemm(t *testing.T) {
	known := map[string][2]Matrix[float64]{}
	eachExec(t, func(t *testing.T, x *Exec) {
		testGemm[float32](t, x, 1e-6, known)
		if x.Set() == Go {
			testGemm[float64](t, x, 1e-15, known)
		}
	})
}

// TestGemmRows checks that a row of A·B and A·Bᵀ has the same bits whatever the
// rows around it and the number of workers, and that Aᵀ·B has the same bits for
// any number of workers.
func TestGemmRows(t *testing.T) {
	r := source(2)
	for _, set := range sets() {
		one, two := newExec(t, set, 1), newExec(t, set, 2)
		for _, s := range [][3]int{{131, 47, 300}, {61, 33, 600}, {200, 64, 128}} {
			m, n, k := s[0], s[1], s[2]
			for _, tb := range []bool{false, true} {
				a, b := random[float32](r, m, k, 1), random[float32](r, k, n, 2)
				if tb {
					b = random[float32](r, n, k, 2)
				}
				e := Epilogue[float32]{Bias: random[float32](r, 1, n, 0).Data, Act: ReLU}
				c, d := NewMatrix[float32](m, n), NewMatrix[float32](m, n)
				Gemm(one, c, a, false, b, tb, e)
				Gemm(two, d, a, false, b, tb, e)
				sameBits(t, fmt.Sprint(set, s, " 1 and 2 workers"), c, d)
				for _, cut := range []int{1, 5, 6, 13, m - 1} {
					Gemm(two, d.View(0, cut, 0, n), a.View(0, cut, 0, k), false, b, tb, e)
					Gemm(one, d.View(cut, m, 0, n), a.View(cut, m, 0, k), false, b, tb, e)
					sameBits(t, fmt.Sprint(set, s, " cut at ", cut), c, d)
				}
			}
		}
		for _, k := range []int{100, 2047, 2048, 8192, 20000} {
			a, b := random[float32](r, k, 19, 0), random[float32](r, k, 23, 0)
			c, d := NewMatrix[float32](19, 23), NewMatrix[float32](19, 23)
			Gemm(one, c, a, true, b, false, Epilogue[float32]{})
			Gemm(two, d, a, true, b, false, Epilogue[float32]{})
			sameBits(t, fmt.Sprint(set, " split ", k), c, d)
		}
	}
}

// TestGemmTwice checks that two products at once have the bits of one after the other.
func TestGemmTwice(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		testGemmTwice[float32](t, x)
		if x.Set() == Go { // float64 has no other kernels
			testGemmTwice[float64](t, x)
		}
		if x.Set().Has(BFloat16) {
			x.SetPrecision(BFloat16)
			testGemmTwice[float32](t, x)
		}
	})
}

func testGemmTwice[T Float](t *testing.T, x *Exec) {
	r := source(90)
	for _, s := range []struct{ m, n, k1, k2 int }{
		{1, 1, 1, 1}, {15, 33, 300, 7}, {200, 47, 64, 257}, {0, 3, 2, 2}, {3, 0, 2, 2}, {5, 4, 0, 3}, {5, 4, 3, 0}, {3, 9000, 20, 30}, {2, 600, 2000, 1600},
	} {
		if s.m*s.n*(s.k1+s.k2) > largestProduct {
			continue
		}
		a1, b1, a2, b2 := random[T](r, s.m, s.k1, 3), random[T](r, s.n, s.k1, 1), random[T](r, s.m, s.k2, 0), random[T](r, s.n, s.k2, 2)
		bias, start := random[T](r, 1, s.n, 0).Data, random[T](r, s.m, s.n, 4)
		for _, e := range []Epilogue[T]{{}, {Bias: bias, Act: ReLU}, {Act: ELU, Accumulate: true}} {
			got, want := clone(start), clone(start)
			GemmAdd(x, got, a1, b1, a2, b2, e)
			Gemm(x, want, a1, false, b1, true, Epilogue[T]{Bias: e.Bias, Accumulate: e.Accumulate})
			Gemm(x, want, a2, false, b2, true, Epilogue[T]{Act: e.Act, Accumulate: true})
			sameBits(t, fmt.Sprintf("sum of %+v", s), got, want)
		}
	}
	for _, s := range []struct{ m, n1, n2, k int }{
		{5, 32, 7, 2048}, {17, 64, 64, 2500}, {1, 96, 1, 4100}, {9, 33, 32, 2100}, {9, 32, 32, 2047}, {0, 32, 32, 2100}, {9, 0, 32, 2100}, {9, 32, 0, 2100}, {3, 1024, 32, 2100}, {3, 992, 32, 2100},
	} {
		if s.m*(s.n1+s.n2)*s.k > largestProduct {
			continue
		}
		a, b1, b2 := random[T](r, s.k, s.m, 2), random[T](r, s.k, s.n1, 5), random[T](r, s.k, s.n2, 0)
		start1, start2 := random[T](r, s.m, s.n1, 1), random[T](r, s.m, s.n2, 0)
		for _, add := range [][2]bool{{}, {true, false}, {false, true}, {true, true}} {
			got1, got2, want1, want2 := clone(start1), clone(start2), clone(start1), clone(start2)
			GemmBoth(x, got1, got2, a, b1, b2, add[0], add[1])
			Gemm(x, want1, a, true, b1, false, Epilogue[T]{Accumulate: add[0]})
			Gemm(x, want2, a, true, b2, false, Epilogue[T]{Accumulate: add[1]})
			sameBits(t, fmt.Sprintf("first of %+v", s), got1, want1)
			sameBits(t, fmt.Sprintf("second of %+v", s), got2, want2)
			if s.n1 == s.n2 && add == [2]bool{} { // both into one, as of a weight that is used twice
				GemmBoth(x, got1, got1, a, b1, b2, false, true)
				Gemm(x, want1, a, true, b2, false, Epilogue[T]{Accumulate: true})
				sameBits(t, fmt.Sprintf("both of %+v", s), got1, want1)
			}
		}
	}
}

func clone[T Float](m Matrix[T]) Matrix[T] {
	m.Data = slices.Clone(m.Data)
	return m
}

func BenchmarkGemm(b *testing.B) {
	shapes := []struct {
		m, n, k int
		ta, tb  bool
	}{
		{65536, 256, 128, false, false}, {10000, 256, 602, false, false}, {1024, 47, 256, false, false},
		{128, 256, 65536, true, false}, {602, 256, 10000, true, false}, {256, 47, 1024, true, false}, {256, 256, 6000, true, false},
		{65536, 128, 256, false, true}, {10000, 602, 256, false, true}, {1024, 256, 47, false, true},
	}
	for _, s := range shapes {
		form := map[[2]bool]string{{false, false}: "NN", {true, false}: "TN", {false, true}: "NT"}[[2]bool{s.ta, s.tb}]
		for _, set := range sets() {
			for _, workers := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%dx%dx%d/%v/%d", form, s.m, s.n, s.k, set, workers), func(b *testing.B) {
					x := newExec(b, set, workers)
					r := source(3)
					am, bm := random[float32](r, s.m, s.k, 0), random[float32](r, s.k, s.n, 0)
					if s.ta {
						am = random[float32](r, s.k, s.m, 0)
					}
					if s.tb {
						bm = random[float32](r, s.n, s.k, 0)
					}
					c := NewMatrix[float32](s.m, s.n)
					Gemm(x, c, am, s.ta, bm, s.tb, Epilogue[float32]{})
					b.ReportAllocs()
					b.ResetTimer()
					for b.Loop() {
						Gemm(x, c, am, s.ta, bm, s.tb, Epilogue[float32]{})
					}
					b.ReportMetric(2*float64(s.m)*float64(s.n)*float64(s.k)*float64(b.N)/b.Elapsed().Seconds()*1e-9, "GFLOP/s")
				})
			}
		}
	}
}
