package parts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph/store"
)

// spreadKey is where the nodes' agreement lies.
const spreadKey = "spread"

// agreement is who computes which piece. It holds as long as all of them live.
type agreement struct {
	Data   string           `json:"data"`  // fingerprint of the set
	Nodes  []string         `json:"nodes"` // of each piece
	Epochs map[string]int64 `json:"epochs"`
	Begun  bool             `json:"begun,omitempty"` // nodes had agreed before on what is not done
	Done   bool             `json:"done,omitempty"`
}

// gone returns a node of the agreement that is no member any more, or has come anew; "": none.
func (a *agreement) gone(v *membership.View) string {
	for _, node := range a.Nodes {
		if m, ok := v.Member(node); !ok || m.Epoch != a.Epochs[node] || m.Drains() {
			return node
		}
	}
	return ""
}

// Spread is what this node has of pieces that several nodes compute together. It implements training.Spread.
type Spread struct {
	*Exchange
	p        *Parts
	agreed   agreement
	revision int64
	mine     []int
	cancel   context.CancelFunc
	watched  chan struct{}
}

// Mine implements training.Spread.
func (s *Spread) Mine() []int { return s.mine }

// Begun tells whether nodes had begun before with what they compute now.
func (s *Spread) Begun() bool { return s.agreed.Begun }

// Lost says which node is lost by err, which wraps ErrLost: the same as long as that is not started anew.
func (s *Spread) Lost(err error) string {
	var lost *Lost
	if !errors.As(err, &lost) {
		return ""
	}
	return fmt.Sprintf("%s-%d", lost.Node, s.agreed.Epochs[lost.Node])
}

// Piece implements training.Spread.
func (s *Spread) Piece(i int) *store.Piece { return s.p.Piece(i) }

// agreed reads what the nodes agreed on last, and its revision.
func (p *Parts) agreed() (a agreement, revision int64, err error) {
	b, revision := p.o.Member.Value(spreadKey)
	if b != nil {
		if err = json.Unmarshal(b, &a); err != nil {
			err = fmt.Errorf("parts: who computes which piece, at revision %d: %w", revision, err)
		}
	}
	return a, revision, err
}

// Spread agrees with the other nodes on who computes which piece, by where they lie once all are somewhere, and
// opens the exchange between them. It fails what is computed as soon as one of them is gone: by an error that
// wraps ErrLost. The caller must Close.
func (p *Parts) Spread(ctx context.Context) (*Spread, error) {
	ctx, end := p.within(ctx)
	defer end()
	waiting := -1
	for {
		v, changed := p.o.Member.View()
		a, revision, err := p.agreed()
		if err != nil {
			return nil, err
		}
		unfinished := a.Data == p.o.Set.Fingerprint() && len(a.Nodes) == len(p.o.Set.Pieces()) && !a.Done
		if unfinished && a.gone(v) == "" && revision != p.spreads.Load() {
			p.spreads.Store(revision)
			return p.spread(a, revision)
		}
		now, ok := p.placed(v)
		if missing := len(now.Nodes); !ok && missing != waiting {
			waiting = missing
			p.o.Logger.Info("waiting for a node that holds a piece", "piece", missing)
		}
		if ok {
			now.Begun = unfinished
			b, err := json.Marshal(&now)
			if err == nil {
				_, err = p.o.Member.Propose(ctx, spreadKey, revision, b)
			}
			if err != nil && !errors.Is(err, membership.ErrStale) {
				return nil, fmt.Errorf("parts: %w", err)
			}
		}
		if err := p.o.Member.Wait(ctx, changed, 0); err != nil {
			return nil, err
		}
	}
}

// placed deals the pieces to nodes that hold them now, to each that with the fewest so far; false: the next is nowhere.
func (p *Parts) placed(v *membership.View) (a agreement, ok bool) {
	a.Data, a.Epochs = p.o.Set.Fingerprint(), map[string]int64{}
	computes := map[string]int{}
	for i := range p.o.Set.Pieces() {
		var best *membership.Info
		for k := range v.Members {
			m := &v.Members[k]
			if !m.Drains() && slices.Contains(m.Shards, i) && (best == nil || computes[m.Node] < computes[best.Node]) {
				best = m
			}
		}
		if best == nil {
			return a, false
		}
		computes[best.Node]++
		a.Nodes = append(a.Nodes, best.Node)
		a.Epochs[best.Node] = best.Epoch
	}
	return a, true
}

func (p *Parts) spread(a agreement, revision int64) (_ *Spread, err error) {
	s := &Spread{p: p, agreed: a, revision: revision, watched: make(chan struct{})}
	for i, node := range a.Nodes {
		if node == p.o.Plane.Node() && p.o.Set.Pieces()[i].Masters > 0 {
			s.mine = append(s.mine, i)
		}
	}
	if s.Exchange, err = p.exchanges.Open(ExchangeOptions{Name: fmt.Sprint(spreadKey, "-", revision), Nodes: a.Nodes}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.watched)
		lost := ""
		if _, err := p.o.Member.Until(ctx, func(v *membership.View) bool {
			lost = a.gone(v)
			return lost != ""
		}); err == nil {
			s.Exchange.Close(&Lost{Node: lost, Err: fmt.Errorf("node %s left, or was started anew", lost)})
		} else if ctx.Err() == nil {
			s.Exchange.Close(err)
		}
	}()
	return s, nil
}

// Done says that this node has computed what it is to, and waits until all have. An error that wraps ErrLost: one was
// lost before.
func (s *Spread) Done(ctx context.Context) error {
	member := s.p.o.Member
	if err := member.Announce(ctx, func(i *membership.Info) { i.Done = true }); err != nil {
		return err
	}
	for {
		v, changed := member.View()
		a, revision, err := s.p.agreed()
		if err != nil {
			return err
		}
		lost := s.agreed.gone(v)
		switch {
		case revision != s.revision && a.Done: // whoever knew first may have left
			return nil
		case lost != "" || revision != s.revision:
			err := member.Announce(ctx, func(i *membership.Info) { i.Done = false })
			return errors.Join(&Lost{Node: lost, Err: fmt.Errorf("node %s left, or was started anew, before all were done", lost)}, err)
		case !slices.ContainsFunc(s.agreed.Nodes, func(node string) bool { m, _ := v.Member(node); return !m.Done }):
			a.Done = true
			b, err := json.Marshal(&a)
			if err == nil {
				_, err = member.Propose(ctx, spreadKey, revision, b)
			}
			if err == nil || errors.Is(err, membership.ErrStale) {
				return nil
			}
			return fmt.Errorf("parts: %w", err)
		}
		if err := member.Wait(ctx, changed, 0); err != nil {
			return err
		}
	}
}

// Close ends the exchange, with why if it is not nil.
func (s *Spread) Close(why error) {
	s.cancel()
	<-s.watched
	s.Exchange.Close(why)
}
