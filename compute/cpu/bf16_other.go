//go:build !amd64

package cpu

// Sets other than Go are not to be had here.

func hasBFloat16() bool { return false }

func fastTile(int, []uint32, []uint32, []float32, int, bool) {}

func fastRows([]uint32, []float32, []float32) {}

func fastPairs([]uint32, []float32) int { return 0 }
