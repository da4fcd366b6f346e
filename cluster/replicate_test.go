package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/runtime"
)

// serveReplicas makes a member keep replicas in dir.
func serveReplicas(t *testing.T, m *membership.Member, p *dataplane.Plane, dir string) *dataplane.ReplicaServer {
	t.Helper()
	k, err := dataplane.ServeReplicas(p, dir)
	if err == nil {
		err = m.Announce(t.Context(), func(i *membership.Info) { i.Kinds = append(slices.Clone(i.Kinds), dataplane.ReplicaKind) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// keeps is a node that keeps copies in dir, and does not train.
func keeps(t *testing.T, store membership.Store, name, dir string) (leave func()) {
	t.Helper()
	p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: name, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := membership.Join(t.Context(), store, membership.Config{Cluster: "test", Waits: true, Info: membership.Info{Node: name, Home: name, Data: p.Address()}})
	if err != nil {
		t.Fatal(err)
	}
	serveReplicas(t, m, p, dir)
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { // a trainer that comes back has another address
		for {
			v, changed := m.View()
			for _, x := range v.Members {
				if x.Node != name {
					p.SetPeer(x.Node, x.Data)
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		stop()
		following.Wait()
		if err := m.Leave(context.Background()); err != nil {
			t.Error(err)
		}
		p.Close()
	})
}

// aloneIn trains in a cluster with nobody else, and returns the parameters and
// what was said at the start.
func aloneIn(t *testing.T, x *node, c runtime.Config) (params string, start string) {
	t.Helper()
	c.Cluster.Peers = x.team
	params, err := trainOn(t.Context(), c, func(e runtime.Event) {
		if e.Kind == runtime.EventStart {
			start = e.Message
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return params, start
}

// A node trains alone, and is lost with its disk. Another one goes on from the
// copy that a third node keeps of the last checkpoint, and so does that one
// itself: to the bits of a run that was not disturbed.
func TestLoneTrainerLost(t *testing.T) {
	c := clusterConfig()
	want, err := trainOn(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := membership.NewMemStore()
	defer store.Close()
	kept := t.TempDir()
	keeper := keeps(t, store, "keeper", kept)
	defer keeper()
	c.Checkpoint.Resume, c.Training.Epochs, c.Checkpoint.Dir = true, 1, filepath.Join(t.TempDir(), "lost")
	lost := enter(t, store, "lost", 8, 1)
	aloneIn(t, lost, c)
	lost.exit(t)
	if err := os.RemoveAll(c.Checkpoint.Dir); err != nil {
		t.Fatal(err)
	}

	c.Training.Epochs, c.Checkpoint.Dir = 2, t.TempDir()
	next := enter(t, store, "next", 8, 1)
	got, said := aloneIn(t, next, c)
	if got != want || !strings.Contains(said, "node keeper") {
		t.Errorf("another node: the parameters differ, or it was not the copy: %q", said)
	}
	next.exit(t)
	keeper()

	x := enter(t, store, "keeper", 8, 1)
	x.team.Close()
	own, err := trainers.Join(t.Context(), trainers.Options{Member: x.member, Plane: x.plane, MaxTrainers: 8, MinTrainers: 1, Replicas: serveReplicas(t, x.member, x.plane, kept)})
	if err != nil {
		t.Fatal(err)
	}
	x.team = own
	c.Checkpoint.Dir = t.TempDir()
	got, said = aloneIn(t, x, c)
	if got != want || !strings.Contains(said, "node keeper") {
		t.Errorf("the keeper itself: the parameters differ, or it was not the copy: %q", said)
	}
	x.exit(t)
}

// A copy is taken only if it is further than what is here, is whole and is of
// this run.
func TestCopyPassedOver(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	kept := t.TempDir()
	defer keeps(t, store, "keeper", kept)()
	run := func(c runtime.Config) (said string) {
		x := enter(t, store, "x", 8, 1)
		defer x.exit(t)
		_, said = aloneIn(t, x, c)
		return said
	}
	c := clusterConfig()
	c.Checkpoint.Resume, c.Training.Epochs, c.Checkpoint.Dir = true, 1, t.TempDir()
	run(c)
	if said := run(c); strings.Contains(said, "node keeper") || !strings.Contains(said, "resumed") {
		t.Errorf("with a checkpoint that is as far: %q", said)
	}
	other := c
	other.Training.Seed, other.Checkpoint.Dir = 9, t.TempDir()
	if said := run(other); !strings.Contains(said, "starting afresh") {
		t.Errorf("another run: %q", said)
	}
	c.Training.Epochs = 2
	run(c)

	// Damaged one after the other, the furthest first: other parameters under checksums
	// that are right, so that nothing but the replica's SHA-256 tells.
	damage := func(step int) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(kept, "x", "*", fmt.Sprintf("%020d-*", step)))
		if err != nil || len(files) == 0 {
			t.Fatalf("copies of step %d: %v, error %v", step, files, err)
		}
		for _, f := range files {
			was, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tensors, meta, err := compute.OpenSafetensors(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			delete(meta, compute.ChecksumKey)
			copy(tensors[0].Data, []byte{0, 0, 128, 63}) // 1
			var b bytes.Buffer
			if err := compute.WriteSafetensors(&b, tensors, meta); err != nil {
				t.Fatal(err)
			}
			if b.Len() != len(was) {
				t.Fatalf("%d bytes became %d", len(was), b.Len())
			}
			if err := os.WriteFile(f, b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	const steps = 19 // of an epoch
	for _, r := range []struct {
		damaged []int
		want    string
	}{
		{nil, "resumed after 38 batches, at the end of epoch 2; from the copy at node keeper"},
		{[]int{2 * steps}, "resumed after 19 batches, at the end of epoch 1; from the copy at node keeper"},
		{[]int{2 * steps, steps}, "starting afresh"}, // the round before made a copy of the second epoch again
	} {
		for _, step := range r.damaged {
			damage(step)
		}
		c.Checkpoint.Dir = t.TempDir()
		if said := run(c); !strings.Contains(said, r.want) {
			t.Fatalf("%q, want %q", said, r.want)
		}
	}
}
