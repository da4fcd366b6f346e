package shard_test

import (
	"fmt"

	"github.com/gnnactor/gnnactor/cluster/shard"
)

// Four shards with two replicas each: every node holds its even share.
func ExampleAssign() {
	held := map[string]int{}
	for _, nodes := range shard.Assign(4, 2, []string{"a", "b", "c", "d"}) {
		for _, n := range nodes {
			held[n]++
		}
	}
	fmt.Println(held)
	// Output: map[a:2 b:2 c:2 d:2]
}
