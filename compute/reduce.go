package compute

import "github.com/gnnactor/gnnactor/compute/cpu"

// SumTree adds the vectors of parts, all of one length, into parts[0], in a
// binary tree whose shape depends on len(parts) alone: neighbours first, then
// pairs, then fours. The other vectors are overwritten.
func SumTree(parts [][]float32) {
	sumTree(parts, func(dst, src []float32) {
		for j, v := range src {
			dst[j] += v
		}
	})
}

func sumTree(parts [][]float32, add func(dst, src []float32)) {
	for stride := 1; stride < len(parts); stride *= 2 {
		for i := 0; i+stride < len(parts); i += 2 * stride {
			add(parts[i], parts[i+stride])
		}
	}
}

// Mean returns the sum of parts, as SumTree makes it, divided by weight, in parts[0];
// with weight 0, of a subgraph that holds no training node, zeros. The vectors lie where x's
// kernels write: in the memory of its device, if it has one.
func Mean(parts [][]float32, weight float64, x *cpu.Exec) []float32 {
	row := func(s []float32) cpu.Matrix[float32] { return cpu.Dense(1, len(s), s) }
	sumTree(parts, func(dst, src []float32) { cpu.Add(x, row(dst), row(dst), row(src)) })
	if sum := row(parts[0]); weight > 0 {
		cpu.Divide(x, sum, sum, float32(weight))
	} else {
		cpu.Fill(x, sum, 0)
	}
	return parts[0]
}
