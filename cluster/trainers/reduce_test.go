package trainers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/compute"
)

type node struct {
	plane   *dataplane.Plane
	service *reducer
	group   *reduceGroup
}

func nodes(t testing.TB, n int) []*node {
	t.Helper()
	var all []*node
	var names []string
	for i := range n {
		p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: fmt.Sprintf("n%d", i), Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		all = append(all, &node{plane: p, service: newReducer(p)})
		names = append(names, p.Node())
	}
	for _, a := range all {
		for _, b := range all {
			if a != b {
				a.plane.SetPeer(b.plane.Node(), b.plane.Address())
			}
		}
	}
	regroup(t, all, 1, names)
	return all
}

func regroup(t testing.TB, all []*node, id uint64, names []string) {
	t.Helper()
	for _, x := range all {
		g, err := x.service.newGroup(id, names)
		if err != nil {
			t.Fatal(err)
		}
		x.group = g
	}
}

func gradients(seed uint64, micros, size int) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	parts := make([][]float32, micros)
	for m := range parts {
		parts[m] = make([]float32, size)
		for j := range parts[m] {
			// Magnitudes far apart: another order of adding gives other bits.
			parts[m][j] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(20))))
		}
	}
	return parts
}

func partsOf(parts [][]float32, n, self int) ([][]float32, [][]byte) {
	mine, meta := make([][]float32, len(parts)), make([][]byte, len(parts))
	from, to := Deal(len(parts), n, self)
	for m := from; m < to; m++ {
		mine[m], meta[m] = slices.Clone(parts[m]), []byte(fmt.Sprint("micro ", m))
	}
	return mine, meta
}

// Every number of trainers gets the bits of compute.SumTree, over several steps
// and segments, with micro-batches that do and do not divide evenly.
func TestSameBits(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, n := range []int{1, 2, 3, 4, 5} {
		all := nodes(t, n)
		for _, x := range all {
			x.group.segment = leastSegment + 512
		}
		for number, micros := range []int{8, 5, 7, 3, 1, 8} {
			size := []int{5*(leastSegment+512) + 1003, leastSegment + 1, 4*leastSegment + 3}[number%3]
			parts := gradients(uint64(number), micros, size)
			want := make([][]float32, micros)
			for m := range parts {
				want[m] = slices.Clone(parts[m])
			}
			compute.SumTree(want)
			var wg sync.WaitGroup
			for i, x := range all {
				wg.Go(func() {
					mine, meta := partsOf(parts, n, i)
					got := make([]float32, size)
					metas, err := x.group.AllReduce(ctx, int64(3*number), got, mine, meta)
					if err != nil {
						t.Errorf("%d trainers, step %d: %v", n, number, err)
						return
					}
					for m := range metas {
						if string(metas[m]) != fmt.Sprint("micro ", m) {
							t.Errorf("micro-batch %d has meta %q", m, metas[m])
						}
					}
					for j := range got {
						if math.Float32bits(got[j]) != math.Float32bits(want[0][j]) {
							t.Errorf("%d trainers, step %d: value %d is %v, want %v", n, number, j, got[j], want[0][j])
							return
						}
					}
					clear(got) // the caller's to change; peers must not see it
				})
			}
			wg.Wait()
		}
	}
}

