package cluster_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/training"
)

// movers are nodes that train over a set of three pieces while some come or drain.
type movers struct {
	t     *testing.T
	ctx   context.Context // of all, when one fails
	stop  context.CancelCauseFunc
	store membership.Store
	cfg   runtime.Config
	want  result // of one process
	nodes []*node
	held  []*parts.Parts
	keeps bool // checkpoints

	all     sync.WaitGroup
	trained [3][]int // epochs, by node
	spreads [3]int   // how often each agreed
}

// startMovers trains alone, and readies what nodes train, who keep checkpoints or none.
func startMovers(t *testing.T, keeps bool) *movers {
	m := &movers{t: t, keeps: keeps, cfg: spreadConfig(dividedBlocks(t, blocks(t), "contiguous", 3), "gin"), store: &faltering{MemStore: membership.NewMemStore()}}
	m.cfg.Training.Epochs, m.cfg.Training.Optimizer = 7, "adam"
	var err error
	if m.want, err = computeSet(t.Context(), m.cfg, ""); err != nil {
		t.Fatal(err)
	}
	m.ctx, m.stop = context.WithCancelCause(t.Context())
	return m
}

// come makes a node that has the files of some pieces hold its share when least nodes are there.
func (m *movers) come(name string, least int, has ...int) {
	m.t.Helper()
	dir := m.t.TempDir()
	copySet(m.t, m.cfg.Data.Path, dir, has...)
	n := enter(m.t, m.store, name, 4, least)
	for _, other := range m.nodes {
		other.plane.SetPeer(name, n.plane.Address())
		n.plane.SetPeer(other.plane.Node(), other.plane.Address())
	}
	m.nodes, m.held = append(m.nodes, n), append(m.held, n.holdParts(m.t, dir, commonOf(m.t, m.cfg.Data.Path), least))
}

// compute has a node train to its end. each hears of epochs, moved of moves before the node agrees anew.
func (m *movers) compute(i int, each func(s *parts.Spread, epoch int), moved func()) {
	held, keep := m.held[i], "" // others may come meanwhile
	if m.keeps {
		keep = m.t.TempDir()
	}
	m.all.Go(func() {
		for {
			spread, err := held.Spread(m.ctx)
			if err != nil {
				if !errors.Is(err, training.ErrDrained) {
					m.stop(err)
				}
				return
			}
			if m.spreads[i]++; len(spread.Mine()) > 0 {
				cfg := m.cfg
				cfg.Data.Path, cfg.Cluster.Spread = held.Set().Dir(), spread
				cfg.Checkpoint.Dir, cfg.Checkpoint.Resume = keep, spread.Begun() && keep != ""
				err = train(m.ctx, cfg, m.want.params, func(epoch int) {
					m.trained[i] = append(m.trained[i], epoch)
					each(spread, epoch)
				})
			}
			if err == nil {
				err = spread.Done(m.ctx)
			}
			if errors.Is(err, training.ErrMoves) {
				if err = spread.Moved(m.ctx); err == nil {
					spread.Close(nil)
					moved()
					continue
				}
			}
			if spread.Close(err); err != nil {
				m.stop(err)
			}
			return
		}
	})
}

// until waits for what is true of a node's view.
func (m *movers) until(i int, is func(v *membership.View) bool) {
	if _, err := m.nodes[i].member.Until(m.ctx, is); err != nil {
		m.stop(err)
	}
}

// end waits for all, and compares the epochs that they trained and how often they agreed.
func (m *movers) end(trained [][]int, spreads []int) {
	m.t.Helper()
	m.all.Wait()
	if err := context.Cause(m.ctx); err != nil {
		m.t.Fatal(err)
	}
	if !slices.EqualFunc(m.trained[:], trained, slices.Equal) {
		m.t.Errorf("the nodes trained the epochs %v; want %v", m.trained, trained)
	}
	if !slices.Equal(m.spreads[:], spreads) {
		m.t.Errorf("the nodes agreed %v times; want %v", m.spreads, spreads)
	}
	leaveParts(m.t, m.nodes, m.held)
	m.store.(*faltering).Close()
}

