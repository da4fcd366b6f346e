//go:build !amd64

package cpu

func squaresFast[T Float](Set, []T, Matrix[T], []T) bool { return false }

func dotsFast[T Float](Set, []T, []T, Matrix[T], Matrix[T], []T) bool { return false }

func normalizeFast[T Float](Set, []T, []T, []T, []T, []T) bool { return false }

func normalizeBackwardFast[T Float](Set, []T, []T, []T, []T, []T, []T, []T) bool { return false }
