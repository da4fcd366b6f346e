package parts_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
)

// The only node of a cluster holds all pieces; with another one beside it each would hold one.
func ExampleHold() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	set, common, remove := twoPieces(ctx)
	defer remove()
	plane, err := dataplane.Listen(dataplane.Options{Cluster: "c", Node: "a", Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer plane.Close()
	meeting := membership.NewMemStore()
	defer meeting.Close()
	member, err := membership.Join(ctx, meeting, membership.Config{
		Cluster: "c", Info: membership.Info{Node: "a", Home: "a", Data: plane.Address(), Control: "a:1"}, TTL: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer member.Leave(ctx)
	p, err := parts.Hold(ctx, parts.Options{
		Member: member, Plane: plane, Files: dataplane.ServeDirectories(plane), Set: set, Common: common, Replicas: 1, MinNodes: 1,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	if err := p.Ready(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("open:", p.Piece(0).Masters, "and", p.Piece(1).Masters, "nodes")
	// Output: open: 2048 and 1952 nodes
}

func twoPieces(ctx context.Context) (set *pieces.Set, common pieces.Common, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	whole := filepath.Join(dir, "whole")
	if err := store.Create(ctx, whole, generate.Builtin()); err != nil {
		log.Fatal(err)
	}
	err = store.View(whole, func(s *store.Store) (err error) {
		set, err = pieces.Create(ctx, filepath.Join(dir, "set"), s, pieces.Options{Pieces: 2, Method: "contiguous"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	p, err := set.OpenPiece(0)
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	if common, err = pieces.CommonOf(p); err != nil {
		log.Fatal(err)
	}
	return set, common, func() { os.RemoveAll(dir) }
}
