package actors

import (
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Observer is an Updater of a model with running statistics. Observe is called
// with the gradient of every micro-batch of a step, in the order of the
// micro-batches, before they are added up; it takes out what they report.
type Observer interface {
	Observe(grad []float32)
	// TakeStatistics takes out what grad reports, and appends it to b in bytes
	// for ObserveStatistics: the two are Observe for gradients that are added up
	// by several processes.
	TakeStatistics(b []byte, grad []float32) []byte
	ObserveStatistics(b []byte) error
}

// parameters owns the model's parameters: it adds up the gradients of a step,
// applies them once, and publishes the next version.
type parameters struct {
	base
	work    Work
	updater Updater
	reducer Reducer // nil: all micro-batches are computed in this process
	total   []float32
	step    int64                // the next step to be applied
	open    bool                 // version step is published
	due     bool                 // or would be, if it was known which batch it is
	placed  map[int64]int        // batches by step, of a reordered run that is shared
	got     []*messages.Gradient // of this step, by micro-batch
	missing int
	asked   []*messages.Snapshot
}

func (p *parameters) start() { p.step, p.placed = p.work.First, map[int64]int{} }

// failed implements failer: the owner may wait for a snapshot, and not yet know of the failure.
func (p *parameters) failed() { p.answer() }

func (p *parameters) receive(m any) {
	switch m := m.(type) {
	case *messages.Proceed:
		if m.Step == p.step && !p.open {
			p.publish()
		}
	case *messages.Placed:
		p.placed[m.Step] = m.Batch
		if p.due && m.Step == p.step {
			p.publish()
		}
	case *messages.Gradient:
		p.gradient(m)
	case *messages.Snapshot:
		p.asked = append(p.asked, m)
	case *done:
		p.applied(m.id, m.res.(messages.Stats))
	}
	if !p.busy() {
		p.answer()
	}
}

// publish lets the trainers compute step.
func (p *parameters) publish() {
	batch := int(p.step % p.work.Steps())
	if p.reducer != nil && p.work.Window > 1 {
		var known bool
		batch, known = p.placed[p.step]
		if p.due = !known; p.due {
			return
		}
		delete(p.placed, p.step)
	}
	p.got = p.got[:0] // which batch it is, the first gradient tells
	p.open = true
	if p.reducer != nil {
		p.got = append(p.got, make([]*messages.Gradient, p.work.numMicro(batch))...)
		for m := range p.got {
			if p.work.Mine(m, len(p.got)) {
				p.missing++
			}
		}
		if p.missing == 0 { // the others have them all; their sum is applied here too
			p.begin(sampling.ID{Phase: p.work.Phase, Epoch: int(p.step / p.work.Steps()), Batch: batch})
			return
		}
	}
	for _, t := range p.dir.consumers {
		p.send(t, &messages.Version{Step: p.step, Params: p.updater.Params()})
	}
}

func (p *parameters) gradient(g *messages.Gradient) {
	if g.Step == p.step && p.open && len(p.got) == 0 {
		p.missing = max(g.ID.Of, 1)
		p.got = append(p.got, make([]*messages.Gradient, p.missing)...)
	}
	if g.Step != p.step || !p.open || max(g.ID.Of, 1) != len(p.got) || g.ID.Micro < 0 || g.ID.Micro >= len(p.got) || p.got[g.ID.Micro] != nil || len(g.Data) != len(p.updater.Params()) {
		p.fail(g.ID, p.name, fmt.Errorf("an unexpected gradient of %d values for step %d while step %d is open", len(g.Data), g.Step, p.step))
		return
	}
	p.got[g.ID.Micro] = g
	if p.missing--; p.missing > 0 {
		return
	}
	id := g.ID
	id.Micro, id.Of = 0, 0
	p.begin(id)
}

// begin adds the gradients of a step up and applies them.
func (p *parameters) begin(id sampling.ID) {
	if p.reducer != nil {
		p.jobElsewhere(id, p.applyShared)
		return
	}
	p.job(clock.Update, id, p.apply)
}

// apply takes the running statistics out of the step's gradients, and steps.
func (p *parameters) apply() (any, error) {
	parts := make([][]float32, len(p.got))
	var stats messages.Stats
	observer, observes := p.updater.(Observer)
	for i, g := range p.got { // in the order of the micro-batches
		if observes {
			observer.Observe(g.Data)
		}
		parts[i] = g.Data
		stats.Add(g.Stats)
	}
	p.updater.Apply(parts, stats.Weight)
	return stats, nil
}

func (p *parameters) applied(id sampling.ID, s messages.Stats) {
	for _, g := range p.got {
		if g != nil { // else it was computed elsewhere
			p.freeGradients[g.From].put(g.Data)
		}
	}
	p.step++
	last := p.step%p.work.Steps() == 0
	p.open = false
	p.send(p.dir.progress, &messages.Applied{ID: id, Step: p.step - 1, Stats: s, Last: last})
	if !last && !p.ending.Load() {
		p.publish()
	}
}

// answer replies to the snapshots that were asked for.
func (p *parameters) answer() {
	for _, m := range p.asked {
		s := &messages.State{Step: p.step}
		if r, ok := p.updater.(Resident); ok {
			var err error
			if s.Params, err = r.Copy(); err != nil {
				p.fail(sampling.ID{Phase: p.work.Phase}, p.name, err)
			}
		} else {
			s.Params = slices.Clone(p.updater.Params())
		}
		m.Reply <- s
	}
	p.asked = p.asked[:0]
}
