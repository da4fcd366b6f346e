//go:build !amd64

package sampling

func prefetch8(base *int64, ids *uint32, n int) {}

func prefetch4(base *uint32, pos *int64, n int) {}

func prefetchHash(slots *uint64, ids *uint32, n int, shift uint32) {}

func prefetchLines(p *uint32, n int) {}

const simd, simd512 = false, false

func belowAVX2(dst *uint32, row *uint32, n int, k1, k2, limit uint32) int { panic("unreachable") }

func belowAVX512(dst, hash *uint32, row *uint32, n int, first, k1, k2, limit uint32) int {
	panic("unreachable")
}

func leastAVX512(pos *uint32, hash *uint32, n, k int) int { panic("unreachable") }

func leastAVX2(pos *uint32, hash *uint32, row *uint32, n, k int, k1, k2 uint32) int {
	panic("unreachable")
}

func probeAVX2(pins *uint32, used uint32, k1, k2 uint32) uint32 { panic("unreachable") }

func membersAVX2(dst *uint32, row *uint32, n int, bits *uint64, multiplier, shift uint32) int {
	panic("unreachable")
}

func placesAVX512(pos, ends *int64, keys *uint64, n int, draw uint64) { panic("unreachable") }

func mostVisitedAVX512(order, keys, visits *uint32, n int, home uint32, k int) int {
	panic("unreachable")
}

func rowEndsSSE(ends, indptr *int64, at *uint32, n int) { panic("unreachable") }

func followCMOV(at, indices *uint32, pos *int64, n int) { panic("unreachable") }
