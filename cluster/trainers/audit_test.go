package trainers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/sampling"
)

// member is a node whose sampling is a function of the test's.
type member struct {
	*auditor
	plane  *dataplane.Plane
	member *membership.Member
	left   chan struct{} // closed when the node left its group

	mu       sync.Mutex
	expelled []string
}

// auditors makes nodes a, b, … that audit a run, in no group yet; again is what each of them
// samples.
func auditors(t *testing.T, store membership.Store, rate float64, again ...func(sampling.ID) (sampling.Digest, error)) []*member {
	t.Helper()
	var all []*member
	for i, f := range again {
		m := &member{left: make(chan struct{})}
		name := string(rune('a' + i))
		var err error
		if m.plane, err = dataplane.Listen(dataplane.Options{Cluster: "test", Node: name, Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.plane.Close)
		info := membership.Info{Node: name, Home: name, Data: m.plane.Address()}
		if m.member, err = membership.Join(within(t), store, membership.Config{Cluster: "test", Info: info, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.member.Leave(context.Background()) }) // it may have left
		m.auditor = startAuditor(auditOptions{
			Member: m.member, Plane: m.plane, Identity: "run", Seed: 3, Rate: rate, Again: f,
			Expel: func(_ context.Context, node string, _ int64, _ string) error {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.expelled = append(m.expelled, node)
				return nil
			},
		})
		t.Cleanup(m.auditor.Close)
		all = append(all, m)
	}
	for _, m := range all {
		for _, o := range all {
			if o != m {
				m.plane.SetPeer(o.me, o.plane.Address())
			}
		}
		if _, err := m.member.Until(within(t), func(v *membership.View) bool { return len(v.Members) == len(all) }); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// meet makes a group of nodes.
func meet(all []*member) {
	var names []string
	for _, m := range all {
		names = append(names, m.me)
	}
	for _, m := range all {
		m.Group(names, sync.OnceFunc(func() { close(m.left) }))
	}
}

// finds is a node that samples everything to one digest.
func finds(d sampling.Digest) func(sampling.ID) (sampling.Digest, error) {
	return func(sampling.ID) (sampling.Digest, error) { return d, nil }
}

// nobody is a node that has no graph to sample from.
var nobody func(sampling.ID) (sampling.Digest, error)

func cannot(sampling.ID) (sampling.Digest, error) { return 0, errors.New("index out of range") }

// Who is to blame when node a, which sampled a micro-batch to its digest, has it audited.
func TestArbitration(t *testing.T) {
	type nodes = []func(sampling.ID) (sampling.Digest, error)
	const ok, bad, worse = sampling.Digest(10), sampling.Digest(20), sampling.Digest(30)
	for name, test := range map[string]struct {
		mine  sampling.Digest
		again nodes
		lying string // "": the audit passes
		sure  bool
	}{
		"alone":                           {ok, nodes{finds(ok)}, "", false},
		"two agree":                       {ok, nodes{finds(ok), finds(ok)}, "", false},
		"two differ":                      {bad, nodes{finds(bad), finds(ok)}, "ab", false},
		"the other cannot":                {ok, nodes{finds(ok), cannot}, "ab", false},
		"three agree":                     {ok, nodes{finds(ok), finds(ok), finds(ok)}, "", false},
		"the asker of three":              {bad, nodes{finds(bad), finds(ok), finds(ok)}, "a", true},
		"the asker of three, by accident": {bad, nodes{finds(ok), finds(ok), finds(ok)}, "a", true},
		"none of three":                   {ok, nodes{finds(ok), finds(bad), finds(worse)}, "abc", false},
		"the asker of four":               {bad, nodes{finds(bad), finds(ok), finds(ok), finds(ok)}, "a", true},
		"one agrees of four":              {ok, nodes{finds(ok), finds(bad), finds(worse), finds(5)}, "abcd", false},
	} {
		t.Run(name, func(t *testing.T) {
			arbitrate(t, test.again, test.mine, sampling.ID{Phase: phase}, test.lying, test.sure)
		})
	}
	// Of three and four with one that is wrong, and is not the asker: it is asked first, or
	// not at all.
	for n := 3; n <= 4; n++ {
		for wrong := 1; wrong < n; wrong++ {
			for batch := range 6 {
				all := make(nodes, n)
				for i := range all {
					all[i] = finds(ok)
				}
				all[wrong] = finds(bad)
				if batch%2 == 1 {
					all[wrong] = cannot
				}
				id := sampling.ID{Phase: phase, Batch: batch}
				first := (&auditor{o: auditOptions{Seed: 3}, me: "a"}).others([]string{"a", "b", "c", "d"}[:n], sampled{id: id})[0]
				lying := ""
				if first[0] == byte('a'+wrong) {
					lying = first
				}
				t.Run(fmt.Sprintf("%d nodes, %d is wrong, batch %d", n, wrong, batch), func(t *testing.T) { arbitrate(t, all, ok, id, lying, true) })
			}
		}
	}
	// Of four two agree that are asked third and last: a and the second lie, each in its way.
	first := (&auditor{o: auditOptions{Seed: 3}, me: "a"}).others([]string{"a", "b", "c", "d"}, sampled{id: sampling.ID{Phase: phase}})[0]
	all := nodes{finds(bad), finds(ok), finds(ok), finds(ok)}
	all[first[0]-'a'] = finds(worse)
	t.Run("two of four", func(t *testing.T) { arbitrate(t, all, bad, sampling.ID{Phase: phase}, "a"+first, true) })
}

// Who is to blame when node a has audited what the last node, which is in no group, sampled
// for it.
func TestSampledElsewhere(t *testing.T) {
	type nodes = []func(sampling.ID) (sampling.Digest, error)
	const ok, bad = sampling.Digest(10), sampling.Digest(20)
	for name, test := range map[string]struct {
		theirs sampling.Digest
		again  nodes
		lying  string
		sure   bool
	}{
		"all agree":             {ok, nodes{finds(ok), finds(ok), finds(ok)}, "", false},
		"the sampler":           {bad, nodes{finds(ok), finds(ok), finds(bad)}, "c", true},
		"who has it audited":    {ok, nodes{finds(bad), finds(ok), finds(ok)}, "a", true},
		"one of two":            {bad, nodes{finds(ok), finds(bad)}, "ab", false},
		"none of three":         {bad, nodes{finds(ok), finds(5), finds(bad)}, "abc", false},
		"it cannot tell itself": {ok, nodes{cannot, finds(ok), finds(ok)}, "a", true},
		"it has no graph":       {ok, nodes{nobody, finds(ok), finds(ok)}, "", false},
		"another one tells":     {bad, nodes{nobody, finds(ok), finds(ok), finds(bad)}, "d", true},
		"nobody has a graph":    {bad, nodes{nobody, nobody, finds(bad)}, "", false},
		"one of them has":       {bad, nodes{nobody, nobody, finds(ok), finds(bad)}, "cd", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := len(test.again) - 1
			judge(t, test.again, n, func(all []*member) sampled {
				return sampled{sampling.ID{Phase: phase}, test.theirs, all[n].me}
			}, test.lying, test.sure)
		})
	}
}

func arbitrate(t *testing.T, again []func(sampling.ID) (sampling.Digest, error), mine sampling.Digest, id sampling.ID, lying string, sure bool) {
	judge(t, again, len(again), func(all []*member) sampled { return sampled{id, mine, all[0].me} }, lying, sure)
}

// judge has the first of the nodes, of which so many are in a group, have something audited.
func judge(t *testing.T, again []func(sampling.ID) (sampling.Digest, error), group int, what func([]*member) sampled, lying string, sure bool) {
	store := membership.NewMemStore()
	defer store.Close()
	all := auditors(t, store, 0, again...)
	x := what(all)
	id := x.id
	all, elsewhere := all[:group], all[group:]
	meet(all)
	all[0].submit(x)
	for _, m := range all { // each waits for the audits of all
		err := m.Settle(within(t))
		var v *Verdict
		if lying == "" {
			if err != nil {
				t.Errorf("%s: %v", m.me, err)
			}
			continue
		}
		if !errors.As(err, &v) {
			t.Fatalf("%s: %v", m.me, err)
		}
		names := ""
		for _, s := range v.Lying {
			names += s.Node
			if info, in := v.epoch(m.member, s.Node); !in || info != s.Epoch {
				t.Errorf("node %s is named since %d, and joined at %d", s.Node, s.Epoch, info)
			}
		}
		if names != lying || v.Decided() != sure || v.Batch != id.String() {
			t.Errorf("%s hears: %v", m.me, v)
		}
		<-m.left
	}
	for _, m := range elsewhere {
		m.Close()
	}
	for _, m := range all {
		m.Close()
		slices.Sort(m.expelled)
		want := ""
		if sure && !strings.Contains(lying, m.me) {
			want = lying
		}
		if got := strings.Join(m.expelled, ""); got != want {
			t.Errorf("%s expels %q, not %q", m.me, got, want)
		}
	}
}

// epoch returns since when a node is a member.
func (v *Verdict) epoch(m *membership.Member, node string) (int64, bool) {
	view, _ := m.View()
	info, in := view.Member(node)
	return info.Epoch, in
}

// The third node dies over the question: a fourth is asked; without one the two are named,
// as soon as it is no member any more.
func TestArbiterDies(t *testing.T) {
	const ok, bad = sampling.Digest(10), sampling.Digest(20)
	for n, lying := range map[int]string{3: "ab", 4: "a"} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			store := membership.NewMemStore()
			defer store.Close()
			id := sampling.ID{Phase: phase}
			order := (&auditor{o: auditOptions{Seed: 3}, me: "a"}).others([]string{"a", "b", "c", "d"}[:n], sampled{id: id})
			all := make([]*member, 0, n)
			again := make([]func(sampling.ID) (sampling.Digest, error), n)
			for i := range again {
				again[i] = finds(ok)
			}
			dies := int(order[1][0] - 'a')
			asked, judged := make(chan struct{}), make(chan struct{})
			defer close(judged)
			again[dies] = func(sampling.ID) (sampling.Digest, error) {
				close(asked)
				<-judged // it never answers
				return 0, context.Canceled
			}
			all = append(all, auditors(t, store, 0, again...)...)
			meet(all)
			all[0].submit(sampled{id, bad, all[0].me})
			<-asked
			go all[dies].plane.Close()
			if err := all[dies].member.Leave(within(t)); err != nil {
				t.Fatal(err)
			}
			err := all[0].settledHere(within(t))
			var v *Verdict
			if !errors.As(err, &v) {
				t.Fatal(err)
			}
			names := ""
			for _, s := range v.Lying {
				names += s.Node
			}
			if n == 3 {
				lying = string(slices.Sorted(slices.Values([]byte("a" + order[0]))))
			}
			if names != lying || v.Decided() != (n == 4) {
				t.Errorf("%v", v)
			}
		})
	}
}

