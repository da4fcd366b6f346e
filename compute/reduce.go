package compute

// SumTree adds the vectors of parts, all of one length, into parts[0], in a
// binary tree whose shape depends on len(parts) alone: neighbours first, then
// pairs, then fours. The other vectors are overwritten.
func SumTree(parts [][]float32) {
	for stride := 1; stride < len(parts); stride *= 2 {
		for i := 0; i+stride < len(parts); i += 2 * stride {
			dst, src := parts[i], parts[i+stride]
			for j, v := range src {
				dst[j] += v
			}
		}
	}
}

// Divide divides every value of x by w, in place.
func Divide(x []float32, w float32) {
	for j := range x {
		x[j] /= w
	}
}
