package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gnnactor/gnnactor/cluster/audit"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/sampling"
)

// Of three nodes, c has lost its edges. What it samples is sampled again by the others.
func ExampleAuditor() {
	ctx, store := context.Background(), membership.NewMemStore()
	defer store.Close()
	nodes, planes, auditors := []string{"a", "b", "c"}, map[string]*dataplane.Plane{}, map[string]*audit.Auditor{}
	sample := func(node string, id sampling.ID) (*sampling.Batch, error) {
		ds := generate.Builtin()
		if node == "c" {
			ds.Graph = &graph.Graph{Indptr: make([]int64, len(ds.Graph.Indptr))}
		}
		p, err := sampling.Prepare(ctx, sampling.Spec{Name: "neighbor", Fanouts: []int{5}}, ds, 1)
		if err != nil {
			return nil, err
		}
		b := &sampling.Batch{ID: id}
		return b, p.NewSampler().Sample(b, id.Key(1), ds.Train[:4])
	}
	for _, node := range nodes {
		p, err := dataplane.Listen(dataplane.Options{Cluster: "c", Node: node, Listen: "127.0.0.1:0"})
		if err != nil {
			log.Fatal(err)
		}
		defer p.Close()
		m, err := membership.Join(ctx, store, membership.Config{Cluster: "c", Info: membership.Info{Node: node}, TTL: time.Minute})
		if err != nil {
			log.Fatal(err)
		}
		defer m.Leave(ctx)
		for other, o := range planes {
			o.SetPeer(node, p.Address())
			p.SetPeer(other, o.Address())
		}
		again := func(id sampling.ID) (audit.Digest, error) {
			b, err := sample(node, id)
			if err != nil {
				return 0, err
			}
			return audit.DigestOf(b), nil
		}
		a := audit.Start(audit.Options{Member: m, Plane: p, Identity: "run", Seed: 1, Rate: 1, Again: again, Expel: m.Expel})
		defer a.Close()
		a.Group(nodes, func() {})
		planes[node], auditors[node] = p, a
	}
	b, err := sample("c", sampling.ID{Phase: "train", Epoch: 3, Batch: 17})
	if err != nil {
		log.Fatal(err)
	}
	auditors["c"].Sampled(b, "")
	var v *audit.Verdict
	if err := auditors["c"].Settle(ctx); !errors.As(err, &v) {
		log.Fatal(err)
	}
	fmt.Println("of", v.Batch, len(v.Agree), "nodes agree, not", v.Lying[0].Node)
	// Output: of train/e3/b17 2 nodes agree, not c
}
