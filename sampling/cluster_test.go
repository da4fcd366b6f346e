package sampling

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

func TestClusterEpochVisitsAllOnce(t *testing.T) {
	g := skewed(1000, 30, 2)
	spec := Spec{Name: "cluster", Layers: 2, Clusters: 25, PerBatch: 4}
	p := mustPrepare(t, spec, g)
	n := p.BatchesPerEpoch(1000, 64, 1)
	if n != 7 {
		t.Fatalf("%d batches an epoch, want 7", n)
	}
	s := p.NewSampler()
	var first []uint32
	for epoch := range 2 {
		for _, of := range []int{1, 3} {
			var seen []uint32
			var b Batch
			for batch := range n {
				clusters := make(map[uint32]bool)
				for micro := range of {
					b.ID = ID{Phase: "train", Epoch: epoch, Batch: batch, Micro: micro, Of: of}
					if err := s.Sample(&b, b.ID.Key(1), nil); err != nil {
						t.Fatal(err)
					}
					checkInduced(t, g, &b)
					seen = append(seen, b.Inputs()...)
					for _, u := range b.Inputs() {
						clusters[p.Partition()[u]] = true
					}
				}
				if len(clusters) > 4 {
					t.Fatalf("batch %d has nodes of %d clusters", batch, len(clusters))
				}
				if batch == 0 && of == 1 {
					if epoch == 1 && slices.Equal(first, b.Inputs()) {
						t.Error("two epochs begin with the same clusters")
					}
					first = slices.Clone(b.Inputs())
				}
			}
			slices.Sort(seen)
			if !slices.Equal(seen, allNodes(g)) {
				t.Errorf("epoch %d in %d micro-batches does not visit every node once", epoch, of)
			}
		}
	}
	sameBits(t, p, allNodes(g), 100)
}

// A partition may have clusters without nodes; no batch is made of them.
func TestClusterLeavesOutEmptyClusters(t *testing.T) {
	g := skewed(100, 10, 3)
	part := make([]uint32, 100)
	for v := range part {
		part[v] = []uint32{1, 4, 8}[v%3]
	}
	p, err := Prepare(t.Context(), Spec{Name: "cluster", Layers: 1, Clusters: 10}, &graph.Dataset{Graph: g}, 1, WithPartition(part))
	if err != nil {
		t.Fatal(err)
	}
	if n := p.BatchesPerEpoch(100, 10, 1); n != 3 {
		t.Fatalf("%d batches an epoch, want 3", n)
	}
	together, err := Prepare(t.Context(), Spec{Name: "cluster", Layers: 1, Clusters: 10, PerBatch: 3}, &graph.Dataset{Graph: g}, 1, WithPartition(part))
	if err != nil {
		t.Fatal(err)
	}
	if n := together.BatchesPerEpoch(100, 10, 1); n != 1 {
		t.Errorf("%d batches an epoch of all three clusters, want 1", n)
	}
	s := p.NewSampler()
	var seen []uint32
	var b Batch
	for batch := range 3 {
		b.ID = ID{Phase: "train", Batch: batch}
		if err := s.Sample(&b, b.ID.Key(1), nil); err != nil {
			t.Fatal(err)
		}
		for _, u := range b.Inputs() {
			if part[u] != part[b.Inputs()[0]] {
				t.Fatalf("batch %d has nodes of clusters %d and %d", batch, part[u], part[b.Inputs()[0]])
			}
		}
		seen = append(seen, b.Inputs()...)
	}
	slices.Sort(seen)
	if !slices.Equal(seen, allNodes(g)) {
		t.Errorf("an epoch visits %v", seen)
	}
}

func TestClusterBoundary(t *testing.T) {
	g := skewed(600, 20, 2)
	var train []uint32
	for u := uint32(0); u < 600; u += 2 {
		train = append(train, u)
	}
	part := make([]uint32, 600)
	for v := range part {
		part[v] = uint32(v) % 10
	}
	ds := &graph.Dataset{Graph: g, Train: train}
	p, err := Prepare(t.Context(), Spec{Name: "cluster", Layers: 2, Clusters: 10, Boundary: true, EdgeIDs: true}, ds, 1, WithPartition(part))
	if err != nil {
		t.Fatal(err)
	}
	hops := mustPrepare(t, Spec{Name: "khop", Layers: 2, EdgeIDs: true}, g).NewSampler()
	s := p.NewSampler()
	var a, b Batch
	var seen []uint32
	for batch := range p.BatchesPerEpoch(len(train), 1, 1) {
		a.ID.Batch = batch
		if err := s.Sample(&a, 1, nil); err != nil {
			t.Fatal(err)
		}
		for _, u := range a.Seeds {
			if part[u] != part[a.Seeds[0]] || u%2 != 0 {
				t.Fatalf("seed %d is not a training node of cluster %d", u, part[a.Seeds[0]])
			}
		}
		seen = append(seen, a.Seeds...)
		if err := hops.Sample(&b, 1, a.Seeds); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.Blocks[0].EdgeIDs, b.Blocks[0].EdgeIDs) {
			t.Fatal("the batch is not the unsampled neighbourhood of its seeds")
		}
	}
	slices.Sort(seen)
	if !slices.Equal(seen, train) {
		t.Error("an epoch does not train on every training node once")
	}
}

