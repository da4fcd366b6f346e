package parts_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/parts"
)

// Node a computes pieces 0 and 2, node b piece 1, which sends rows to piece 2.
func ExampleExchanges_Open() {
	ctx := context.Background()
	var planes []*dataplane.Plane
	for _, name := range []string{"a", "b"} {
		p, err := dataplane.Listen(dataplane.Options{Cluster: "c", Node: name, Listen: "127.0.0.1:0"})
		if err != nil {
			log.Fatal(err)
		}
		defer p.Close()
		planes = append(planes, p)
	}
	planes[0].SetPeer("b", planes[1].Address())
	planes[1].SetPeer("a", planes[0].Address())
	// Both serve before either opens: an exchange asks the others for rows from then on.
	var servers []*parts.Exchanges
	for _, p := range planes {
		servers = append(servers, parts.ServeExchanges(p))
	}
	var nodes []*parts.Exchange
	for _, s := range servers {
		e, err := s.Open(parts.ExchangeOptions{Name: "layer", Nodes: []string{"a", "b", "a"}})
		if err != nil {
			log.Fatal(err)
		}
		defer e.Close(nil)
		nodes = append(nodes, e)
	}
	if err := nodes[1].Send(ctx, "forward", 1, 2, []float32{1, 2, 3}); err != nil {
		log.Fatal(err)
	}
	rows := make([]float32, 3)
	if err := nodes[0].Receive(ctx, "forward", 1, 2, rows); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows)
	// Output: [1 2 3]
}