var everyEpoch = []int{0, 1, 2, 3, 4, 5, 6}

// A node that comes while two others train takes its pieces at the border of the next step, once: all go on from what was kept there, in
// a checkpoint or in memory, each step is made once, to the bits of one process, though the store fails now and then.
func TestSpreadMoves(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		m := startMovers(t, keeps)
		called, arrived := make(chan struct{}), make(chan struct{})
		start := func(i int) {
			m.compute(i, func(s *parts.Spread, epoch int) {
				if i != 0 || epoch != 2 {
					return
				}
				close(called)
				<-arrived
				m.until(i, func(*membership.View) bool { return s.Better() })
			}, func() {})
		}
		m.come("a", 2, 0, 1, 2)
		m.come("b", 2, 0, 1, 2)
		start(0)
		start(1)
		select {
		case <-called:
		case <-m.ctx.Done():
			t.Fatal(context.Cause(m.ctx))
		}
		m.come("c", 2) // which has none
		start(2)
		close(arrived)
		m.all.Wait()
		m.spreads[2] = 2 // it may come before or after the others agree
		m.end([][]int{everyEpoch, everyEpoch, {4, 5, 6}}, []int{2, 2, 2})
	}
}

// A node that drains while it trains with two others computes on until those have its piece, which they take over at the border of a step: nobody stops, each step
// is made once, to the bits of one process, and the node ends, also where it has heard of nothing before the others are done.
func TestSpreadDrains(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		for _, late := range []bool{false, true} {
			m := startMovers(t, keeps)
			for i, name := range []string{"a", "b", "c"} {
				m.come(name, 3, i)
			}
			drained := make(chan struct{})
			for i := range m.nodes {
				m.compute(i, func(s *parts.Spread, epoch int) {
					if i != 0 || epoch != 2 {
						return
					}
					close(drained)
					m.until(i, func(*membership.View) bool { return s.Better() })
				}, func() {
					switch {
					case i != 2:
					case late:
						m.until(i, func(*membership.View) bool {
							b, _ := m.nodes[i].member.Value("spread")
							return strings.Contains(string(b), `"done":true`)
						})
					default: // as a node says once others have all that it held
						m.until(i, func(v *membership.View) bool { me, _ := v.Member("c"); return me.Drain })
					}
				})
			}
			m.all.Go(func() {
				select {
				case <-drained:
				case <-m.ctx.Done():
					return
				}
				err := m.held[2].Keeper().Drain(m.ctx)
				if err == nil && !late {
					err = m.nodes[2].member.Announce(m.ctx, func(i *membership.Info) { i.Drain = true })
				}
				if err != nil {
					m.stop(err)
				}
			})
			times := []int{2, 2, 1}
			if late {
				times[2] = 2 // the second has nothing for it
			}
			m.end([][]int{everyEpoch, everyEpoch, everyEpoch[:4]}, times)
		}
	}
}

// faltering fails at every other write of who computes which piece.
type faltering struct {
	*membership.MemStore
	writes atomic.Int32
}

func (s *faltering) Commit(ctx context.Context, ifs []membership.If, do []membership.Change) (bool, int64, error) {
	if len(do) == 1 && strings.HasSuffix(do[0].Key, "/spread") && s.writes.Add(1)%2 == 1 {
		return false, 0, errors.New("the store is away")
	}
	return s.MemStore.Commit(ctx, ifs, do)
}

// train trains to parameters that are known.
func train(ctx context.Context, cfg runtime.Config, params string, each func(epoch int)) error {
	d, err := runtime.OpenDivided(ctx, cfg)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Train(ctx, func(epoch int, _, _ float64) error { each(epoch); return nil })
	if err == nil && d.ParametersSHA256() != params {
		err = errors.New("it came to other parameters than one process")
	}
	return err
}
