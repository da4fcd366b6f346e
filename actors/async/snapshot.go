package async

// snapshot is a published version; its memory is used again when nobody reads it.
type snapshot struct {
	params  []float32
	readers int
}

// copy makes a snapshot of the parameters.
func (a *parameters) copy() *snapshot {
	params := a.model.Params()
	var s *snapshot
	a.mu.Lock()
	if n := len(a.free); n > 0 {
		s, a.free = a.free[n-1], a.free[:n-1]
	}
	a.mu.Unlock()
	if s == nil {
		s = &snapshot{params: make([]float32, len(params))}
	}
	copy(s.params, params)
	s.readers = 1 // the actor
	return s
}

func (a *parameters) publish(s *snapshot) {
	if old := a.now; old != nil {
		a.release(old)
	}
	a.now = s
}

func (a *parameters) release(s *snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.readers--; s.readers == 0 {
		a.free = append(a.free, s)
	}
}
