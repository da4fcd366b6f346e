//go:build !linux

package sampling

func adviseHuge[T any]([]T) {}
