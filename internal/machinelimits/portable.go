package machinelimits

// The loops in portable Go: what a processor without kernels of its own is
// measured with. They are no limit, since the compiler does not vectorise.

func portableFMA(sink *[16]float32) float64 {
	m, c := factors[0], factors[1]
	for range steps / callSteps {
		a := *sink
		for range callSteps / 16 {
			for i := range a {
				a[i] = a[i]*m + c
			}
		}
		*sink = a
	}
	return 2 * steps
}

func portableRead(sink *[16]float32, p []float32) {
	for ; len(p) >= 16; p = p[16:] {
		for i, v := range p[:16] {
			sink[i] += v
		}
	}
}

func portableGather(sink *[16]float32, table []float32, ids []uint32) {
	for _, id := range ids[:len(ids)-ahead] {
		portableRead(sink, table[int(id)*RowLen:][:RowLen])
	}
}

func portableCopy(dense, table []float32, ids []uint32) {
	for i, id := range ids[:len(ids)-ahead] {
		copy(dense[i*RowLen:][:RowLen], table[int(id)*RowLen:][:RowLen])
	}
}

// factors keep the sums of the multiply-adds where they are.
var factors = [2]float32{1, 1e-9}
