package dataplane

import (
	"context"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/transport/transporttest"
)

// BenchmarkReply measures one reply of 1 GiB in 1 MiB frames over loopback,
// both nodes in this process.
func BenchmarkReply(b *testing.B) {
	issue := transporttest.Reloaders(b)
	for _, mode := range []string{"plain", "tls"} {
		b.Run(mode, func(b *testing.B) {
			p := planes(b, func(o *Options) {
				if mode == "tls" {
					o.Certs = issue(o.Node)
				}
			}, "a", "b")
			const n = 64 << 20
			data := pattern(n)
			p[1].Handle(methodSize, func(context.Context, *Request) (Reply, error) { return Reply{Data: [][]byte{data}}, nil })
			into := make([]byte, n)
			ask := func() {
				if _, err := p[0].Ask(b.Context(), Call{Node: "b", Method: methodSize, Into: into}); err != nil {
					b.Fatal(err)
				}
			}
			ask()
			b.SetBytes(n)
			for b.Loop() {
				ask()
			}
		})
	}
}
