package runtime

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
)

// Runtimes that were given a system of actors have theirs in it, each by a name of its own, and
// leave it as it was: it goes on when they stop.
func TestActorsOfOneSystem(t *testing.T) {
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	defer system.Shutdown()
	names := func() (all []string) {
		for _, some := range system.ProcessRegistry.LocalPIDs.LocalPIDs {
			some.IterCb(func(name string, _ any) {
				if strings.Contains(name, "/") {
					all = append(all, name)
				}
			})
		}
		slices.Sort(all)
		return all
	}
	c := config()
	c.Cluster.Actors, c.Execution.Samplers = system, 2
	want := func(prefix string) (all []string) {
		for _, name := range []string{"deliverer", "progress", "sampler/0", "sampler/1", "source"} {
			all = append(all, prefix+"/"+name)
		}
		return all
	}
	first, second := started(t, c), started(t, c)
	o := BatchesOptions{Nodes: []uint32{1, 2}, NoCopy: true}
	for _, err := range first.Batches(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range second.Batches(t.Context(), o) {
			if err != nil {
				t.Fatal(err)
			}
			all := slices.Sorted(slices.Values(slices.Concat(want("batches"), want("batches#2"))))
			if got := names(); !slices.Equal(got, all) {
				t.Errorf("the actors are %q, and should be %q", got, all)
			}
		}
		if err := second.Stop(); err != nil {
			t.Fatal(err)
		}
		if got := names(); !slices.Equal(got, want("batches")) {
			t.Errorf("the actors are %q when the second is over", got)
		}
	}
	r := started(t, c)
	for e, err := range r.Train(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if got := names(); e.Kind == EventStep && (!slices.Contains(got, "run/sampler/1") || !slices.Contains(got, "run/parameters")) {
			t.Errorf("the actors of training are %q", got)
		}
	}
	if got := names(); len(got) > 0 || system.IsStopped() {
		t.Errorf("left are %q; the system has stopped: %v", got, system.IsStopped())
	}
	if a, b := started(t, config()), started(t, config()); a.system != b.system {
		t.Error("runs that are given no system have one each")
	}
}
