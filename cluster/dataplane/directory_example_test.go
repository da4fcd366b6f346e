package dataplane_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
)

// Node b copies what a serves. Interrupted, it would go on where it stopped.
func ExampleCopyDirectory() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "indptr"), []byte("0 2 5"), 0o600); err != nil {
		log.Fatal(err)
	}
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
	dataplane.ServeDirectories(a).Add("", dir, []string{"indptr"})
	b.SetPeer("a", a.Address())
	to := filepath.Join(dir, "copy")
	if err := dataplane.CopyDirectory(context.Background(), b, []string{"a"}, "", to, nil, nil); err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(to, "indptr"))
	fmt.Printf("%s %v\n", text, err)
	// Output: 0 2 5 <nil>
}
