package trainers

import (
	"encoding/json"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/training"
)

// Whatever is written down as a group, or as what was published, it is a group or
// an error.
func FuzzGroup(f *testing.F) {
	p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: "a", Listen: "127.0.0.1:0"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Close)
	s := newReducer(p)
	f.Add([]byte(`{"members":[{"node":"a","epoch":1},{"node":"b","epoch":2}]}`))
	f.Add([]byte(`{"members":[{"node":"a","epoch":1},{"node":"a","epoch":-1}]}`))
	f.Add([]byte(`{"file":"step-1.safetensors","sha256":"00","step":1,"group":2}`))
	f.Add([]byte(`{"members":null}`))
	id := uint64(0)
	f.Fuzz(func(t *testing.T, b []byte) {
		var pub training.Published
		if json.Unmarshal(b, &pub) == nil {
			if again, err := json.Marshal(&pub); err != nil || again == nil {
				t.Fatal(err)
			}
		}
		var r membership.Record
		if json.Unmarshal(b, &r) != nil {
			return
		}
		var names []string
		for _, m := range r.Members {
			names = append(names, m.Node)
		}
		id++
		g, err := s.newGroup(id, names)
		if err != nil {
			return
		}
		if len(g.members) != len(names) || names[g.self] != "a" {
			t.Fatalf("%v makes a group of %d, with this node as number %d", names, len(g.members), g.self)
		}
		g.Close()
	})
}
