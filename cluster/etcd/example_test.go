package etcd_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/membership"
)

// A node that begins a cluster: it has the store inside, and joins by it.
func ExampleServe() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server, err := etcd.Serve(ctx, etcd.Options{
		Node: "a", Dir: filepath.Join(dir, "store"), ClientListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := etcd.Dial(ctx, []string{server.Endpoint()}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	a, err := membership.Join(ctx, client, membership.Config{Cluster: "c", Info: membership.Info{Node: "a"}, TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Leave(ctx)
	view, err := membership.Look(ctx, client, "c")
	fmt.Println(view.Leader, err)
	// Output: a <nil>
}
