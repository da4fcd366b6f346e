package membership

import (
	"slices"
	"strings"
	"testing"
)

// Whatever nodes write to the store, a view is made of it: members by name, each
// under its own key; what is malformed is passed over.
func FuzzView(f *testing.F) {
	f.Add("members/a", []byte(`{"node":"a","home":"h","data":"127.0.0.1:1","kinds":["trainer"],"shards":[1,2]}`), "leader", []byte("a"))
	f.Add("members/a", []byte(`{"node":"b"}`), "places/shard/1", []byte(`{"node":"a"}`))
	f.Add("places/", []byte(`{}`), "places/x", []byte(`[`))
	f.Add("members/", []byte(`null`), "", []byte{})
	f.Fuzz(func(t *testing.T, key1 string, value1 []byte, key2 string, value2 []byte) {
		prefix := Prefix("test")
		entries := map[string]Entry{}
		for i, e := range []Entry{{Key: prefix + key1, Value: value1}, {Key: prefix + key2, Value: value2}, {Key: prefix + "members/z", Value: []byte(`{"node":"z"}`)}} {
			e.Created = int64(i + 1)
			entries[e.Key] = e
		}
		v := viewOf(prefix, entries, 9, func(node string) bool { return node != "b" })
		if !slices.IsSortedFunc(v.Members, func(a, b Info) int { return strings.Compare(a.Node, b.Node) }) {
			t.Fatalf("members %v", v.Members)
		}
		for _, m := range v.Members {
			if e, ok := entries[prefix+"members/"+m.Node]; !ok || e.Created != m.Epoch {
				t.Fatalf("%q is a member, and not under its key", m.Node)
			}
			if got, ok := v.Member(m.Node); !ok || got.Node != m.Node {
				t.Fatalf("member %q is not found", m.Node)
			}
		}
		m := &Member{prefix: prefix, entries: entries}
		for _, p := range m.Places() {
			if got, ok := m.Place(p.Kind, p.ID); !ok || got.Node != p.Node {
				t.Fatalf("place %+v is not found", p)
			}
		}
	})
}