// Findings on a node that come after the verdict on it are none: nobody goes back again for what it
// was put out for. A finding on its later self, or on another one, is a verdict.
func TestLateFinding(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	all := auditors(t, store, 0, finds(10), finds(10), finds(10), finds(10))
	view, _ := all[0].member.View()
	of := func(node string) Suspect {
		info, _ := view.Member(node)
		return Suspect{node, info.Epoch}
	}
	write := func(lying ...Suspect) int64 {
		all[0].write(&Verdict{Run: all[0].run, Batch: "train/e0/b0/m0", Lying: lying, Agree: []string{"a", "b"}})
		entries, _, err := store.List(t.Context(), membership.Prefix("test")+"state/"+verdictKey)
		if err != nil || len(entries) != 1 {
			t.Fatal(entries, err)
		}
		return entries[0].Modified
	}
	heard := func(after int64) *Verdict {
		t.Helper()
		if _, err := all[0].member.Until(within(t), func(*membership.View) bool { v := all[0].newest(); return v != nil && v.Revision > after }); err != nil {
			t.Fatal(err)
		}
		all[0].WentBack(all[0].newest())
		return all[0].newest()
	}
	write(of("c"))
	first := heard(0)
	for _, late := range []Suspect{of("c"), {Node: "c"}} {
		if write(late) != first.Revision {
			t.Errorf("a late finding on %v is a verdict", late)
		}
	}
	last := first.Revision
	for _, lying := range [][]Suspect{{of("d")}, {of("c"), of("d")}, {{"c", of("c").Epoch + 100}, of("d")}} {
		write(lying...)
		last = heard(last).Revision
	}
}

