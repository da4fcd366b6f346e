package store_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/store"
)

// A dataset is written once and mapped whenever it is needed.
func ExampleCreate() {
	parent, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(parent)
	dir := filepath.Join(parent, "store")
	ds := generate.Builtin()
	if err := store.Create(context.Background(), dir, ds); err != nil {
		log.Fatal(err)
	}
	err = store.View(dir, func(s *store.Store) error {
		mapped := s.Dataset()
		fmt.Println(mapped.Graph.NumNodes(), "nodes; the same content:", mapped.Fingerprint == ds.Fingerprint)
		return s.Verify(context.Background())
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 4000 nodes; the same content: true
}

// A ring of nodes is written a part at a time, as one that does not fit into memory.
func ExampleWriter() {
	parent, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(parent)
	dir := filepath.Join(parent, "ring")
	if err := writeRing(dir, 1000); err != nil {
		log.Fatal(err)
	}
	err = store.View(dir, func(s *store.Store) error {
		g := s.Dataset().Graph
		fmt.Println(g.NumNodes(), "nodes;", g.InNeighbors(7), "leads to 7")
		return s.CheckGraph(context.Background())
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 1000 nodes; [6] leads to 7
}

func writeRing(dir string, nodes int) error {
	w, err := store.NewWriter(dir)
	if err != nil {
		return err
	}
	defer w.Abort() // unless it was committed
	bounds, err := w.Array("indptr", graph.Int64, 1)
	if err != nil {
		return err
	}
	defer bounds.Close()
	sources, err := w.Array("indices", graph.Uint32, 1)
	if err != nil {
		return err
	}
	defer sources.Close()
	for v := range nodes + 1 {
		if err := binary.Write(bounds, binary.LittleEndian, int64(v)); err != nil {
			return err
		}
	}
	for v := range nodes {
		if err := binary.Write(sources, binary.LittleEndian, uint32((v+nodes-1)%nodes)); err != nil {
			return err
		}
	}
	if err := bounds.Finish(); err != nil {
		return err
	}
	if err := sources.Finish(); err != nil {
		return err
	}
	return w.Commit(context.Background())
}
