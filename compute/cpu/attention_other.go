//go:build !amd64

package cpu

func (t *attentionTask[T]) fastRows(*scratch, int, int) bool { return false }

func (t *attentionTask[T]) fastScores(*scratch, int) bool { return false }

func (t *attentionTask[T]) fastDots(*scratch, int) bool { return false }

func (t *attentionTask[T]) fastDynamic(*scratch, int) bool { return false }

func (t *attentionTask[T]) fastGradients(*scratch, int, []T) bool { return false }

func (t *attentionTask[T]) fastSoftmax(int) bool { return false }

func (t *attentionTask[T]) fastSoftmaxBackward(int) bool { return false }
