package trainers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/training"
)

func TestMain(m *testing.M) { leak.Main(m) }

// cutOff is a store that this node may lose, while others reach the node.
type cutOff struct {
	membership.Store
	cut atomic.Bool
}

var errCut = errors.New("no route")

func (c *cutOff) Renew(ctx context.Context, l membership.Lease) error {
	if c.cut.Load() {
		return errCut
	}
	return c.Store.Renew(ctx, l)
}

// trainer counts steps: its state is how many it has made.
type trainer struct {
	*Trainers
	store  *cutOff
	plane  *dataplane.Plane
	member *membership.Member
	step   int64
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const micros = 4

func join(t *testing.T, store membership.Store, name string, least int) *trainer {
	t.Helper()
	return joinFor(t, store, name, least, time.Minute)
}

// joinFor joins under a lease, without which the node goes on only if that is a minute.
func joinFor(t *testing.T, store membership.Store, name string, least int, lease time.Duration) *trainer {
	t.Helper()
	x := &trainer{store: &cutOff{Store: store}}
	var err error
	if x.plane, err = dataplane.Listen(dataplane.Options{Cluster: "test", Node: name, Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.plane.Close)
	info := membership.Info{Node: name, Home: name, Data: x.plane.Address()}
	outage := time.Hour
	if lease < time.Minute {
		outage = -1
	}
	if x.member, err = membership.Join(within(t), x.store, membership.Config{Cluster: "test", Info: info, TTL: lease, Outage: outage}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.member.Leave(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	x.Trainers, err = Join(within(t), Options{Member: x.member, Plane: x.plane, MaxTrainers: micros, MinTrainers: least})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Trainers.Close)
	return x
}

func (x *trainer) state() training.Position {
	return training.Position{
		Identity: "run", Step: x.step,
		Save:    func() ([]byte, error) { return binary.LittleEndian.AppendUint64(nil, uint64(x.step)), nil },
		Restore: func(b []byte) (int64, error) { x.step = int64(binary.LittleEndian.Uint64(b)); return x.step, nil },
	}
}

// sum makes a step: micro-batch m adds m + the step.
func (x *trainer) sum(ctx context.Context, s *Share) error {
	parts, meta := make([][]float32, micros), make([][]byte, micros)
	for m := range parts {
		if s.Mine(m, micros) {
			parts[m] = []float32{float32(m) + float32(x.step)}
		}
	}
	var dst [1]float32
	if _, err := s.AllReduce(ctx, x.step, dst[:], parts, meta); err != nil {
		return err
	}
	if want := float32(6 + 4*x.step); dst[0] != want {
		return fmt.Errorf("step %d: %v, not %v", x.step, dst[0], want)
	}
	x.step++
	return nil
}

// finish ends the run, in whichever group.
func (x *trainer) finish(ctx context.Context, s *Share) error {
	for {
		err := s.Finish(ctx, x.step)
		if !errors.Is(err, actors.ErrReduce) {
			return err
		}
		if s, err = x.Rendezvous(ctx, x.state()); err != nil {
			return err
		}
	}
}

// train makes steps until there are last of them.
func (x *trainer) train(ctx context.Context, last int64) error {
	for x.step < last {
		s, err := x.Rendezvous(ctx, x.state())
		if err != nil {
			return err
		}
		for err == nil && x.step < last {
			err = x.sum(ctx, s)
		}
		if err != nil && !errors.Is(err, ErrRegroup) {
			return err
		}
	}
	return nil
}

func together(t *testing.T, all []*trainer, f func(*trainer) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() {
			if err := f(x); err != nil {
				t.Errorf("trainer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func checkLineage(t *testing.T, x *trainer, first, next int64) {
	t.Helper()
	runs := x.Runs()
	if !training.Chained(runs, next) || training.FirstOf(runs, next) != first {
		t.Errorf("the lineage is %v, not each of %d to %d once", runs, first, next)
	}
	if n := int64(len(lineageOf(x.Trainers))); n != next-first {
		t.Errorf("the lineage has %d links", n)
	}
}

// A trainer that joins late gets the state and its lineage; each computes what
// it is dealt.
func TestJoinLate(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	ctx := within(t)
	all := []*trainer{join(t, store, "a", 2), join(t, store, "b", 2)}
	together(t, all, func(x *trainer) error { return x.train(ctx, 5) })
	for _, x := range all {
		if x.Made() != 10 {
			t.Errorf("%d micro-batches of 20", x.Made())
		}
	}
	all = append(all, join(t, store, "c", 2))
	together(t, all, func(x *trainer) error { return x.train(ctx, 9) })
	for _, x := range all {
		checkLineage(t, x, 0, 9)
	}
	if n := all[2].Made(); n < 4 || n > 8 {
		t.Errorf("the third of three computed %d micro-batches of 16", n)
	}
}

// pair returns two trainers that have made a step together.
func pair(ctx context.Context, t *testing.T, store membership.Store) (both []*trainer, shares []*Share) {
	both, shares = []*trainer{join(t, store, "a", 2), join(t, store, "b", 2)}, make([]*Share, 2)
	together(t, both, func(x *trainer) (err error) {
		i := slices.Index(both, x)
		if shares[i], err = x.Rendezvous(ctx, x.state()); err == nil {
			err = x.sum(ctx, shares[i])
		}
		return err
	})
	return both, shares
}

// ends waits until x has heard of the next group.
func (x *trainer) ends(ctx context.Context, t *testing.T) {
	t.Helper()
	for {
		x.mu.Lock()
		ending := x.part.Newest() > x.id
		x.mu.Unlock()
		if ending {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("it hears of no new group")
		}
		runtime.Gosched()
	}
}

// A step that is being made when another node comes is made, and then the group is
// over for all.
func TestStepIsMadeBeforeTheGroupChanges(t *testing.T) {
	ctx, store := within(t), membership.NewMemStore()
	defer store.Close()
	both, shares := pair(ctx, t, store)
	sums := make(chan error, 1)
	go func() { sums <- both[0].sum(ctx, shares[0]) }()
	c := join(t, store, "c", 2)
	last := make(chan error, 1)
	go func() { last <- c.train(ctx, 4) }()
	for _, x := range both { // that knows of the new group
		x.ends(ctx, t)
	}
	select {
	case err := <-sums:
		t.Fatalf("the step ended without the other's part: %v", err)
	default:
	}
	if err := both[1].sum(ctx, shares[1]); err != nil {
		t.Error(err)
	}
	if err := <-sums; err != nil {
		t.Error(err)
	}
	for i, x := range both {
		<-shares[i].Over()
		if err := x.sum(ctx, shares[i]); !errors.Is(err, ErrRegroup) {
			t.Errorf("a step after the group's last: %v", err)
		}
	}
	together(t, both, func(x *trainer) error { return x.train(ctx, 4) })
	if err := <-last; err != nil {
		t.Error(err)
	}
	for _, x := range append(both, c) {
		checkLineage(t, x, 0, 4)
		if l := lineageOf(x.Trainers); l[0].Group != l[1].Group || l[1].Group == l[2].Group {
			t.Errorf("the lineage is %+v", l)
		}
	}
}

// Whoever comes while others wait for each other at the end gets the state that the
// run ends with.
func TestJoinAtTheEnd(t *testing.T) {
	ctx, store := within(t), membership.NewMemStore()
	defer store.Close()
	both, shares := pair(ctx, t, store)
	var wg sync.WaitGroup
	finish := func(x *trainer, s *Share) {
		wg.Go(func() {
			if err := x.finish(ctx, s); err != nil {
				t.Error(err)
			}
		})
	}
	finish(both[0], shares[0])
	c := join(t, store, "c", 2)
	wg.Go(func() {
		s, err := c.Rendezvous(ctx, c.state())
		if err == nil && c.step != 1 {
			t.Errorf("it came to step %d of a run that has 1", c.step)
		}
		if err == nil {
			err = c.finish(ctx, s)
		}
		if err != nil {
			t.Error(err)
		}
	})
	both[1].ends(ctx, t)
	finish(both[1], shares[1])
	wg.Wait()
	for i, x := range both {
		if n := x.plane.Offers(); n != 0 {
			t.Errorf("trainer %d still offers %d states", i, n)
		}
	}
}

// Who comes gets the furthest state from the node that has offered its own beforehand,
// and from another where that one is behind.
func TestOffered(t *testing.T) {
	for _, lost := range []int64{0, 1} {
		ctx, store := within(t), membership.NewMemStore()
		defer store.Close()
		all, _ := pair(ctx, t, store)
		var saved [3]atomic.Int64
		all[0].step -= lost // summed, and dropped before it was applied
		all = append(all, join(t, store, "c", 2))
		together(t, all, func(x *trainer) error {
			state := x.state()
			save := state.Save
			state.Save = func() ([]byte, error) { saved[slices.Index(all, x)].Add(1); return save() }
			s, err := x.Rendezvous(ctx, state)
			if err == nil && x.step != 1 {
				t.Errorf("%d lost: a trainer begins at step %d", lost, x.step)
			}
			if err == nil {
				err = x.sum(ctx, s)
			}
			return err
		})
		for i, want := range []int64{1, lost, 0} {
			if n := saved[i].Load(); n != want {
				t.Errorf("%d lost: trainer %d packed its state %d times, not %d", lost, i, n, want)
			}
		}
		for _, x := range all {
			checkLineage(t, x, 0, 2)
			if n := x.plane.Offers(); n != 0 {
				t.Errorf("%d lost: %d states are on offer after a step", lost, n)
			}
		}
	}
}

// Who comes after a node's last step trains without it, though it stays a member.
func TestLateAfterTheEnd(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	ctx := within(t)
	first := join(t, store, "a", 1)
	for i, x := range []*trainer{first, join(t, store, "b", 1), join(t, store, "c", 1), first} {
		s, err := x.Rendezvous(ctx, x.state())
		for range 3 {
			if err == nil {
				err = x.sum(ctx, s)
			}
		}
		if err == nil {
			err = x.finish(ctx, s)
		}
		if err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
		if n := len(s.group.members); n != 1 {
			t.Errorf("run %d: a group of %d", i, n)
		}
	}
}

// A trainer of a group that is over, and one that is fenced, publish nothing;
// what the newest group has published stays.
func TestPublish(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	ctx := within(t)
	all := []*trainer{join(t, store, "a", 2), join(t, store, "b", 2)}
	old := make([]*Share, 2)
	together(t, all, func(x *trainer) (err error) {
		i := slices.Index(all, x)
		old[i], err = x.Rendezvous(ctx, x.state())
		return err
	})
	if n := len(slices.DeleteFunc(slices.Clone(old), func(s *Share) bool { return !s.First() })); n != 1 {
		t.Fatalf("%d of 2 trainers are the first", n)
	}
	if err := old[0].Publish(ctx, training.Published{File: "one", Step: 1}); err != nil {
		t.Fatal(err)
	}
	all = append(all, join(t, store, "c", 2))
	shares := make([]*Share, 3)
	together(t, all, func(x *trainer) (err error) {
		i := slices.Index(all, x)
		shares[i], err = x.Rendezvous(ctx, x.state())
		return err
	})
	if err := old[0].Publish(ctx, training.Published{File: "late", Step: 2}); !errors.Is(err, training.ErrStaleGroup) {
		t.Errorf("the old group published: %v", err)
	}
	if err := shares[0].Publish(ctx, training.Published{File: "two", Step: 2}); err != nil {
		t.Fatal(err)
	}
	// Nothing listens where b was: whoever looks takes it out, and a, which is
	// there, stays.
	all[1].plane.Close()
	died, err := all[2].member.Suspect(ctx, []string{"a", "b", "c", "nobody"})
	if err != nil || !slices.Equal(died, []string{"b"}) {
		t.Fatalf("died: %v, %v", died, err)
	}
	if v, _ := all[2].member.View(); len(v.Members) != 2 {
		t.Errorf("members: %v", v.Members)
	}
	select {
	case <-all[1].member.Lost():
	case <-ctx.Done():
		t.Fatal("not fenced")
	}
	if err := shares[1].Publish(ctx, training.Published{File: "zombie", Step: 3}); !errors.Is(err, membership.ErrFenced) {
		t.Errorf("a fenced trainer published: %v", err)
	}
	if _, err := all[2].member.Until(ctx, func(*membership.View) bool {
		p, ok := all[2].Published()
		return ok && p == training.Published{File: "two", Step: 2, Group: shares[0].Number()}
	}); err != nil {
		p, _ := all[2].Published()
		t.Errorf("published is %v: %v", p, err)
	}
}

// A leader and trainer that loses the store but not its peers is fenced before
// the others go on, and nothing it does afterwards is taken.
func TestZombie(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	ctx := within(t)
	all := []*trainer{joinFor(t, store, "a", 3, 3*time.Second), join(t, store, "b", 3), join(t, store, "c", 3)}
	zombie, rest := all[0], all[1:]
	shares := make(map[*trainer]*Share)
	var mu sync.Mutex
	together(t, all, func(x *trainer) error {
		s, err := x.Rendezvous(ctx, x.state())
		if err != nil {
			return err
		}
		mu.Lock()
		shares[x] = s
		mu.Unlock()
		return x.sum(ctx, s)
	})
	v, _ := zombie.member.View()
	if !zombie.member.Leads(v) {
		t.Fatal("the first does not lead")
	}
	old := v.Epoch
	zombie.store.cut.Store(true)
	<-zombie.member.Lost()
	if err := zombie.sum(ctx, shares[zombie]); err == nil {
		t.Error("a fenced trainer made a step")
	}
	if _, err := zombie.Rendezvous(ctx, zombie.state()); !errors.Is(err, membership.ErrFenced) {
		t.Errorf("a fenced trainer met: %v", err)
	}
	together(t, rest, func(x *trainer) error { return x.train(ctx, 10) })
	for _, x := range rest {
		checkLineage(t, x, 0, 10)
		b, id := x.member.Value(groupKey)
		if _, err := zombie.member.SetValue(ctx, old, groupKey, id, []byte(`{"members":[]}`)); err == nil {
			t.Error("the old leader wrote a group down")
		}
		if now, _ := x.member.Value(groupKey); !slices.Equal(now, b) {
			t.Error("the group changed")
		}
	}
	// What it serves of its group is not asked for, and what it asks for is refused.
	for _, x := range rest {
		newest, _ := newestOf(x.member)
		body := binary.LittleEndian.AppendUint64(nil, uint64(newest.ID)) // a part of the group that it is not in
		body = append(body, make([]byte, 21)...)
		body[16] = 3
		zombie.plane.SetPeer(x.plane.Node(), x.plane.Address())
		if _, err := zombie.plane.Ask(ctx, dataplane.Call{Node: x.plane.Node(), Method: dataplane.MethodSums, Body: [][]byte{body}, Max: 1 << 20}); err == nil {
			t.Error("a zombie got a part of a group that it is not in")
		}
	}
}

// Whatever a peer says, it is refused or its lineage has no gaps.
func FuzzHello(f *testing.F) {
	for _, h := range []hello{
		{},
		{Identity: "run", Step: 5, First: 3, Ticket: dataplane.Ticket{Node: "a", Size: 8}, Lineage: training.Extend(training.Extend(nil, 1, 3), 2, 4)},
		{Step: 5, Lineage: []training.Run{{Group: 1, Next: 4}}},
	} {
		b, err := h.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x81, 0xa1, 'l', 0xdd, 0xff, 0xff, 0xff, 0xff}) // a lineage of 4 billion groups
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err != nil {
			return
		}
		if h.Step < 0 || len(h.Lineage) > 0 && !training.Chained(h.Lineage, h.Step) {
			t.Fatalf("%+v", h)
		}
		again, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		if g, err := decodeHello(again); err != nil || !slices.Equal(g.Lineage, h.Lineage) || g.Ticket != h.Ticket || g.Step != h.Step {
			t.Fatalf("%+v came back as %+v, %v", h, g, err)
		}
	})
}

// link is one of a lineage, and the group that made it.
type link struct{ Step, Group int64 }

// lineageOf returns the steps that led to a node's parameters, oldest first.
func lineageOf(t *Trainers) (all []link) {
	for _, r := range t.Runs() {
		for s := r.First; s < r.Next; s++ {
			all = append(all, link{s, r.Group})
		}
	}
	return all
}
