package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// askingCluster is trainer a, whose one sampler is on b or on c, as it is put.
type askingCluster struct {
	t       *testing.T
	a, b, c *Node
	r       *samplers.Remote
	drawB   atomic.Pointer[instead] // what they do in place of drawing
	drawC   atomic.Pointer[instead]
}

// instead is what a node does in place of drawing.
type instead func(*sampling.Batch, sampling.ID) error

func newAskingCluster(t *testing.T) *askingCluster {
	s := serve(t)
	k := &askingCluster{t: t, a: enter(t, options(s, "a", t.TempDir())), b: enter(t, options(s, "b", t.TempDir())), c: enter(t, options(s, "c", t.TempDir()))}
	for n, draw := range map[*Node]*atomic.Pointer[instead]{k.b: &k.drawB, k.c: &k.drawC} {
		if err := n.Sample(within(t), samplers.Run{ID: "run", First: sampling.ID{Phase: "train", Of: 1}, Open: func() samplers.Draw {
			return func(x *sampling.Batch, m *messages.Seeds) (messages.Message, error) {
				if f := draw.Load(); f != nil {
					if err := (*f)(x, m.ID); err != nil {
						return nil, err
					}
				}
				batchOf(x, m.ID)
				return nil, nil
			}
		}}); err != nil {
			t.Fatal(err)
		}
	}
	k.a.Member.Stand()
	k.r = k.a.Samplers(false)
	if err := k.r.Ready(within(t), "run", 1, hundred); err != nil {
		t.Fatal(err)
	}
	await(t, k.a, "all are there, and a leads", func(v *membership.View) bool {
		n := 0
		for _, m := range v.Members {
			if samplers.Can(&m) {
				n++
			}
		}
		return n == 2 && v.Leader == "a"
	})
	return k
}

// put has the sampler be on a node.
func (k *askingCluster) put(node string) {
	k.t.Helper()
	v, _ := k.a.Member.View()
	name := samplers.Name("a", 0)
	p, _ := k.a.Member.Place(samplers.Kind, name)
	if err := k.a.Member.SetPlaces(within(k.t), v.Epoch, []membership.Place{{Kind: samplers.Kind, ID: name, Node: node, Epoch: p.Epoch}}); err != nil {
		k.t.Fatal(err)
	}
	await(k.t, k.a, "it is put", func(*membership.View) bool {
		p, _ := k.a.Member.Place(samplers.Kind, name)
		return p.Node == node
	})
}

// draw returns who drew a batch, which is the one that was asked for.
func (k *askingCluster) draw(ctx context.Context, batch int) (string, error) {
	k.t.Helper()
	x, id := new(sampling.Batch), sampling.ID{Phase: "train", Epoch: 3, Batch: batch, Of: 1}
	node, err := k.r.Draw(ctx, 0, &messages.Seeds{ID: id, Seeds: []uint32{uint32(batch)}}, x)
	if err == nil && (x.ID != id || x.Inputs()[0] != uint32(batch)) {
		k.t.Errorf("%v came as %v", id, x)
	}
	return node, err
}

func (k *askingCluster) drawn(batch int, want string) {
	k.t.Helper()
	if node, err := k.draw(within(k.t), batch); err != nil || node != want {
		k.t.Fatalf("batch %d is of node %q, %v, not of %s", batch, node, err, want)
	}
}

// A sampler that is put elsewhere is asked where it was until it has drawn there; so is one whose
// node drains. A node of which it is moved back at once may take its time.
func TestSamplerStaysUntilAnswered(t *testing.T) {
	k := newAskingCluster(t)
	k.put("b")
	k.drawn(1, "b")
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	first := instead(func(*sampling.Batch, sampling.ID) error {
		<-goOn
		return nil
	})
	k.drawC.Store(&first)
	if err := k.b.Drain(within(t)); err != nil {
		t.Fatal(err)
	}
	await(t, k.a, "b drains", func(v *membership.View) bool { m, _ := v.Member("b"); return m.Drains() })
	for batch := range 20 { // c has not answered
		k.drawn(batch, "b")
	}
	if moves := k.r.Moves(); moves != 0 {
		t.Errorf("%d moves", moves)
	}
	release()
	ctx := within(t)
	for batch := 0; ; batch = (batch + 1) % 90 {
		node, err := k.draw(ctx, batch)
		if err != nil {
			t.Fatal(err)
		}
		if node == "c" {
			break
		}
	}
	if moves := k.r.Moves(); moves != 1 {
		t.Errorf("%d moves", moves)
	}
}

// A node that fails is done without, and its reason is shown; it is asked again when it draws. A run ends
// when no node draws a batch, and when two nodes say the same of it.
func TestSamplerFails(t *testing.T) {
	k := newAskingCluster(t)
	k.put("b")
	k.drawn(1, "b")
	fails := func(why string) *instead {
		f := instead(func(*sampling.Batch, sampling.ID) error { return errors.New(why) })
		return &f
	}
	k.drawB.Store(fails("input/output error"))
	for batch := range 5 {
		k.drawn(batch, "c")
	}
	if why := k.a.status().Shunned; len(why) != 1 || !strings.HasPrefix(why[0], "b: ") || !strings.Contains(why[0], "input/output error") {
		t.Errorf("the status shows %q", why)
	}
	k.drawC.Store(fails("no space left on device"))
	if _, err := k.draw(within(t), 6); err == nil || !strings.Contains(err.Error(), "node b") || !strings.Contains(err.Error(), "input/output error") ||
		!strings.Contains(err.Error(), "node c") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("both fail: %v", err)
	}
	k.drawC.Store(fails("input/output error"))
	if _, err := k.draw(within(t), 6); err == nil || !strings.Contains(err.Error(), "nodes b and c") && !strings.Contains(err.Error(), "nodes c and b") {
		t.Errorf("both say the same: %v", err)
	}
	k.drawB.Store(nil)
	k.drawC.Store(nil)
	ctx := within(t)
	for batch := 0; ; batch = (batch + 1) % 90 {
		node, err := k.draw(ctx, batch)
		if err != nil {
			t.Fatal(err)
		}
		if node == "b" {
			break
		}
	}
}

// A node that does not answer, or does not let its batches be fetched, is not waited for: another one is asked,
// and the first answer is taken.
func TestSamplerSilent(t *testing.T) {
	for name, silence := range map[string]func(*askingCluster){
		"does not answer": func(k *askingCluster) {
			f := instead(func(*sampling.Batch, sampling.ID) error {
				<-k.t.Context().Done() // the test is over
				return errors.New("it was silent")
			})
			k.drawB.Store(&f)
		},
		"does not let be fetched": func(k *askingCluster) {
			k.b.Plane.Handle(1, func(ctx context.Context, _ *dataplane.Request) (dataplane.Reply, error) {
				<-ctx.Done()
				return dataplane.Reply{}, ctx.Err()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newAskingCluster(t)
			k.put("b")
			k.drawn(1, "b")
			silence(k)
			ctx := within(t)
			for batch := range 5 {
				node, err := k.draw(ctx, batch)
				if err != nil || node != "c" {
					t.Fatalf("batch %d is of node %q, %v", batch, node, err)
				}
			}
			why := k.a.status().Shunned
			if !slices.ContainsFunc(why, func(s string) bool { return strings.HasPrefix(s, "b: it has not answered for") }) {
				t.Errorf("the status shows %q", why)
			}
		})
	}
}
