package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Owners implements training.Parts. It is called once.
func (p *Parts) Owners(ctx context.Context, spec sampling.Spec, seed uint64) (sampling.Owners, error) {
	d, err := sampling.NewDrawers(ctx, spec, seed, p.o.Set.Borders(), nil)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(&spec)
	if err != nil {
		return nil, fmt.Errorf("parts: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(text, " %d %s", seed, p.o.Set.Fingerprint()))
	drawn := hex.EncodeToString(sum[:drawnBytes])
	err = func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drawers, p.drawn = d, drawn
		for i := range p.open {
			if err := p.add(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		return nil, err
	}
	return &owners{p, d, drawn}, d.Gather(ctx, func(ctx context.Context, what string) ([][]byte, error) {
		return p.columns(ctx, columnOf{What: what, Drawn: drawn})
	})
}

// owners ask the nodes that hold pieces.
type owners struct {
	p     *Parts
	here  *sampling.Drawers
	drawn string
}

// Here implements sampling.Owners.
func (o *owners) Here() *sampling.Drawers { return o.here }

// drawnBytes is how much of a hash names what is drawn.
const drawnBytes = 8

// drawersOf returns those that draw here, for what has the given name.
func (p *Parts) drawersOf(drawn string) (*sampling.Drawers, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.drawers == nil:
		return nil, fmt.Errorf("parts: this node does not draw yet")
	case drawn != p.drawn:
		return nil, fmt.Errorf("parts: this node draws for a run of other settings or data; start all nodes with the same --sampler-options, and one version of gnnactor")
	}
	return p.drawers, nil
}

// Limits of one exchange: rows that are asked for, and bytes of answers.
const (
	maxRows    = 1 << 19
	maxAnswers = 1 << 30
)

// Draw implements sampling.Owners.
func (o *owners) Draw(ctx context.Context, asks []sampling.Ask, answers []sampling.Answer) error {
	ctx, end := o.p.within(ctx)
	defer end()
	of, owner := map[int]int{}, make([]int, len(asks))
	for i := range asks {
		of[asks[i].Owner], owner[i] = i, asks[i].Owner
	}
	return o.p.keeper.Store().Reach(ctx, owner, func(piece int) func() error {
		if !o.here.Has(piece) {
			return nil
		}
		i := of[piece]
		return func() error { return o.here.Draw(ctx, asks[i:i+1], answers[i:i+1]) }
	}, func(ctx context.Context, node string, some []int) error {
		var q []sampling.Ask
		var a []*sampling.Answer
		rows := 0
		flush := func() error {
			err := o.ask(ctx, node, q, a)
			q, a, rows = q[:0], a[:0], 0
			return err
		}
		for _, piece := range some {
			i := of[piece]
			to := &answers[i]
			if n := len(asks[i].Nodes); rows > 0 && rows+n > maxRows {
				if err := flush(); err != nil {
					return err
				}
			}
			if len(asks[i].Nodes) > maxRows {
				if err := o.long(ctx, node, asks[i], to); err != nil {
					return err
				}
				continue
			}
			q, a, rows = append(q, asks[i]), append(a, to), rows+len(asks[i].Nodes)
		}
		return flush()
	})
}

// long asks for the rows of a question that is too long for one exchange.
func (o *owners) long(ctx context.Context, node string, q sampling.Ask, to *sampling.Answer) error {
	*to = sampling.Answer{}
	for nodes, beside := q.Nodes, q.Beside; len(nodes) > 0; {
		n := min(maxRows, len(nodes))
		q.Nodes, nodes = nodes[:n], nodes[n:]
		if len(beside) > 0 {
			q.Beside, beside = beside[:n], beside[n:]
		}
		var some sampling.Answer
		if err := o.ask(ctx, node, []sampling.Ask{q}, []*sampling.Answer{&some}); err != nil {
			return err
		}
		to.Counts, to.Sources, to.EdgeIDs = append(to.Counts, some.Counts...), append(to.Sources, some.Sources...), append(to.EdgeIDs, some.EdgeIDs...)
		to.Degrees, to.Weights = append(to.Degrees, some.Degrees...), append(to.Weights, some.Weights...)
	}
	return nil
}

func (o *owners) ask(ctx context.Context, node string, q []sampling.Ask, a []*sampling.Answer) error {
	if len(q) == 0 {
		return nil
	}
	b, err := o.p.o.Plane.Ask(ctx, dataplane.Call{
		Node: node, Method: dataplane.MethodDraw, Body: [][]byte{[]byte(o.drawn), messages.AppendAsks(nil, q, o.here.Borders())}, Max: maxAnswers,
	})
	if err != nil {
		return err
	}
	rows := make([]int, len(q))
	for i := range q {
		rows[i] = len(q[i].Nodes)
	}
	return messages.ReadAnswers(b, a, rows, o.here.Borders().Nodes())
}

// Draw answers another node's questions: it handles dataplane.MethodDraw.
func (p *Parts) Draw(ctx context.Context, r *dataplane.Request) (dataplane.Reply, error) {
	n := min(len(r.Body), 2*drawnBytes)
	d, err := p.drawersOf(string(r.Body[:n]))
	if err != nil {
		return dataplane.Reply{}, err
	}
	asks, err := messages.ReadAsks(r.Body[n:], d.Borders())
	if err != nil {
		return dataplane.Reply{}, err
	}
	answers := make([]sampling.Answer, len(asks))
	if err := d.Draw(ctx, asks, answers); err != nil {
		return dataplane.Reply{}, err
	}
	return dataplane.Reply{Data: [][]byte{messages.AppendAnswers(nil, answers, d.Borders().Nodes())}}, nil
}
