package dataplane

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// Whatever a peer says when it connects, who is let in is a node of this cluster
// with a name that can be one, and limits above zero.
func FuzzGreeting(f *testing.F) {
	p := planes(f, nil, "m")[0]
	good := []string{transport.WireVersion, "test", "a", "1f", "127.0.0.1:1", "3", "100", ""}
	f.Add(strings.Join(good, "\n"))
	f.Add(strings.Join(append(good[:7:7], "1"), "\n"))
	f.Add("1\ntest\nm\n0\n\n1\n1\n")
	f.Add("")
	keys := []string{transport.MetaVersion, metaCluster, metaNode, metaIncarnation, metaAddress, metaAsks, metaRequest, metaDialBack}
	f.Fuzz(func(t *testing.T, text string) {
		md := metadata.MD{}
		for i, v := range strings.Split(text, "\n") {
			md.Append(keys[i%len(keys)], v) // too many are doubles
		}
		g, err := p.greet(t.Context(), md)
		if err != nil {
			return
		}
		if transport.CheckNode(g.node) != nil || g.node == "m" || g.maxAsks < 1 || g.maxBytes < 1 || md.Get(metaCluster)[0] != "test" {
			t.Fatalf("%+v is let in", g)
		}
		_ = newSession(p, g, nil, nil) // its limits are believed here
	})
}

// A node of another wire version is told both, and what to do.
func TestOtherWireVersion(t *testing.T) {
	p := planes(t, nil, "m")[0]
	md := p.hello(false)
	md.Set(metaNode, "a")
	if _, err := p.greet(t.Context(), md); err != nil {
		t.Fatal(err)
	}
	md.Set(transport.MetaVersion, "2")
	_, err := p.greet(t.Context(), md)
	if want := `node a speaks "2", and this one "` + transport.WireVersion + `"; run one version of gnnactor on all nodes`; !errors.Is(err, transport.ErrVersion) || !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
