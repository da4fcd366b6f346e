//go:build !amd64

package cpu

func (t *elementTask[T]) fast([]T, []T, []T) bool { return false }

func (t *dropoutTask[T]) fast([]T, []T, uint64, uint32, T) bool { return false }

func (t *sumsTask[T]) fast(*scratch, []T, int, int) bool { return false }

func (t *adamTask[T]) fast([]T, []T, []T, []T) bool { return false }