// What is chosen is a function of seed and id, as many as the rate says, other ones in
// every epoch and for every seed; the others are asked in all orders.
func TestChosen(t *testing.T) {
	a := &auditor{o: auditOptions{Seed: 1, Rate: 0.01}, me: "a"}
	b := &auditor{o: auditOptions{Seed: 2, Rate: 0.01}}
	same := &auditor{o: auditOptions{Seed: 1, Rate: 0.01}}
	const n = 100_000
	count, both, next := 0, 0, 0
	for i := range n {
		id := sampling.ID{Phase: phase, Batch: i / 8, Micro: i % 8, Of: 8}
		later := id
		later.Epoch++
		if a.Chosen(id) != same.Chosen(id) {
			t.Fatalf("%v is chosen, and is not", id)
		}
		if !a.Chosen(id) {
			continue
		}
		count++
		if b.Chosen(id) {
			both++
		}
		if a.Chosen(later) {
			next++
		}
	}
	// Binomial: 5 standard deviations err once in 10^6. 1 % of some 1000 is 10 ± 5·3.2.
	if d := math.Abs(float64(count) - n*0.01); d > 5*math.Sqrt(n*0.01) || both > 27 || next > 27 {
		t.Errorf("%d of %d are chosen, %d of those for another seed, %d in the next epoch", count, n, both, next)
	}
	for _, rate := range []float64{0, 1} {
		a.o.Rate = rate
		if a.Chosen(sampling.ID{Phase: phase, Batch: 7}) != (rate == 1) || a.Chosen(sampling.ID{Phase: "batches"}) {
			t.Errorf("rate %v", rate)
		}
	}
	seen := map[string]int{}
	for i := range 600 {
		seen[strings.Join(a.others([]string{"c", "a", "b", "d"}, sampled{id: sampling.ID{Batch: i}}), "")]++
	}
	for order, n := range seen {
		if n < 55 { // of 100; 5 standard deviations
			t.Errorf("the order %s comes %d times of 600", order, n)
		}
	}
	if len(seen) != 6 {
		t.Errorf("orders: %v", seen)
	}
}

