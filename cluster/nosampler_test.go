package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/runtime"
)

// A run that no node samples for is refused when the trainers that it waits for are there, and no longer the cluster's, by whomever it was begun. One
// trainer says what is missing as bad options, and all others hear that.
func TestRunWithoutSampler(t *testing.T) {
	t.Parallel()
	data := storeOf(t, nil)
	for name, begins := range map[string]Roles{"begun by a trainer": {Train: true, Rows: true}, "begun by who holds rows": {Rows: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			join := func(name string, roles Roles) *Session {
				t.Helper()
				o := Options{NodeOptions: options(s, name, t.TempDir()), Config: runtime.DefaultConfig(), Roles: roles}
				if o.TTL, o.Joins = 4*time.Second, name != "c"; !o.Joins {
					o.WaitFor, o.Shards, o.Config.Data.Path, o.Config.Sampling.MicroBatches = 2, "2", data, 2
				}
				n, err := Join(within(t), o)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			ended := map[string]chan error{}
			train := func(name string, n *Session) {
				ended[name] = make(chan error, 1)
				go func() {
					var why error
					for _, err := range n.Train() {
						why = err
					}
					ended[name] <- n.Leave(why)
				}()
			}
			c := join("c", begins)
			train("e", join("e", Roles{Rows: true}))
			d := join("d", Roles{Train: true})
			waits := func(n *Session, want bool) {
				t.Helper()
				await(t, n.node, "it waits", func(v *membership.View) bool { m, _ := v.Member(n.node.Plane.Node()); return m.Samplers == 1 })
				if v, _ := n.node.Member.View(); n.nobodySamples(v) != want {
					t.Errorf("node %s would refuse the run: not %t", n.node.Plane.Node(), want)
				}
			}
			train("c", c)
			says := "c"
			if begins.Train {
				waits(c, false) // not before all trainers are there
			} else {
				says = "d"
				f := join("f", Roles{Train: true})
				train("f", f)
				await(t, d.node, "f waits", func(v *membership.View) bool { m, _ := v.Member("f"); return m.Samplers == 1 })
			}
			train("d", d)
			for name, x := range ended {
				is, what := ErrWithdrawn, "node c began: the run cannot begin: "
				if name == says {
					is, what = ErrOptions, "the run cannot begin: "
				}
				if err := <-x; !errors.Is(err, is) || !strings.Contains(err.Error(), what+samplers.Nobody) || errors.Is(err, ErrOptions) != (name == says) {
					t.Errorf("%s ends with %v", name, err)
				}
			}
			if r, err := Begun(within(t), options(s, "g", t.TempDir())); r != nil || err != nil {
				t.Errorf("the run is there still: %+v, %v", r, err)
			}
		})
	}
}

// Which views have a run refused, and by whom; none does once its first group was there.
func TestNobodySamplesOf(t *testing.T) {
	t.Parallel()
	store := serve(t)
	a := enter(t, options(store, "a", t.TempDir()))
	if _, err := a.AgreeOnRun(within(t), &Run{Data: "d"}, false, nothing); err != nil {
		t.Fatal(err)
	}
	s := &Session{node: a, o: Options{WaitFor: 2}}
	me, run := a.Member.Epoch(), a.revision
	a.run.Epoch = 1 // who began it does not train
	self, later := membership.Info{Node: "a", Run: run, Samplers: 1, Epoch: me}, membership.Info{Node: "b", Run: run, Samplers: 1, Epoch: me + 1}
	change := func(m membership.Info, f func(*membership.Info)) membership.Info { f(&m); return m }
	other := change(later, func(m *membership.Info) { m.Run++ })
	earlier := change(later, func(m *membership.Info) { m.Epoch = me - 1 })
	drains := change(later, func(m *membership.Info) { m.Drain = true })
	rows := change(later, func(m *membership.Info) { m.Samplers = 0 })
	samples := membership.Info{Node: "z", Samples: true}
	two := []membership.Info{self, later}
	all := func(v membership.View, want bool, why string) {
		t.Helper()
		if s.nobodySamples(&v) != want {
			t.Errorf("%s: not %t", why, want)
		}
	}
	all(membership.View{Members: two}, true, "both are there")
	for why, m := range map[string]membership.Info{"b is of another run": other, "b came before": earlier, "b drains": drains, "b does not train": rows} {
		all(membership.View{Members: []membership.Info{self, m}}, false, why)
	}
	a.run.Epoch = me
	all(membership.View{Members: []membership.Info{self, earlier}}, true, "b came before a began it")
	a.run.Epoch = me + 1
	all(membership.View{Members: two}, false, "b began it")
	a.run.Epoch = me
	all(membership.View{Members: append(two, samples)}, false, "one is to sample")
	all(membership.View{Members: two, Absent: []membership.Info{samples}}, false, "one that samples may be back")
	if _, err := a.Member.Propose(within(t), groupKey, 0, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	await(t, a, "the group", func(*membership.View) bool { group, _ := a.Member.Value(groupKey); return group != nil })
	all(membership.View{Members: two}, false, "the run had a group")
}
