package sampling

import "github.com/gnnactor/gnnactor/rng"

// Order returns nodes in the order in which the epoch visits them: a uniform
// permutation keyed by (seed, epoch). nodes is left alone.
func Order(nodes []uint32, seed uint64, epoch int) []uint32 {
	order := make([]uint32, len(nodes))
	copy(order, nodes)
	rng.New(seed, purposeOrder, uint64(epoch)).Shuffle(order)
	return order
}

// NumBatches returns how many batches of batchSize n seeds make; the last one
// may be smaller.
func NumBatches(n, batchSize int) int {
	return (n + batchSize - 1) / batchSize
}

// NumMicro returns how many micro-batches the batch with the given index is
// cut into: micro, or its number of seeds if that is smaller.
func NumMicro(n, batchSize, micro, batch int) int {
	size := min(batchSize, n-batch*batchSize)
	return max(1, min(micro, size))
}

// Cut returns the seeds of one micro-batch, a part of order: batches are
// consecutive runs of batchSize seeds, the last one shorter; a batch is cut
// into NumMicro consecutive parts whose sizes differ by at most one, the longer
// ones first.
func Cut(order []uint32, batchSize, micro, batch, index int) []uint32 {
	seeds := order[batch*batchSize : min((batch+1)*batchSize, len(order))]
	of := max(1, min(micro, len(seeds)))
	size, longer := len(seeds)/of, len(seeds)%of
	begin := index*size + min(index, longer)
	end := begin + size
	if index < longer {
		end++
	}
	return seeds[begin:end:end]
}
