package importer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/store"
)

func ExampleImport() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	edges := filepath.Join(dir, "edges.csv")
	if err := os.WriteFile(edges, []byte("source,target\n0,1\n1,2\n"), 0o666); err != nil {
		log.Fatal(err)
	}
	imported := filepath.Join(dir, "store")
	if err := importer.Import(context.Background(), edges, imported, importer.Options{Undirected: true}); err != nil {
		log.Fatal(err)
	}
	s, err := store.Open(imported)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	ds := s.Dataset()
	fmt.Println(ds.Graph.NumNodes(), ds.Graph.NumEdges(), ds.Graph.InNeighbors(1))
	// Output: 3 4 [0 2]
}
