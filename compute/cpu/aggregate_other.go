//go:build !amd64

package cpu

func (t *aggregateTask[T]) fast(*scratch, int, int) bool { return false }

func (t *backwardTask[T]) fast(*scratch, int, int) bool { return false }

func (t *gatherTask[T]) fast(*scratch, int, int) bool { return false }
