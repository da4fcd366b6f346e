package parts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/training"
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

// gone returns a node of the agreement that is no member any more, or has come anew; "": none. One that drains computes until others have its pieces.
func (a *agreement) gone(v *membership.View) string {
	for _, node := range a.Nodes {
		if m, ok := v.Member(node); !ok || m.Epoch != a.Epochs[node] {
			return node
		}
	}
	return ""
}

// drains reports whether a node of the agreement is on its way out.
func (a *agreement) drains(v *membership.View) bool {
	return slices.ContainsFunc(a.Nodes, func(node string) bool { m, _ := v.Member(node); return m.Drains() })
}

// Spread is what this node has of pieces that several nodes compute together. It implements training.Spread.
type Spread struct {
	*Exchange
	p        *Parts
	agreed   agreement
	revision int64
	mine     []int
	looked   *membership.View // of which better was asked
	better   bool
	cancel   context.CancelFunc
	watched  chan struct{}
}

// Mine implements training.Spread.
func (s *Spread) Mine() []int { return s.mine }

// Begun tells whether nodes had begun before with what they compute now.
func (s *Spread) Begun() bool { return s.agreed.Begun }

// Nodes says which nodes compute which pieces: the same as long as none of them is started anew. Of one that is lost a node may hear from any
// other one, so what is told of once is told of once of them.
func (s *Spread) Nodes() string { return fmt.Sprint(s.agreed.Nodes, s.agreed.Epochs) }

// Better implements training.Spread: where pieces lie now, nodes have a more even number of them each, or none of them drains. As each time the sum of
// squares is less, or nodes that drain are fewer, pieces move only so often before a node comes or goes.
func (s *Spread) Better() bool {
	v, _ := s.p.o.Member.View()
	if v == s.looked { // every step asks
		return s.better
	}
	s.looked = v
	now, ok := s.p.placed(v)
	s.better = ok && (s.agreed.drains(v) || now.unevenness() < s.agreed.unevenness()) && s.p.keeper.Dealt(v)
	return s.better
}

// Keep implements training.Spread.
func (s *Spread) Keep(state []byte) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.kept = state
}

// Kept implements training.Spread.
func (s *Spread) Kept() []byte {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.kept
}

func (a *agreement) unevenness() (sum int) {
	computes := map[string]int{}
	for _, node := range a.Nodes {
		computes[node]++
		sum += 2*computes[node] - 1 // n² is the sum of the first n odd numbers
	}
	return sum
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
// wraps ErrLost. A node that computed before has nothing to compute when all are done, or, once it drains and others have all that it held, ends with
// training.ErrDrained. The caller must Close.
func (p *Parts) Spread(ctx context.Context) (*Spread, error) {
	ctx, end := p.within(ctx)
	defer end()
	for {
		v, changed := p.o.Member.View()
		if me, in := v.Member(p.o.Plane.Node()); in && me.Drain && len(me.Shards) == 0 {
			return nil, fmt.Errorf("parts: %w", training.ErrDrained)
		}
		a, revision, err := p.agreed()
		if err != nil {
			return nil, err
		}
		mine := a.Data == p.o.Set.Fingerprint() && len(a.Nodes) == len(p.o.Set.Pieces())
		unfinished := mine && !a.Done
		if before := p.spreads.Load(); revision != before && (unfinished && a.gone(v) == "" || mine && a.Done && before != 0) {
			p.spreads.Store(revision)
			return p.spread(a, revision)
		}
		now, ok := p.placed(v)
		if !ok {
			p.keeper.TellLost(v)
		}
		// What begins waits for all that are to take part; what goes on, for nobody that it can do without.
		if ok && (unfinished || p.keeper.Dealt(v)) {
			now.Begun = unfinished
			if err := p.propose(ctx, &now, revision); err != nil {
				return nil, err
			}
		}
		if err := p.o.Member.Wait(ctx, changed, 0); err != nil {
			return nil, err
		}
	}
}

// propose writes an agreement unless there is a newer one than that of revision. A store that is away for a while is waited for.
func (p *Parts) propose(ctx context.Context, a *agreement, revision int64) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("parts: %w", err)
	}
	for {
		_, err := p.o.Member.Propose(ctx, spreadKey, revision, b)
		switch {
		case err == nil || errors.Is(err, membership.ErrStale):
			return nil
		case errors.Is(err, membership.ErrFenced) || ctx.Err() != nil || p.o.Member.Err() != nil:
			return fmt.Errorf("parts: %w", err)
		}
		p.o.Logger.Warn("who computes which piece could not be written down yet", "error", err)
		if err := p.o.Member.Wait(ctx, nil, 300*time.Millisecond); err != nil {
			return err
		}
	}
}

// placed deals the pieces evenly to nodes that hold them now; false: the next is nowhere.
func (p *Parts) placed(v *membership.View) (a agreement, ok bool) {
	a.Data, a.Epochs = p.o.Set.Fingerprint(), map[string]int64{}
	holders := make([][]int, len(p.o.Set.Pieces()))
	for k := range v.Members {
		m := &v.Members[k]
		for _, i := range m.Shards {
			if !m.Drains() && i >= 0 && i < len(holders) {
				holders[i] = append(holders[i], k)
			}
		}
	}
	for _, k := range even(holders, len(v.Members)) {
		if k < 0 {
			return a, false
		}
		m := &v.Members[k]
		a.Nodes = append(a.Nodes, m.Node)
		a.Epochs[m.Node] = m.Epoch
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

// announceEnd says that this node needs no more of the exchange.
func (s *Spread) announceEnd(ctx context.Context) error {
	return s.p.o.Member.Announce(ctx, func(i *membership.Info) { i.Spread = s.revision })
}

// ended reports whether all that compute have said so.
func (s *Spread) ended(v *membership.View) bool {
	return !slices.ContainsFunc(s.agreed.Nodes, func(node string) bool { m, _ := v.Member(node); return m.Spread != s.revision })
}

// Moved waits until all that compute have come between the same two steps, or one of them is lost: what Spread returns next has pieces
// where they lie then.
func (s *Spread) Moved(ctx context.Context) error {
	if err := s.announceEnd(ctx); err != nil {
		return err
	}
	_, err := s.p.o.Member.Until(ctx, func(v *membership.View) bool {
		_, revision, err := s.p.agreed()
		return err != nil || revision != s.revision || s.agreed.gone(v) != "" || s.ended(v)
	})
	return err
}

// Done says that this node has computed what it is to, and waits until all have. An error that wraps ErrLost: one was
// lost before; training.ErrMoves: pieces are computed by other nodes now.
func (s *Spread) Done(ctx context.Context) error {
	member := s.p.o.Member
	if err := s.announceEnd(ctx); err != nil {
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
		case a.Done: // whoever knew first may have left
			return nil
		case lost != "":
			return &Lost{Node: lost, Err: fmt.Errorf("node %s left, or was started anew, before all were done", lost)}
		case revision != s.revision:
			return training.ErrMoves
		case len(s.mine) > 0 && s.ended(v): // the others may have ended to move pieces
			a.Done = true
			return s.p.propose(ctx, &a, revision)
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
