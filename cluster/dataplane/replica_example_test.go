package dataplane_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
)

// Node b keeps a copy of a's checkpoint, and a fetches it when its own is lost.
func ExampleSendReplica() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
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
	if _, err := dataplane.ServeReplicas(b, filepath.Join(dir, "copies")); err != nil {
		log.Fatal(err)
	}
	a.SetPeer("b", b.Address())
	run, checkpoint := dataplane.RunID{1}, strings.NewReader("parameters")
	c, err := dataplane.DescribeReplica(run, 7, checkpoint)
	if err != nil {
		log.Fatal(err)
	}
	if err := dataplane.SendReplica(ctx, a, "b", c, checkpoint); err != nil {
		log.Fatal(err)
	}
	kept, err := dataplane.ListReplicas(ctx, a, "b", run)
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "fetched")
	if err := dataplane.FetchReplica(ctx, a, "b", kept[0], path); err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(path)
	fmt.Printf("step %d: %s %v\n", kept[0].Step, text, err)
	// Output: step 7: parameters <nil>
}
