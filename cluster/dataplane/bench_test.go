package dataplane

import (
	"context"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/certs"
)

// BenchmarkReply measures one reply of 1 GiB in 1 MiB frames over loopback,
// both nodes in this process.
func BenchmarkReply(b *testing.B) {
	dir := b.TempDir()
	a, err := certs.NewAuthority("bench", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	if err := a.Save(dir); err != nil {
		b.Fatal(err)
	}
	for _, mode := range []string{"plain", "tls"} {
		b.Run(mode, func(b *testing.B) {
			p := planes(b, func(o *Options) {
				if mode == "tls" {
					f, err := a.Issue(dir, o.Node, []string{"127.0.0.1"}, time.Hour)
					if err != nil {
						b.Fatal(err)
					}
					if o.Certs, err = certs.Load(f); err != nil {
						b.Fatal(err)
					}
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
