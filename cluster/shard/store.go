package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/pool"
)

// Store reads the rows of all shards. It implements features.Store.
type Store struct {
	plane  *dataplane.Plane
	server *Server // of the shards that lie here
	m      *Map
	layout features.Layout
	reads  sync.WaitGroup

	log     *slog.Logger
	mu      sync.Mutex
	holders [][]string // by shard: who holds it, first choice first
	changed chan struct{}
	told    bool // since the table changed, that a read waits for rows that nobody holds

	rounds, remote atomic.Int64
}

// NewStore makes a store over the shards of server and of other nodes.
func NewStore(p *dataplane.Plane, server *Server) *Store {
	return &Store{
		plane: p, server: server, m: server.m, layout: server.layout,
		holders: make([][]string, server.m.Shards()), changed: make(chan struct{}), log: slog.New(slog.DiscardHandler),
	}
}

// SetHolders says who holds each shard. A Read that found nobody goes on.
func (s *Store) SetHolders(holders [][]string) error {
	if len(holders) != s.m.Shards() {
		return fmt.Errorf("shard: holders of %d shards, not %d", len(holders), s.m.Shards())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders, s.told = slices.Clone(holders), false
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Stats counts, over all reads, rounds of exchange and rows that came from
// other nodes.
func (s *Store) Stats() (rounds, remote int64) { return s.rounds.Load(), s.remote.Load() }

// Layout implements features.Store.
func (s *Store) Layout() features.Layout {
	l := s.layout
	l.Rows = len(s.m.part)
	return l
}

// Close waits for the reads under way.
func (s *Store) Close() error {
	s.reads.Wait()
	return nil
}

// Read implements features.Store.
func (s *Store) Read(ctx context.Context, r features.Request, done func(error)) {
	s.reads.Go(func() { done(pool.Recovered(func() error { return s.read(ctx, &r) })) })
}

// wanted is the rows that one node is asked for: places in the request.
type wanted struct {
	node string
	rows []int
	err  error // why it did not bring them
}

func (s *Store) read(ctx context.Context, r *features.Request) error {
	if d := r.Dst; d.Cols != s.layout.Cols || d.DType != s.layout.DType || (d.RowScale != nil) != s.layout.RowScaled {
		return fmt.Errorf("shard: rows of %s do not fit the table", &s.layout)
	}
	if r.Slots != nil && len(r.Slots) != len(r.IDs) {
		return fmt.Errorf("shard: %d slots are named for %d rows", len(r.Slots), len(r.IDs))
	}
	for i, v := range r.IDs {
		if int(v) >= len(s.m.part) || slotOf(r, i) >= r.Dst.Rows {
			return fmt.Errorf("shard: row %d to slot %d is out of range", v, slotOf(r, i))
		}
	}
	missing := make([]int, len(r.IDs))
	for i := range missing {
		missing[i] = i
	}
	failed := map[string]error{} // nodes that did not answer, by the newest table
	var last chan struct{}
	for {
		s.mu.Lock()
		holders, changed := s.holders, s.changed
		s.mu.Unlock()
		if changed != last {
			clear(failed)
			last = changed
		}
		// Every time: a shard may have moved here meanwhile.
		missing = s.local(r, missing)
		if len(missing) == 0 {
			return nil
		}
		asks, homeless := s.deal(r, missing, holders, failed)
		s.rounds.Add(1)
		s.ask(ctx, r, asks)
		missing = homeless
		for _, w := range asks {
			if w.err == nil {
				continue
			}
			missing = append(missing, w.rows...)
			failed[w.node] = w.err
		}
		if len(missing) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(homeless) == 0 {
			continue // other holders may have them
		}
		// Nobody that is left holds them: wait until the table changes. A node
		// that could not be reached is asked again meanwhile: it may be there,
		// and then the table stays as it is.
		s.tell(r, homeless)
		var retry <-chan time.Time
		if len(failed) > 0 {
			retry = time.After(again)
		}
		select {
		case <-changed:
		case <-retry:
			clear(failed)
		case <-ctx.Done():
			var errs []error
			for _, err := range failed {
				errs = append(errs, err)
			}
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
}

// tell says, once until the table changes, that a read waits for rows that nobody holds.
func (s *Store) tell(r *features.Request, missing []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told {
		return
	}
	var lost []int
	for _, i := range missing {
		if part := int(s.m.part[r.IDs[i]]); len(s.holders[part]) == 0 && !slices.Contains(lost, part) {
			lost = append(lost, part)
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		s.told = true
		s.log.Warn("waiting for rows that no node holds: start one with --roles rows, or the data", "shards", lost)
	}
}

// local reads those of the missing rows that lie here, and returns the others.
func (s *Store) local(r *features.Request, missing []int) []int {
	rest := missing[:0]
	for _, i := range missing {
		v := r.IDs[i]
		f := s.server.shard(int(s.m.part[v]))
		if f == nil {
			rest = append(rest, i)
			continue
		}
		copyRow(r.Dst, slotOf(r, i), f, int(s.m.row[v]))
	}
	return rest
}

// deal divides the missing rows among nodes that hold them.
func (s *Store) deal(r *features.Request, missing []int, holders [][]string, failed map[string]error) (asks []*wanted, homeless []int) {
	of := map[string]*wanted{}
	choice := make([]*wanted, len(holders))
	self := s.plane.Node()
	for _, i := range missing {
		part := int(s.m.part[r.IDs[i]])
		w := choice[part]
		if w == nil {
			// Replicas share the load: each asker begins elsewhere in the list.
			all := holders[part]
			for k := range all {
				node := all[(k+len(self)+int(self[len(self)-1]))%len(all)]
				if node != self && failed[node] == nil {
					if w = of[node]; w == nil {
						w = &wanted{node: node}
						of[node] = w
						asks = append(asks, w)
					}
					break
				}
			}
			if w == nil {
				homeless = append(homeless, i)
				continue
			}
			choice[part] = w
		}
		w.rows = append(w.rows, i)
	}
	return asks, homeless
}

// ask gets the rows of all asks at once.
func (s *Store) ask(ctx context.Context, r *features.Request, asks []*wanted) {
	var wg sync.WaitGroup
	row := s.layout.RowBytes()
	per := min(maxRequest/4, max(1, maxReply/max(1, row)))
	for _, w := range asks {
		var mu sync.Mutex
		for rows := range slices.Chunk(w.rows, per) {
			wg.Go(func() {
				body := make([]byte, 0, 4*len(rows))
				for _, i := range rows {
					body = binary.LittleEndian.AppendUint32(body, r.IDs[i])
				}
				b, err := s.plane.Ask(ctx, dataplane.Call{Node: w.node, Method: dataplane.MethodRows, Body: [][]byte{body}, Max: len(rows) * row})
				if err == nil && len(b) != len(rows)*row {
					err = fmt.Errorf("shard: node %s answers %d rows with %d bytes", w.node, len(rows), len(b))
				}
				if err != nil {
					mu.Lock()
					w.err = err
					mu.Unlock()
					return
				}
				for k, i := range rows {
					take(r.Dst, slotOf(r, i), b[k*row:(k+1)*row])
				}
				s.remote.Add(int64(len(rows)))
			})
		}
	}
	wg.Wait()
}

func slotOf(r *features.Request, i int) int {
	if r.Slots == nil {
		return i
	}
	return int(r.Slots[i])
}

// copyRow copies row i of src to row slot of dst.
func copyRow(dst *graph.Features, slot int, src *graph.Features, i int) {
	n := src.Cols * src.DType.Size()
	copy(dst.Data[slot*dst.Stride:slot*dst.Stride+n], src.Data[i*src.Stride:])
	if src.RowScale != nil {
		dst.RowScale[slot] = src.RowScale[i]
	}
}

// take puts a row that put wrote into row slot of dst.
func take(dst *graph.Features, slot int, b []byte) {
	n := dst.Cols * dst.DType.Size()
	copy(dst.Data[slot*dst.Stride:slot*dst.Stride+n], b)
	if dst.RowScale != nil {
		dst.RowScale[slot] = math.Float32frombits(binary.LittleEndian.Uint32(b[n:]))
	}
}

func putScale(b []byte, s float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(s)) }
