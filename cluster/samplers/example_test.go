package samplers_test

import (
	"fmt"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
)

// A trainer without the role has its samplers on the nodes that have it, shared out alike.
func ExampleAt() {
	role := []string{samplers.Kind}
	v := &membership.View{Members: []membership.Info{{Node: "a", Kinds: role}, {Node: "b", Kinds: role}, {Node: "c", Samplers: 4}}}
	on := map[string]int{}
	for i := range 4 {
		on[samplers.At(v, samplers.Name("c", i), "")]++
	}
	fmt.Println("on a:", on["a"], "on b:", on["b"])
	fmt.Println("c:0, moved, is on", samplers.At(v, "c:0", "b"))
	// Output:
	// on a: 2 on b: 2
	// c:0, moved, is on b
}