// A partition that is saved with the data is used when it fits what is asked for,
// and the Spec, which is part of a run's identity, tells which one it was.
func TestClusterUsesSavedPartition(t *testing.T) {
	g := skewed(200, 10, 3)
	saved := make([]uint32, 200)
	for v := range saved {
		saved[v] = uint32(v % 5)
	}
	ds := &graph.Dataset{Graph: g, Partitions: []graph.Partition{{Method: "louvain", Parts: 5, Cluster: saved}}}
	var sum string
	for _, c := range []struct {
		spec Spec
		used bool
	}{
		{Spec{}, true}, {Spec{Clusters: 5}, true}, {Spec{PartitionBy: "louvain"}, true},
		{Spec{Clusters: 4}, false}, {Spec{PartitionBy: "metis", Clusters: 5}, false},
	} {
		c.spec.Name, c.spec.Layers = "cluster", 2
		p, err := Prepare(t.Context(), c.spec, ds, 1)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(p.Partition(), saved) != c.used {
			t.Errorf("%+v: the saved partition is used: %v", c.spec, !c.used)
		}
		if c.used {
			if p.Spec().PartitionBy != "louvain" || p.Spec().Clusters != 5 || p.BatchesPerEpoch(200, 10, 1) != 5 {
				t.Errorf("%+v became %+v", c.spec, p.Spec())
			}
			sum = p.Spec().PartitionSHA256
		} else if p.Spec().PartitionSHA256 == sum {
			t.Errorf("%+v: two partitions have one hash", c.spec)
		}
	}
	spec := Spec{Name: "cluster", Layers: 2, PartitionSHA256: sum}
	if _, err := Prepare(t.Context(), spec, ds, 1); err != nil {
		t.Error(err)
	}
	saved[0] = 4
	if _, err := Prepare(t.Context(), spec, ds, 1); err == nil || !strings.Contains(err.Error(), "not "+sum) {
		t.Errorf("another partition: %v", err)
	}
}

// The hash is of four bytes a node, least first, however many nodes there are.
func TestPartitionSum(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 4097, 10_000} {
		part := make([]uint32, n)
		var bytes []byte
		for v := range part {
			part[v] = uint32(v * v * 77777)
			for shift := 0; shift < 32; shift += 8 {
				bytes = append(bytes, byte(part[v]>>shift))
			}
		}
		if got, want := partitionSum(part), fmt.Sprintf("%x", sha256.Sum256(bytes)); got != want {
			t.Errorf("%d nodes: %s, want %s", n, got, want)
		}
	}
}

func TestClusterErrors(t *testing.T) {
	g := skewed(100, 10, 3)
	for _, c := range []struct {
		spec Spec
		opts []Option
		want string
	}{
		{Spec{Layers: 1}, nil, "like clusters=1000"},
		{Spec{Layers: 1, Clusters: 3, PerBatch: 4}, nil, "like clusters=1000"},
		{Spec{Clusters: 3, Fanouts: []int{2}}, nil, "number of layers"},
		{Spec{Layers: 1, Clusters: 3, PartitionBy: "luck"}, nil, "no method"},
		{Spec{Layers: 1, Clusters: 3}, []Option{WithPartition(make([]uint32, 99))}, "99 nodes"},
		{Spec{Layers: 1, Clusters: 3}, []Option{WithPartition(slices.Repeat([]uint32{3}, 100))}, "cluster 3"},
		{Spec{Layers: 1, Clusters: 3, Boundary: true, Clip: 4}, nil, "do not apply"},
	} {
		c.spec.Name = "cluster"
		if _, err := Prepare(t.Context(), c.spec, &graph.Dataset{Graph: g}, 1, c.opts...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, want one with %q", c.spec, err, c.want)
		}
	}
}
