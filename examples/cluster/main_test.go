package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/runtime"
)

// Three nodes, in one process, come to the lineage of one alone: the same statistics of
// the same batches on the same parameters.
func TestTrain(t *testing.T) {
	rt, err := runtime.Start(t.Context(), options().Config)
	if err != nil {
		t.Fatal(err)
	}
	var lineage string
	for e, err := range rt.Train(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		lineage = e.Lineage
	}
	if err := rt.Stop(); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	store, err := etcd.Serve(t.Context(), etcd.Options{Node: "a", Dir: filepath.Join(dir, "store"), ClientListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithCancelCause(t.Context()) // one that fails takes the others with it
	defer cancel(nil)
	var nodes sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		nodes.Go(func() {
			o := options()
			o.Node, o.Dir, o.Store, o.WaitFor, o.Config.Execution.Threads = name, filepath.Join(dir, name), []string{store.Endpoint()}, 3, 1
			o.TTL = time.Minute // three nodes share this machine's cores: who is late is not dead
			var out bytes.Buffer
			if err := train(ctx, o, &out); err != nil {
				cancel(errors.Join(errors.New("node "+name), err))
			} else if !strings.Contains(out.String(), ", lineage "+lineage[:12]) {
				t.Errorf("%s; one process alone has the lineage %s", out.String(), lineage)
			}
		})
	}
	nodes.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Error(err)
	}
}
