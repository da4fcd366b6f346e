package trainers

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/training"
)

// maxMeta bounds what travels beside a micro-batch's gradient: its statistics,
// with those of the model's batch norms.
const maxMeta = 1 << 20

// Sum adds the gradients of a step. parts has one vector of len(dst) values per
// micro-batch: those that are dealt to this trainer (Deal), nil for the others.
// They are overwritten; after an error they must not be used again, because a
// peer may still be reading them. dst overlaps none of them. meta holds, for the same micro-batches, a
// few bytes each, which all trainers get to know. Sum blocks until dst holds the
// sum and returns everybody's meta, by micro-batch. Steps must rise.
//
// Each trainer calls Sum once per step; it fails at once when one of them goes.
func (g *reduceGroup) AllReduce(ctx context.Context, number int64, dst []float32, parts [][]float32, meta [][]byte) (metas [][]byte, err error) {
	micros := len(parts)
	if micros < 1 {
		return nil, errors.New("trainers: no micro-batch")
	}
	if err := g.checkParts(dst, parts, meta); err != nil {
		return nil, err
	}
	g.sums.RLock()
	defer g.sums.RUnlock()
	select {
	case <-g.closed: // what was kept of an ended group's last step is for others
		g.mu.Lock()
		defer g.mu.Unlock()
		return nil, g.err
	default:
	}
	ctx, end := training.Until(ctx, g.closed, ErrRegroup)
	defer end()
	defer func() {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
				err = cause
			}
			g.fail(fmt.Errorf("%w: step %d failed: %w", ErrRegroup, number, err))
		}
	}()
	roots := g.open(number, len(dst))
	all, within := errgroup.WithContext(ctx)
	all.Go(func() (err error) {
		metas, err = g.metas(within, number, micros, meta)
		return err
	})
	all.Go(func() error {
		some, within := errgroup.WithContext(within)
		some.SetLimit(inFlight)
		size := g.segmentOf(len(dst))
		for lo := 0; lo < len(dst) && within.Err() == nil; lo += size {
			some.Go(func() error {
				return g.sumSegment(within, number, lo/size, lo, min(lo+size, len(dst)), dst, roots, parts)
			})
		}
		return some.Wait()
	})
	if err = cmp.Or(all.Wait(), context.Cause(ctx)); err == nil {
		g.s.settle()
	}
	return metas, err
}

// settle drops the group before the current one: those of its members that go on have
// left it.
func (s *reducer) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = nil
}

func (g *reduceGroup) checkParts(dst []float32, parts [][]float32, meta [][]byte) error {
	if len(meta) != len(parts) {
		return fmt.Errorf("trainers: meta of %d micro-batches, not %d", len(meta), len(parts))
	}
	from, to := Deal(len(parts), len(g.members), g.self)
	for m, p := range parts {
		if mine := m >= from && m < to; mine && len(p) != len(dst) || !mine && p != nil {
			return fmt.Errorf("trainers: trainer %d of %d has %d values of micro-batch %d of %d; the sum has %d", g.self, len(g.members), len(p), m, len(parts), len(dst))
		}
		if len(meta[m]) > maxMeta {
			return fmt.Errorf("trainers: meta of %d bytes; at most %d", len(meta[m]), maxMeta)
		}
	}
	return nil
}

// open begins a step and returns where its roots are kept. What of the step
// before the last is still kept has been read: a trainer contributes to a step
// only after it has all of the one before. Numbers may be left out.
func (g *reduceGroup) open(number int64, size int) []float32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	for old := range g.steps {
		if old < g.last {
			delete(g.steps, old)
		}
	}
	g.last = number
	g.turn ^= 1
	if len(g.roots[g.turn]) < size {
		g.roots[g.turn] = make([]float32, size)
	}
	return g.roots[g.turn]
}

// metas gives this trainer's to the others and gets theirs.
func (g *reduceGroup) metas(ctx context.Context, number int64, micros int, meta [][]byte) ([][]byte, error) {
	n := len(g.members)
	var mine []byte
	from, to := Deal(micros, n, g.self)
	for _, b := range meta[from:to] {
		mine = append(binary.LittleEndian.AppendUint32(mine, uint32(len(b))), b...)
	}
	k := cellKey{kind: metaCell}
	if err := g.put(number, k, mine); err != nil {
		return nil, err
	}
	all := make([][]byte, micros)
	var asks errgroup.Group
	for t := range n {
		from, to := Deal(micros, n, t)
		if t == g.self {
			copy(all[from:to], meta[from:to])
			continue
		}
		asks.Go(func() error {
			b, err := g.get(ctx, t, number, k, nil, (to-from)*(maxMeta+4))
			if err == nil {
				err = splitMetas(all[from:to], b)
			}
			return err
		})
	}
	return all, asks.Wait()
}

