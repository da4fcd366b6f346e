package samplers_test

import (
	"fmt"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
)

// A trainer without the role has its samplers on the nodes that have it.
func ExampleAt() {
	role := []string{samplers.Kind}
	v := &membership.View{Members: []membership.Info{{Node: "a", Kinds: role}, {Node: "b", Kinds: role}, {Node: "c", Samplers: 3}}}
	for i := range 3 {
		name := samplers.Name("c", i)
		fmt.Println(name, "is on", samplers.At(v, name, ""))
	}
	fmt.Println("c:0, moved, is on", samplers.At(v, "c:0", "b"))
	// Output:
	// c:0 is on a
	// c:1 is on b
	// c:2 is on a
	// c:0, moved, is on b
}
