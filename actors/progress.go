package actors

import "github.com/gnnactor/gnnactor/messages"

// progress passes on what a run's owner wants to know. What it holds is
// bounded: between two epochs the run waits for its owner.
type progress struct {
	base
	out *outbox
}

func (p *progress) receive(m any) {
	switch m := m.(type) {
	case *messages.Applied:
		p.out.put(m)
	case *messages.Failed:
		p.out.put(m)
	}
}
