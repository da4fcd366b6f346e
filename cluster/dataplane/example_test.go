package dataplane_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
)

// Two nodes on this machine: b answers what a asks.
func ExamplePlane() {
	const upper dataplane.Method = 1000
	a, err := dataplane.Listen(dataplane.Options{Cluster: "c", Node: "a", Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := dataplane.Listen(dataplane.Options{Cluster: "c", Node: "b", Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	b.Handle(upper, func(_ context.Context, r *dataplane.Request) (dataplane.Reply, error) {
		return dataplane.Reply{Data: [][]byte{bytes.ToUpper(r.Body)}}, nil
	})
	a.SetPeer("b", b.Address())
	answer, err := a.Ask(context.Background(), dataplane.Call{Node: "b", Method: upper, Body: [][]byte{[]byte("rows")}, Max: 100})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output: ROWS
}
