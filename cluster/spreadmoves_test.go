package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/training"
)

// A node that comes while two others train takes its pieces at the border of the next step, once: all go on from what was kept there, each
// step is made once, to the bits of one process, though the store fails now and then. Where nothing is kept no piece moves, as training would begin anew.
func TestSpreadMoves(t *testing.T) {
	cfg := spreadConfig(dividedBlocks(t, blocks(t), "contiguous", 3), "gin")
	cfg.Training.Epochs, cfg.Training.Optimizer = 7, "adam"
	want, err := computeSet(t.Context(), cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, keeps := range []bool{true, false} {
		s := &faltering{MemStore: membership.NewMemStore()}
		var nodes []*node
		var held []*parts.Parts
		come := func(name string) {
			dir := t.TempDir()
			for _, f := range pieces.Files() {
				b, err := os.ReadFile(filepath.Join(cfg.Data.Path, f))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, f), b, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for k := 0; k < 3 && name != "c"; k++ { // which has none
				f := pieces.PieceName(k)
				if err := os.CopyFS(filepath.Join(dir, f), os.DirFS(filepath.Join(cfg.Data.Path, f))); err != nil {
					t.Fatal(err)
				}
			}
			n := enter(t, s, name, 4, 2)
			for _, other := range nodes {
				other.plane.SetPeer(name, n.plane.Address())
				n.plane.SetPeer(other.plane.Node(), other.plane.Address())
			}
			nodes, held = append(nodes, n), append(held, n.holdParts(t, dir, commonOf(t, cfg.Data.Path), 2))
		}
		ctx, stop := context.WithCancelCause(t.Context()) // of all, when one fails
		called, arrived := make(chan struct{}), make(chan struct{})
		const at = 2 // the epoch after which c comes
		var all sync.WaitGroup
		trained, spreads := make([][]int, 3), make([]int, 3)
		compute := func(i int) {
			n, p, keep := nodes[i], held[i], ""
			if keeps {
				keep = t.TempDir()
			}
			all.Go(func() {
				for {
					spread, err := p.Spread(ctx)
					if err != nil {
						stop(err)
						return
					}
					if spreads[i]++; len(spread.Mine()) > 0 {
						cfg := cfg
						cfg.Data.Path, cfg.Cluster.Spread = p.Set().Dir(), spread
						cfg.Checkpoint.Dir, cfg.Checkpoint.Resume = keep, spread.Begun() && keeps
						err = train(ctx, cfg, want.params, func(epoch int) {
							if trained[i] = append(trained[i], epoch); epoch != at || i != 0 {
								return
							}
							close(called)
							<-arrived
							for {
								_, changed := n.member.View()
								if spread.Better() || n.member.Wait(ctx, changed, 0) != nil {
									return
								}
							}
						})
					}
					if err == nil {
						err = spread.Done(ctx)
					}
					if errors.Is(err, training.ErrMoves) {
						if err = spread.Moved(ctx); err == nil {
							spread.Close(nil)
							continue
						}
					}
					if spread.Close(err); err != nil {
						stop(err)
					}
					return
				}
			})
		}
		come("a")
		come("b")
		compute(0)
		compute(1)
		select {
		case <-called:
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
		come("c")
		compute(2)
		close(arrived)
		all.Wait()
		if err := context.Cause(ctx); err != nil {
			t.Fatal(err)
		}
		every, rest, times := []int{0, 1, 2, 3, 4, 5, 6}, []int{4, 5, 6}, []int{2, 2, 2}
		if !keeps {
			rest, times = nil, []int{1, 1, 1}
		}
		if !slices.Equal(trained[0], every) || !slices.Equal(trained[1], every) || !slices.Equal(trained[2], rest) {
			t.Errorf("the nodes trained the epochs %v; want %v twice, and %v", trained, every, rest)
		}
		if spreads[2] = times[2]; !slices.Equal(spreads, times) { // it may come before or after the others agree
			t.Errorf("the nodes agreed %v times; want %v", spreads, times)
		}
		leaveParts(t, nodes, held)
		s.Close()
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
