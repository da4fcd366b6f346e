package cpu

func (t *aggregateTask[T]) fast(w *scratch, i0, i1 int) bool { return false }

func (t *backwardTask[T]) fast(w *scratch, u0, u1 int) bool { return false }
