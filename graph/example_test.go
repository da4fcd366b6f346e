package graph_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gnnactor/gnnactor/graph"
)

func ExampleFromEdges() {
	// Edges 0→1, 2→1 and 1→0 of a graph of three nodes.
	g, err := graph.FromEdges(3, []uint32{2, 0, 1}, []uint32{1, 1, 0}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(g.NumNodes(), g.NumEdges(), g.InNeighbors(1))
	// Output: 3 3 [0 2]
}

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
	store := filepath.Join(dir, "store")
	if err := graph.Import(edges, store, graph.ImportOptions{Undirected: true}); err != nil {
		log.Fatal(err)
	}
	s, err := graph.Open(store)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	ds := s.Dataset()
	fmt.Println(ds.Graph.NumNodes(), ds.Graph.NumEdges(), ds.Graph.InNeighbors(1))
	// Output: 3 4 [0 2]
}