// splitMetas cuts b into what each micro-batch has.
func splitMetas(dst [][]byte, b []byte) error {
	for m := range dst {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
			return fmt.Errorf("trainers: %d of %d micro-batches' meta; all nodes must run one configuration", m, len(dst))
		}
		n := int(binary.LittleEndian.Uint32(b))
		dst[m], b = b[4:4+n:4+n], b[4+n:]
	}
	if len(b) > 0 {
		return fmt.Errorf("trainers: %d bytes after %d micro-batches' meta", len(b), len(dst))
	}
	return nil
}

// holding says where the sum over a range of micro-batches lies: at which
// trainer, and in the vector of which micro-batch.
type holding struct{ trainer, vector int }

// sumSegment takes this trainer's part in the tree over one segment, of values [lo, hi).
func (g *reduceGroup) sumSegment(ctx context.Context, number int64, seg, lo, hi int, dst, roots []float32, parts [][]float32) error {
	micros, n := len(parts), len(g.members)
	var kept []float32
	if n > 1 { // dst is the caller's when Sum returns; peers may still be reading
		kept = roots[lo:hi]
	}
	join := func(a, b []float32, last bool) {
		if last {
			addRoot(dst[lo:hi], kept, a, b)
		} else {
			add(a, b)
		}
	}
	held := make([]holding, micros)
	for m := range held {
		held[m] = holding{owner(micros, n, m), m}
	}
	level := 0
	for stride := 1; stride < micros; stride *= 2 {
		for i := 0; i+stride < micros; i += 2 * stride {
			left, right := held[i], held[i+stride]
			into, from := left, right
			fromIndex := i + stride
			if left.trainer != right.trainer && seg>>level&1 == 1 {
				into, from, fromIndex = right, left, i
			}
			held[i] = into
			last := 2*stride >= micros
			k := cellKey{partialCell, uint32(seg), uint32(stride), uint32(fromIndex)}
			switch {
			case into.trainer == g.self && from.trainer == g.self:
				join(parts[into.vector][lo:hi], parts[from.vector][lo:hi], last)
			case into.trainer == g.self:
				if err := g.fetch(ctx, from.trainer, number, k, hi-lo, func(sum []float32) { join(parts[into.vector][lo:hi], sum, last) }); err != nil {
					return err
				}
			case from.trainer == g.self:
				if err := g.put(number, k, dataplane.BytesOf(parts[from.vector][lo:hi])); err != nil {
					return err
				}
			}
		}
		level++
	}
	k := cellKey{kind: resultCell, segment: uint32(seg)}
	switch {
	case held[0].trainer != g.self:
		_, err := g.get(ctx, held[0].trainer, number, k, dataplane.BytesOf(dst[lo:hi]), 4*(hi-lo))
		return err
	case micros == 1:
		copy(dst[lo:hi], parts[0][lo:hi])
		copy(kept, dst[lo:hi])
	}
	if n == 1 {
		return nil
	}
	return g.put(number, k, dataplane.BytesOf(kept))
}

// fetch calls use with trainer t's partial sum of n values.
func (g *reduceGroup) fetch(ctx context.Context, t int, number int64, k cellKey, n int, use func([]float32)) error {
	var temp []float32
	select {
	case temp = <-g.temps:
	default:
	}
	temp = slices.Grow(temp[:0], n)[:n]
	if _, err := g.get(ctx, t, number, k, dataplane.BytesOf(temp), 4*n); err != nil {
		return err
	}
	use(temp)
	select {
	case g.temps <- temp:
	default:
	}
	return nil
}

// add computes dst += src. The race detector does not see what this assembly reads
// and writes.
func add(dst, src []float32) {
	blas32.Axpy(1, blas32.Vector{N: len(src), Data: src, Inc: 1}, blas32.Vector{N: len(dst), Data: dst, Inc: 1})
}

// addRoot sets dst, and kept if it is not nil, to a + b.
func addRoot(dst, kept, a, b []float32) {
	const block = 1 << 12 // of values, in the first-level cache
	for lo := 0; lo < len(dst); lo += block {
		hi := min(lo+block, len(dst))
		copy(dst[lo:hi], a[lo:hi])
		add(dst[lo:hi], b[lo:hi])
		if kept != nil {
			copy(kept[lo:hi], dst[lo:hi])
		}
	}
}
