package actors

import (
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
)

// trainer computes the gradients of micro-batches with the version of the
// parameters that their step asks for. It is the compute actor.
type trainer struct {
	base
	index   int
	seed    uint64
	worker  Gradienter
	updater Updater
	version *messages.Version
	pending map[int64][]*messages.Loaded // by step; bounded by the samplers' credits
	tune    *messages.Tune               // that the worker has not been told of; nil: none
}

func (t *trainer) start() { t.pending = map[int64][]*messages.Loaded{} }

func (t *trainer) receive(m any) {
	switch m := m.(type) {
	case *messages.Sampled:
		t.pending[m.Step] = append(t.pending[m.Step], &messages.Loaded{Step: m.Step, From: m.From, Batch: m.Batch})
	case *messages.Loaded:
		t.pending[m.Step] = append(t.pending[m.Step], m)
	case *messages.Version:
		t.version = m
	case *messages.Tune:
		t.tune = m
	case *done:
		r := m.res.(*computed)
		t.send(t.dir.parameters, r.gradient)
		t.released(r.input, t.index)
	}
	t.next()
}

// computed is a job's result: the gradient, and the batch to release.
type computed struct {
	gradient *messages.Gradient
	input    *messages.Loaded
}

func (t *trainer) next() {
	if t.busy() || t.version == nil || t.ending.Load() {
		return
	}
	v := t.version
	due := t.pending[v.Step]
	if len(due) == 0 {
		return
	}
	in := due[0]
	if len(due) == 1 {
		delete(t.pending, v.Step)
	} else {
		t.pending[v.Step] = due[1:]
	}
	if w, ok := t.worker.(Tuned); ok && t.tune != nil {
		w.Tune(t.tune.Threads, t.tune.Copied)
	}
	t.tune = nil
	t.job(clock.Compute, in.Batch.ID, func() (any, error) {
		grad, ok := t.freeGradients[t.index].get()
		if !ok {
			t.gradients.Add(1)
			if r, ok := t.updater.(Resident); ok {
				grad = r.NewGradient(t.index)
			} else {
				grad = make([]float32, len(v.Params))
			}
		}
		stats, err := t.worker.Gradient(grad, v.Params, in.Batch, Rows{in.Slots, in.X}, Key(t.seed, in.Batch.ID))
		if err != nil {
			return nil, err
		}
		g := &messages.Gradient{ID: in.Batch.ID, Step: v.Step, From: t.index, Stats: stats, Data: grad}
		return &computed{g, in}, nil
	})
}
