package actors

import (
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Work says which batches a pipeline makes, in which order: a pure function of
// its fields.
type Work struct {
	Phase     string   // names the batches: "train"
	Seed      uint64   // keys the order and every draw
	Nodes     []uint32 // seed nodes of an epoch
	BatchSize int      // seeds of a global batch
	Micro     int      // micro-batches of a global batch
	Batches   int      // of an epoch, of a sampler that chooses their seeds itself; 0: as Nodes make them
	First     int64    // the first step that is made: epoch First/Steps(), batch First%Steps()
	Epochs    int      // epochs are numbered [0, Epochs)
	InOrder   bool     // keep the order of Nodes instead of shuffling every epoch

	// Mine says which micro-batches of a step this process samples and computes; nil: all.
	// The others are other processes' (Config.Reducer).
	Mine func(micro, of int) bool

	// Window is how many global batches are reordered together; 0 and 1: none.
	// After is the index of the batch that was computed last before the window
	// of First; it is used if that window is not the first of its epoch.
	Window, After int
}

// Steps returns the number of global batches, and so of steps, of an epoch.
func (w *Work) Steps() int64 {
	if w.Batches > 0 {
		return int64(w.Batches)
	}
	return int64(sampling.NumBatches(len(w.Nodes), w.BatchSize))
}

// cut returns the seeds of a micro-batch, and how many of them its batch has.
func (w *Work) cut(order []uint32, batch, micro int) (seeds []uint32, of int) {
	if w.Batches > 0 {
		return nil, max(1, w.Micro)
	}
	return sampling.Cut(order, w.BatchSize, w.Micro, batch, micro), sampling.NumMicro(len(order), w.BatchSize, w.Micro, batch)
}

// numMicro returns how many micro-batches the batch of an index has.
func (w *Work) numMicro(batch int) int {
	if w.Batches > 0 {
		return max(1, w.Micro)
	}
	return sampling.NumMicro(len(w.Nodes), w.BatchSize, w.Micro, batch)
}

// Own returns how many micro-batches of a step this process computes.
func (w *Work) Own(step int64) int {
	return w.ownOf(int(step % max(w.Steps(), 1)))
}

// ownOf is Own for the step that computes the batch of an index.
func (w *Work) ownOf(batch int) int {
	of, own := w.numMicro(batch), 0
	for m := range of {
		if w.mine(m, of) {
			own++
		}
	}
	return own
}

// mine reports whether this process computes a micro-batch.
func (w *Work) mine(micro, of int) bool { return w.Mine == nil || w.Mine(micro, of) }

// due returns the first micro-batch, at or after one, that this process
// computes, in a run that is not reordered.
func (w *Work) due(at position) position {
	if w.Mine == nil {
		return at
	}
	for steps := w.Steps(); at.step < int64(w.Epochs)*steps; at = (position{step: at.step + 1}) {
		for of := w.numMicro(int(at.step % steps)); at.micro < of; at.micro++ {
			if w.Mine(at.micro, of) {
				return at
			}
		}
	}
	return at
}

// windowBegin returns the first step of the window of step.
func (w *Work) windowBegin(step int64) int64 {
	if w.Window <= 1 || w.Steps() == 0 {
		return step
	}
	return step - step%w.Steps()%int64(w.Window)
}

// windowSize returns how many batches the window has that begins at step begin.
func (w *Work) windowSize(begin int64) int {
	return int(min(int64(w.Window), w.Steps()-begin%w.Steps()))
}

// NextAfter returns what After has to be, for a run that goes on after step,
// when that step computed the batch of the given index; now is After so far.
func (w *Work) NextAfter(step int64, batch, now int) int {
	if w.Window > 1 && w.windowBegin(step+1) == step+1 {
		return batch
	}
	return now
}

// source hands out seeds, in the order of the batches, to whoever has credit.
type source struct {
	base
	work        Work
	begin       int64 // the first step of the first window
	step        int64 // of the next micro-batch
	micro       int
	handed      bool             // something was
	epochOrders map[int][]uint32 // of the epochs that are due
	waiting     []int            // samplers that granted credit, first come first served

	late  []Late  // the trainers, if they are dealt steps
	dealt []dealt // of them, those whose sampler has not been told
}

func (s *source) start() {
	s.epochOrders = map[int][]uint32{}
	s.step = s.work.windowBegin(s.work.First)
	s.begin = s.step
	if s.work.Window > 1 && s.work.Steps() > 0 && s.step%s.work.Steps() != 0 {
		s.step-- // the batch that reorder goes on from
	}
}

// prepare draws the order of an epoch.
func (s *source) prepare(epoch int) {
	if epoch >= s.work.Epochs {
		return
	}
	w := s.work
	s.job(clock.Sample, sampling.ID{Phase: w.Phase, Epoch: epoch}, func() (any, error) {
		if w.InOrder {
			return w.Nodes, nil
		}
		return sampling.Order(w.Nodes, w.Seed, epoch), nil
	})
}

func (s *source) receive(m any) {
	switch m := m.(type) {
	case *begin:
		if s.work.Steps() > 0 {
			s.prepare(int(s.step / s.work.Steps()))
		}
	case *messages.Credit:
		for range m.N {
			if s.late != nil {
				s.deal(m.From)
				continue
			}
			s.waiting = append(s.waiting, m.From)
		}
	case *done:
		if d, ok := m.res.(dealt); ok {
			s.dealt = append(s.dealt, d)
		} else {
			s.epochOrders[m.id.Epoch] = m.res.([]uint32)
		}
	}
	for len(s.dealt) > 0 && s.hand(s.dealt[0]) {
		s.dealt = s.dealt[1:]
	}
	for len(s.waiting) > 0 && s.next(s.waiting[0]) {
		s.waiting = s.waiting[1:]
	}
}

// next sends the next micro-batch's seeds to sampler i, if they are known.
func (s *source) next(i int) bool {
	w := &s.work
	steps := w.Steps()
	if steps == 0 {
		return false
	}
	for {
		epoch, batch := int(s.step/steps), int(s.step%steps)
		if s.step < s.begin {
			batch = w.After
		}
		order, ok := s.epochOrders[epoch]
		if !ok {
			return false
		}
		if s.micro == 0 && (s.step%steps == 0 || !s.handed) {
			s.handed = true
			delete(s.epochOrders, epoch-1)
			s.prepare(epoch + 1)
		}
		micro, step, of := s.micro, s.step, w.numMicro(batch)
		if s.micro++; s.micro == of {
			s.step, s.micro = s.step+1, 0
		}
		if !w.mine(micro, of) {
			continue
		}
		s.seeds(i, order, epoch, batch, micro, step)
		return true
	}
}

// seeds sends sampler i those of a micro-batch.
func (s *source) seeds(i int, order []uint32, epoch, batch, micro int, step int64) {
	seeds, of := s.work.cut(order, batch, micro)
	s.send(s.dir.samplers[i], &messages.Seeds{ID: sampling.ID{Phase: s.work.Phase, Epoch: epoch, Batch: batch, Micro: micro, Of: of}, Step: step, Seeds: seeds})
}