// What a slow trainer has not got yet is kept for it, whatever the number of
// the next step.
func TestSlowTrainer(t *testing.T) {
	all := nodes(t, 2)
	x := all[0].group
	for _, number := range []int64{0, 7} {
		x.open(number, 1)
		if err := x.put(number, cellKey{kind: metaCell}, []byte{byte(number)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, number := range []int64{0, 7} {
		b, err := all[1].group.get(t.Context(), 0, number, cellKey{kind: metaCell}, nil, 1)
		if err != nil || b[0] != byte(number) {
			t.Errorf("step %d: %v, %v", number, b, err)
		}
	}
	x.open(8, 1)
	if len(x.steps) != 1 {
		t.Errorf("%d steps are kept", len(x.steps))
	}
}

// N trainers send 2·(N−1) vectors, and a little for asking.
func TestBytes(t *testing.T) {
	const n, micros, size = 4, 8, 8 << 17
	all := nodes(t, n)
	parts := gradients(1, micros, size)
	for _, x := range all {
		x.group.segment = 1 << 17
	}
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() {
			mine, meta := partsOf(parts, n, i)
			if _, err := x.group.AllReduce(t.Context(), 0, make([]float32, size), mine, meta); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var sent int64
	for _, x := range all {
		sent += x.plane.Stats().Sent
	}
	ideal := int64(2 * (n - 1) * 4 * size)
	if over := sent - ideal; over < 0 || over > ideal/1000 {
		t.Errorf("%d bytes were sent; 2·(N−1) vectors are %d", sent, ideal)
	}
}

// When a trainer goes, everybody's Sum fails, and a new group without it sums
// the step again to the same bits.
func TestTrainerGoes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const micros, size = 6, 1000
	all := nodes(t, 3)
	parts := gradients(5, micros, size)
	want := gradients(5, micros, size)
	compute.SumTree(want)
	var wg sync.WaitGroup
	for i, x := range all[:2] {
		wg.Go(func() {
			mine, meta := partsOf(parts, 3, i)
			if _, err := x.group.AllReduce(ctx, 0, make([]float32, size), mine, meta); err == nil {
				t.Error("a sum without a trainer's part")
			}
		})
	}
	all[2].plane.Close()
	wg.Wait()
	if _, err := all[0].group.AllReduce(ctx, 0, nil, make([][]float32, 3), make([][]byte, 3)); err == nil {
		t.Error("a group that failed goes on")
	}
	regroup(t, all[:2], 2, []string{"n0", "n1"})
	for i, x := range all[:2] {
		wg.Go(func() {
			mine, meta := partsOf(parts, 2, i)
			got := make([]float32, size)
			if _, err := x.group.AllReduce(ctx, 0, got, mine, meta); err != nil || !slices.Equal(got, want[0]) {
				t.Errorf("in the new group: %v", err)
			}
			last := make([][]float32, 2) // so that none closes while another lacks the sum
			last[i] = []float32{}
			if _, err := x.group.AllReduce(ctx, 1, []float32{}, last, make([][]byte, 2)); err != nil {
				t.Errorf("an empty sum: %v", err)
			}
		})
	}
	wg.Wait()
	if _, err := all[0].service.newGroup(2, []string{"n0"}); !errors.Is(err, ErrRegroup) {
		t.Errorf("an older group: %v", err)
	}
	if _, err := all[0].service.newGroup(3, []string{"n1"}); err == nil {
		t.Error("a group without its own node")
	}
}

// Peers get what they lack of the last step of a group that was ended, until the
// next one has made a sum, and nothing else of it.
func TestEnd(t *testing.T) {
	const micros, size = 4, 9
	all := nodes(t, 2)
	step := func(number int64) {
		t.Helper()
		want := gradients(uint64(number), micros, size)
		var wg sync.WaitGroup
		for i, x := range all {
			parts, meta := partsOf(want, len(all), i)
			wg.Go(func() {
				if _, err := x.group.AllReduce(t.Context(), number, make([]float32, size), parts, meta); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	step(1)
	a, b := all[0], all[1].group
	a.group.End()
	get := func(number int64, k cellKey) error {
		_, err := b.get(t.Context(), 0, number, k, nil, 1<<20)
		return err
	}
	meta, result, partial := cellKey{kind: metaCell}, cellKey{kind: resultCell}, cellKey{partialCell, 0, 2, 2}
	check := func(when string) {
		t.Helper()
		for _, k := range []cellKey{meta, result} {
			if err := get(1, k); err != nil {
				t.Errorf("%s: part %v of the last step: %v", when, k, err)
			}
		}
		if get(2, meta) == nil || get(1, partial) == nil {
			t.Errorf("%s: more than the last step's results", when)
		}
	}
	check("ended")
	next, err := a.service.newGroup(2, []string{"n0", "n1"})
	if err != nil {
		t.Fatal(err)
	}
	check("in the next group")
	a.group = next
	if all[1].group, err = all[1].service.newGroup(2, []string{"n0", "n1"}); err != nil {
		t.Fatal(err)
	}
	step(3)
	if get(1, meta) == nil {
		t.Error("the group before the last lasts")
	}
}

func TestRefused(t *testing.T) {
	all := nodes(t, 2)
	g := all[0].group
	sum := func(size int, parts [][]float32, meta [][]byte) error {
		_, err := g.AllReduce(t.Context(), 0, make([]float32, size), parts, meta)
		return err
	}
	for name, err := range map[string]error{
		"no micro-batch":        sum(1, nil, nil),
		"another's micro-batch": sum(1, [][]float32{{1}, {1}}, [][]byte{nil, nil}),
		"its own missing":       sum(1, [][]float32{nil, nil}, [][]byte{nil, nil}),
		"a vector too short":    sum(2, [][]float32{{1}, nil}, [][]byte{nil, nil}),
		"meta too long":         sum(1, [][]float32{{1}, nil}, [][]byte{make([]byte, maxMeta+1), nil}),
		"meta missing":          sum(1, [][]float32{{1}, nil}, [][]byte{nil}),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// Parts of invented steps that a peer asks for, and takes back, leave nothing.
func TestTakenBack(t *testing.T) {
	all := nodes(t, 2)
	g := all[0].group
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range int64(100) {
		k := cellKey{kind: partialCell, segment: uint32(i)}
		body := appendRequest(nil, g.id, 1<<40+i, k)
		if _, err := all[0].service.serve(ctx, &dataplane.Request{Peer: "n1", Body: body}); !errors.Is(err, context.Canceled) {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	if len(g.steps) != 0 {
		t.Errorf("%d steps are left", len(g.steps))
	}
}

// Every micro-batch has one trainer, and loads differ by one at most.
func TestDeal(t *testing.T) {
	for micros := 1; micros < 40; micros++ {
		for n := 1; n <= 2*micros; n++ {
			next := 0
			for tr := range n {
				from, to := Deal(micros, n, tr)
				if from != next || to-from < micros/n || to-from > micros/n+1 {
					t.Fatalf("%d micro-batches, %d trainers: %d has [%d, %d)", micros, n, tr, from, to)
				}
				for m := from; m < to; m++ {
					if o := owner(micros, n, m); o != tr {
						t.Fatalf("%d micro-batches, %d trainers: owner of %d is %d, not %d", micros, n, m, o, tr)
					}
				}
				next = to
			}
			if next != micros {
				t.Fatal("micro-batches are left over")
			}
		}
	}
}

// Whatever a peer asks for or answers, nothing panics.
func FuzzReduce(f *testing.F) {
	f.Add(appendRequest(nil, 1, 0, cellKey{kind: metaCell}))
	f.Add(appendRequest(nil, 1, 5, cellKey{resultCell, 1, 2, 3}))
	all := nodes(f, 1)
	f.Fuzz(func(t *testing.T, b []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r, err := all[0].service.serve(ctx, &dataplane.Request{Peer: "n0", Body: b}); err == nil {
			t.Fatalf("%d bytes of a step that was not begun", len(r.Data))
		}
		dst := make([][]byte, 3)
		if splitMetas(dst, b) == nil && len(dst[0])+len(dst[1])+len(dst[2])+12 != len(b) {
			t.Fatal("bytes of meta were lost")
		}
	})
}

// BenchmarkSum adds a 64 MiB gradient of 4 trainers in one process; the rate is
// of the bytes that all of them send.
func BenchmarkSum(b *testing.B) {
	const n, micros, size = 4, 8, 16 << 20
	all := nodes(b, n)
	parts := gradients(1, micros, 1000)
	mine, metas, dsts := make([][][]float32, n), make([][][]byte, n), make([][]float32, n)
	for i := range all {
		mine[i], metas[i] = partsOf(parts, n, i)
		for m := range mine[i] {
			if mine[i][m] != nil {
				mine[i][m] = make([]float32, size)
			}
		}
		dsts[i] = make([]float32, size)
	}
	number := int64(0)
	sum := func() {
		var wg sync.WaitGroup
		for i, x := range all {
			wg.Go(func() {
				if _, err := x.group.AllReduce(b.Context(), number, dsts[i], mine[i], metas[i]); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		number++
	}
	for range 2 { // what is kept of the last two steps is made room for
		sum()
	}
	b.SetBytes(2 * (n - 1) * 4 * size)
	for b.Loop() {
		sum()
	}
}
