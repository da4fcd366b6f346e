package actors

import "sync"

// freeList keeps buffers between uses. Credits bound how many exist.
type freeList[T any] struct {
	mu   sync.Mutex
	free []T
}

// get returns a buffer that was put, if there is one.
func (l *freeList[T]) get() (x T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.free)
	if n == 0 {
		return x, false
	}
	x = l.free[n-1]
	var zero T
	l.free[n-1] = zero
	l.free = l.free[:n-1]
	return x, true
}

func (l *freeList[T]) put(x T) {
	l.mu.Lock()
	l.free = append(l.free, x)
	l.mu.Unlock()
}

// len returns how many buffers wait.
func (l *freeList[T]) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.free)
}

// drop forgets every buffer.
func (l *freeList[T]) drop() {
	l.mu.Lock()
	l.free = nil
	l.mu.Unlock()
}
