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

	"golang.org/x/sync/errgroup"

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
	what    string // what shards are called
	waiting string // what is said when nobody holds what is asked for
	mu      sync.Mutex
	holders [][]string // by shard: who holds it, first choice first
	had     []string   // by shard: who was the last that was known to hold it
	changed chan struct{}
	told    bool // since the table changed, that a read waits for rows that nobody holds

	refresh func() // calls SetHolders if others are known to hold shards; nil: nothing else is known

	rounds, remote atomic.Int64
}

// NewStore makes a store over the shards of server and of other nodes.
func NewStore(p *dataplane.Plane, server *Server) *Store {
	return &Store{
		plane: p, server: server, m: server.m, layout: server.layout,
		holders: make([][]string, server.m.Shards()), had: make([]string, server.m.Shards()), changed: make(chan struct{}), log: slog.New(slog.DiscardHandler),
		what: "shards", waiting: "waiting for rows that no node holds: start one with --roles rows, or the data",
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
	for p, nodes := range holders {
		if len(nodes) > 0 {
			s.had[p] = nodes[0]
		}
	}
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
	l.Rows = s.m.nodeCount()
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

func (s *Store) read(ctx context.Context, r *features.Request) error {
	if d := r.Dst; d.Cols != s.layout.Cols || d.DType != s.layout.DType || (d.RowScale != nil) != s.layout.RowScaled {
		return fmt.Errorf("shard: rows of %s do not fit the table", &s.layout)
	}
	if r.Slots != nil && len(r.Slots) != len(r.IDs) {
		return fmt.Errorf("shard: %d slots are named for %d rows", len(r.Slots), len(r.IDs))
	}
	of := make([][]int, s.m.Shards()) // places in the request, by shard
	for i, v := range r.IDs {
		if int(v) >= s.m.nodeCount() || slotOf(r, i) >= r.Dst.Rows {
			return fmt.Errorf("shard: row %d to slot %d is out of range", v, slotOf(r, i))
		}
		p, _ := s.m.at(v)
		of[p] = append(of[p], i)
	}
	var shards []int
	for p, rows := range of {
		if rows != nil {
			shards = append(shards, p)
		}
	}
	return s.Reach(ctx, shards, func(p int) func() error {
		f := s.server.shard(p)
		if f == nil {
			return nil
		}
		return func() error {
			return graph.Guard(func() error { // it may lie in a file
				for _, i := range of[p] {
					_, at := s.m.at(r.IDs[i])
					copyRow(r.Dst, slotOf(r, i), f, at)
				}
				return nil
			})
		}
	}, func(ctx context.Context, node string, shards []int) error {
		rows := of[shards[0]]
		if len(shards) > 1 {
			rows = nil
			for _, p := range shards {
				rows = append(rows, of[p]...)
			}
		}
		return s.ask(ctx, r, node, rows)
	})
}

// Reach has each of some shards asked for where it lies: of those that lie in this process here returns
// what does it, of others nil; ask is called for those, once for each node that holds some of them, for all nodes at once and
// beside what is done here. What failed is asked again of other holders, and
// what nobody holds when the table changes, until ctx ends: so ask must be such that it may be repeated.
// An error of what is done here ends it.
func (s *Store) Reach(ctx context.Context, shards []int, here func(shard int) func() error, ask func(ctx context.Context, node string, shards []int) error) error {
	missing := slices.Clone(shards)
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
		rest, work := missing[:0], []func() error(nil)
		for _, p := range missing {
			if f := here(p); f != nil {
				work = append(work, f)
			} else {
				rest = append(rest, p)
			}
		}
		missing = rest
		asks, homeless := s.deal(missing, holders, failed)
		if len(missing) > 0 {
			s.rounds.Add(1)
		}
		var wg sync.WaitGroup
		for _, w := range asks {
			wg.Go(func() { w.err = pool.Recovered(func() error { return ask(ctx, w.node, w.shards) }) })
		}
		err := pool.Recovered(func() error {
			for _, f := range work {
				if err := f(); err != nil {
					return err
				}
			}
			return nil
		})
		wg.Wait()
		if err != nil {
			return err
		}
		missing = slices.Clone(homeless)
		for _, w := range asks {
			if w.err != nil {
				missing = append(missing, w.shards...)
				failed[w.node] = w.err
			}
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
		if s.refresh != nil { // who heard of holders first may ask for what is theirs before the table has it
			s.refresh()
			s.mu.Lock()
			behind := s.changed != changed
			s.mu.Unlock()
			if behind {
				continue
			}
		}
		// Nobody that is left holds them: wait until the table changes. A node
		// that could not be reached is asked again meanwhile: it may be there,
		// and then the table stays as it is.
		s.tell(homeless)
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

// tell says that somebody waits for those shards that nobody holds.
func (s *Store) tell(missing []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLost(slices.DeleteFunc(slices.Clone(missing), func(p int) bool { return len(s.holders[p]) > 0 }))
}

// tellLost says, once until the table changes, which shards are waited for, and who held them last. The lock is held.
func (s *Store) tellLost(lost []int) {
	if s.told || len(lost) == 0 {
		return
	}
	var had []string
	for _, p := range lost {
		if node := s.had[p]; node != "" && !slices.Contains(had, node) {
			had = append(had, node)
		}
	}
	slices.Sort(lost)
	s.told = true
	s.log.Warn(s.waiting, s.what, lost, "were-at", had)
}

// wanted is the shards that one node is asked for.
type wanted struct {
	node   string
	shards []int
	err    error // why it did not bring them
}

// deal divides the missing shards among nodes that hold them.
func (s *Store) deal(missing []int, holders [][]string, failed map[string]error) (asks []*wanted, homeless []int) {
	of := map[string]*wanted{}
	self := s.plane.Node()
	for _, p := range missing {
		// Replicas share the load: each asker begins elsewhere in the list.
		all, at := holders[p], ""
		for k := range all {
			node := all[(k+len(self)+int(self[len(self)-1]))%len(all)]
			if node != self && failed[node] == nil {
				at = node
				break
			}
		}
		if at == "" {
			homeless = append(homeless, p)
			continue
		}
		w := of[at]
		if w == nil {
			w = &wanted{node: at}
			of[at] = w
			asks = append(asks, w)
		}
		w.shards = append(w.shards, p)
	}
	return asks, homeless
}

// ask gets rows, which are places in the request, from a node.
func (s *Store) ask(ctx context.Context, r *features.Request, node string, all []int) error {
	row := s.layout.RowBytes()
	per := min(maxRequest/4, max(1, maxReply/max(1, row)))
	var some errgroup.Group
	for rows := range slices.Chunk(all, per) {
		some.Go(func() error {
			body := make([]byte, 0, 4*len(rows))
			for _, i := range rows {
				body = binary.LittleEndian.AppendUint32(body, r.IDs[i])
			}
			b, err := s.plane.Ask(ctx, dataplane.Call{Node: node, Method: dataplane.MethodRows, Body: [][]byte{body}, Max: len(rows) * row})
			if err == nil && len(b) != len(rows)*row {
				err = fmt.Errorf("shard: node %s answers %d rows with %d bytes", node, len(rows), len(b))
			}
			if err != nil {
				return err
			}
			for k, i := range rows {
				take(r.Dst, slotOf(r, i), b[k*row:(k+1)*row])
			}
			s.remote.Add(int64(len(rows)))
			return nil
		})
	}
	return some.Wait()
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
