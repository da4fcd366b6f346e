package control_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/cluster/control"
)

// Two nodes on this machine: a asks an actor that is placed on b.
func ExamplePlane() {
	peers := map[string]control.Peer{}
	var planes []*control.Plane
	for i, node := range []string{"a", "b"} {
		p, err := control.Listen(control.Options{
			Cluster: "c", Node: node, Epoch: int64(i + 1), Listen: "127.0.0.1:0",
			Place: func(_, _ string) string { return "b" },
		})
		if err != nil {
			log.Fatal(err)
		}
		defer p.Close()
		p.Handle("upper", func(_ context.Context, identity, from string, body []byte) ([]byte, error) {
			return fmt.Appendf(nil, "%s, says actor %s to %s", bytes.ToUpper(body), identity, from), nil
		})
		peers[node] = control.Peer{Address: p.Address(), Epoch: int64(i + 1)}
		planes = append(planes, p)
	}
	for _, p := range planes {
		p.SetPeers(peers)
	}
	answer, err := planes[0].Ask(context.Background(), "upper", "x", []byte("rows"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output: ROWS, says actor x to a
}
