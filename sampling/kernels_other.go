//go:build !amd64

package sampling

func prefetch8(base *int64, ids *uint32, n int) {}

func prefetch4(base *uint32, pos *int64, n int) {}

func prefetchHash(slots *uint64, ids *uint32, n int, shift uint32) {}
