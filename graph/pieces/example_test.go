package pieces_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
)

// A store is divided into two pieces, each with the edges into its nodes, and one of them is opened.
func ExampleCreate() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := store.Create(ctx, filepath.Join(dir, "whole"), generate.Builtin()); err != nil {
		log.Fatal(err)
	}
	err = store.View(filepath.Join(dir, "whole"), func(s *store.Store) error {
		set, err := pieces.Create(ctx, filepath.Join(dir, "set"), s, pieces.Options{Pieces: 2, Method: "contiguous"})
		if err != nil {
			return err
		}
		p, err := set.OpenPiece(1)
		if err != nil {
			return err
		}
		defer p.Close()
		fmt.Println(set.NumNodes(), "nodes; piece 1 has", p.Masters, "from", p.Of.First)
		return set.Verify(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 4000 nodes; piece 1 has 1952 from 2048
}
