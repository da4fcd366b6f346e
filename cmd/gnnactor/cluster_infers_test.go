package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Nodes that infer together over pieces are told by name what one of them computes otherwise, before it is a node: another command, other nodes of
// the graph, another model.
func TestClusterInfersOneThing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	data := storeOf(t, twoRings(t))
	mustInvoke(t, "partition", "--data", data, "--parts", "2", "--out", path("set"))
	for name, model := range map[string]string{"one": "gcn", "other": "sage"} {
		mustInvoke(t, "train", "--data", data, "--model", model, "--epochs", "0", "--save", path(name+".safetensors"))
	}
	_, at := startStore(t, ctx, "--dir", path("s"))
	infer := func(node, params string, command ...string) *command {
		return begin(t, slices.Concat(command, []string{"--cluster", at, "--node", node, "--node-dir", path(node), "--data", path("set"),
			"--params", path(params + ".safetensors"), "--wait-for", "2"})...)
	}
	first := infer("a", "one", "embed", "--out", path("a.npy"))
	first.log.await(t, ctx, "waiting for nodes")
	for _, c := range []struct {
		want    string
		params  string
		command []string
	}{
		{"which node a began: that computes embed --out .npy, and this node eval; give all nodes the same command", "one", []string{"eval"}},
		{"computes embed --out .npy, and this node embed --ids 1,2 --out .npy", "one", []string{"embed", "--ids", "1,2", "--out", path("b.npy")}},
		{"which node a began with another model than the one here (" + path("other.safetensors") + "): runtime: invalid config: model is gcn, ", "other", []string{"embed", "--out", path("b.npy")}},
	} {
		b := infer("b", c.params, c.command...)
		if code := b.ends(t, ctx); code != exitUsage || !strings.Contains(b.log.String(), c.want) {
			t.Errorf("exit %d, want %q:\n%s", code, c.want, b.log)
		}
	}
	second := infer("b", "one", "embed", "--out", path("b.npy"))
	first.wait(t, ctx)
	second.wait(t, ctx)
}
