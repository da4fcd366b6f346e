package dataplane

import (
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/gnnactor/gnnactor/cluster/certs"
)

// Whatever a peer says when it connects, who is let in is a node of this cluster
// with a name that can be one, and limits above zero.
func FuzzGreeting(f *testing.F) {
	p := planes(f, nil, "m")[0]
	good := []string{version, "test", "a", "1f", "127.0.0.1:1", "3", "100", ""}
	f.Add(strings.Join(good, "\n"))
	f.Add(strings.Join(append(good[:7:7], "1"), "\n"))
	f.Add("1\ntest\nm\n0\n\n1\n1\n")
	f.Add("")
	keys := []string{metaVersion, metaCluster, metaNode, metaIncarnation, metaAddress, metaAsks, metaRequest, metaDialBack}
	f.Fuzz(func(t *testing.T, text string) {
		md := metadata.MD{}
		for i, v := range strings.Split(text, "\n") {
			md.Append(keys[i%len(keys)], v) // too many are doubles
		}
		g, err := p.greet(t.Context(), md)
		if err != nil {
			return
		}
		if certs.CheckNode(g.node) != nil || g.node == "m" || g.maxAsks < 1 || g.maxBytes < 1 || md.Get(metaCluster)[0] != "test" {
			t.Fatalf("%+v is let in", g)
		}
		_ = newSession(p, g, nil, nil) // its limits are believed here
	})
}