// lookedAt says when somebody asks what ends it.
type lookedAt struct {
	context.Context
	by chan struct{}
}

func (c lookedAt) Done() <-chan struct{} {
	select {
	case c.by <- struct{}{}:
	default:
	}
	return c.Context.Done()
}

// A node that asked nobody yet waits for a group, a group that ends is over for those who
// wait, and what is not audited by then is by the next one. Nodes wait for each other's
// audits.
func TestSettle(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	hold := make(chan struct{})
	all := auditors(t, store, 1, finds(1), func(sampling.ID) (sampling.Digest, error) { <-hold; return 1, nil }, finds(1))
	if err := all[0].Settle(within(t)); err != nil {
		t.Errorf("before there is a group: %v", err)
	}
	id := sampling.ID{Phase: phase}
	for all[0].others([]string{"a", "b", "c"}, sampled{id: id})[0] != "b" {
		id.Batch++
	}
	all[0].submit(sampled{id, 1, all[0].me})
	meet(all)
	ended := make(chan error)
	for _, m := range all { // all wait for a, and that for b
		began := make(chan struct{}, 1)
		go func() { ended <- m.Settle(lookedAt{within(t), began}) }()
		<-began // it has seen which group there is
	}
	select {
	case err := <-ended:
		t.Fatalf("it was settled before the audit came back: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	meet([]*member{all[0], all[2]})
	for range 2 {
		if err := <-ended; !errors.Is(err, errOver) {
			t.Errorf("a group that is over: %v", err)
		}
	}
	meet(all[:1])
	if err := all[0].Settle(within(t)); err != nil {
		t.Errorf("the next group: %v", err)
	}
	ctx, cancel := context.WithCancel(within(t))
	close(hold)
	cancel()
	<-ended
	_ = ctx
}

// A node whose process has died while others wait for its audits is put out of the cluster, though
// its lease goes on, and its group is over with it.
func TestSettleWithTheDead(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	all := auditors(t, store, 0, finds(1), finds(1))
	meet(all)
	all[1].plane.Close()
	ended := make(chan error)
	go func() { ended <- all[0].Settle(within(t)) }()
	if _, err := all[0].member.Until(within(t), func(v *membership.View) bool { return len(v.Members) == 1 }); err != nil {
		t.Error(err)
	}
	meet(all[:1])
	if err := <-ended; !errors.Is(err, errOver) {
		t.Errorf("a group one of which has died: %v", err)
	}
}

// A verdict is heard of by those that were there, not by those that start after it,
// nor in another run; who went back has heard of it, and what it samples anew is audited.
func TestVerdictIsKnown(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	all := auditors(t, store, 0, finds(1), finds(1), finds(1))
	meet(all)
	all[0].submit(sampled{sampling.ID{Phase: phase}, 2, all[0].me})
	for _, m := range all {
		<-m.left
	}
	v, known := all[1].Verdict()
	if v == nil || known != 0 || v.Revision == 0 {
		t.Fatalf("%v, known %d", v, known)
	}
	for _, identity := range []string{"run", "another"} {
		late := startAuditor(auditOptions{Member: all[1].member, Plane: all[1].plane, Identity: identity, Again: finds(1)})
		v2, known := late.Verdict()
		if v2 != nil || (known == v.Revision) != (identity == "run") {
			t.Errorf("who starts later on %s knows %d, and is told %v", identity, known, v2)
		}
		late.Close()
	}
	all[2].WentBack(v)
	if again, err := all[2].Known(); err != nil || again != v.Revision {
		t.Errorf("who went back knows %d, %v", again, err)
	}
	if _, err := all[0].Known(); !strings.Contains(fmt.Sprint(err), "node a sampled train/e0/b0 differently than nodes b and c") && !strings.Contains(fmt.Sprint(err), "differently than nodes c and b") {
		t.Errorf("the verdict reads %v", err)
	}
}

// What others found comes with the question: who agrees with one of them judges.
func TestQuestionHasVotes(t *testing.T) {
	q := &question{Run: 1, Epoch: 2, Batch: 3, Micro: 4, Of: 5, Votes: []Vote{{"a", 1}, {"b", 2}}}
	b, err := q.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseQuestion(b); err != nil || !reflect.DeepEqual(got, q) {
		t.Errorf("%+v, %v; want %+v", got, err, q)
	}
}

// Whatever a peer says, it is refused or means something.
func FuzzQuestion(f *testing.F) {
	for _, q := range []question{{}, {Run: 1, Epoch: 2, Batch: 3, Micro: 4, Of: 5, Votes: []Vote{{"a", 1}, {"b", 2}}}} {
		b, err := q.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x81, 0xa1, 'v', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add(encodeAnswer(7, true))
	f.Add([]byte(`{"run":1,"batch":"train/e0/b0","lying":[{"node":"a","epoch":3}],"agree":["b","c"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v := parseVerdict(b, 1, 1); v != nil && (len(v.Lying) == 0 || v.Error() == "") {
			t.Errorf("a verdict on nobody: %+v", v)
		}
		if d, decided, err := parseAnswer(b); err == nil && !slices.Equal(encodeAnswer(d, decided), b) {
			t.Errorf("%x came back otherwise", b)
		}
		q, err := parseQuestion(b)
		if err != nil {
			return
		}
		if len(q.Votes) == 0 || q.Epoch < 0 || q.Batch < 0 || q.Micro < 0 || q.Micro >= max(q.Of, 1) {
			t.Errorf("%+v", q)
		}
	})
}

// Who has closed is not waited for: it answers at once whether its audits had come back.
// Close waits for a batch that is being sampled again.
func TestClosed(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	begun, hold := make(chan struct{}), make(chan struct{})
	all := auditors(t, store, 1, finds(1), func(sampling.ID) (sampling.Digest, error) { close(begun); <-hold; return 1, nil }, finds(1))
	meet(all)
	all[2].Close()
	if err := all[0].Settle(within(t)); err != nil {
		t.Errorf("after a node that had nothing to audit closed: %v", err)
	}
	id := sampling.ID{Phase: phase}
	for all[0].others([]string{"a", "b", "c"}, sampled{id: id})[0] != "b" {
		id.Batch++
	}
	all[0].submit(sampled{id, 1, all[0].me})
	<-begun
	all[0].Close()
	if err := all[1].Settle(within(t)); err == nil || !strings.Contains(err.Error(), "node a ended before") {
		t.Errorf("after a node closed whose audit had not come back: %v", err)
	}
	closed := make(chan struct{})
	go func() { all[1].Close(); close(closed) }()
	select {
	case <-closed:
		t.Error("a batch is still being sampled again")
	case <-time.After(20 * time.Millisecond):
	}
	close(hold)
	<-closed
}
