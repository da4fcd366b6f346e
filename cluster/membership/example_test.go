package membership_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// Two nodes that meet in a store inside the process; package etcd has one for many.
func ExampleJoin() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	store := membership.NewMemStore()
	defer store.Close()
	for _, name := range []string{"a", "b"} {
		m, err := membership.Join(ctx, store, membership.Config{
			Cluster: "c", Info: membership.Info{Node: name, Home: name, Data: name + ":1", Control: name + ":2"}, TTL: time.Minute,
		})
		if err != nil {
			log.Fatal(err)
		}
		defer m.Leave(ctx)
	}
	view, err := membership.Look(ctx, store, "c")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(view.Members[0].Node, view.Members[1].Node, "led by", view.Leader)
	// Output: a b led by a
}
