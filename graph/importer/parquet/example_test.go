package parquet_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"github.com/gnnactor/gnnactor/graph/importer"
	_ "github.com/gnnactor/gnnactor/graph/importer/parquet"
	"github.com/gnnactor/gnnactor/graph/store"
)

// A program that imports this package imports edges from Parquet as from CSV.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	type edge struct {
		Source int64 `parquet:"source"`
		Target int64 `parquet:"target"`
	}
	edges := filepath.Join(dir, "edges.parquet")
	if err := parquet.WriteFile(edges, []edge{{0, 1}, {1, 2}, {2, 0}}); err != nil {
		log.Fatal(err)
	}
	if err := importer.Import(context.Background(), edges, filepath.Join(dir, "store"), importer.Options{}); err != nil {
		log.Fatal(err)
	}
	err = store.View(filepath.Join(dir, "store"), func(s *store.Store) error {
		g := s.Dataset().Graph
		fmt.Println(g.NumNodes(), "nodes; into 0 from", g.InNeighbors(0))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 3 nodes; into 0 from [2]
}
