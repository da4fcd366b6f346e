package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster"
)

// Two nodes sample, two train, one holds the rows. No trainer samples, one of the samplers
// is drained and the other takes over, a third comes; parameters and accuracies are those of one
// process. No trainer has the topology, nor has who holds rows; all evaluate after every epoch.
func TestClusterRoles(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir, began := t.TempDir(), time.Now()
	data := filepath.Join(dir, "data")
	mustInvoke(t, "generate", "sbm", data, "--nodes", "3000", "--features", "16")
	settings := []string{"--data", data, "--micro-batches", "6", "--batch-size", "60", "--epochs", "60", "--eval-every", "1", "--fanouts", "3,3", "--hidden", "16",
		"--threads", "1", "--output", "json", "--baseline=false"}
	alone, _ := mustInvoke(t, slices.Concat([]string{"train"}, settings)...)

	store := begin(t, "cluster", "start", "--node", "s", "--dir", filepath.Join(dir, "s"), "--listen", "127.0.0.1:0", "--peers", "127.0.0.1:0")
	log := store.log.await(t, ctx, "train with --cluster")
	_, at, _ := strings.Cut(log, "serves at ")
	at, _, _ = strings.Cut(at, ";")
	place := func(name, roles string) []string {
		return []string{"--node", name, "--node-dir", filepath.Join(dir, name), "--lease", "60s", "--roles", roles}
	}
	join := func(name, roles string, more ...string) *command {
		return begin(t, slices.Concat([]string{"cluster", "join", at, "--output", "json"}, place(name, roles), more)...)
	}
	for roles, want := range map[string]string{"trainers": "none of sampler, trainer, rows", "": "none of sampler, trainer, rows"} {
		if code, _, errs := invoke(t, slices.Concat([]string{"cluster", "join", at}, place("x", roles))...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("--roles %q: exit %d, %s", roles, code, errs)
		}
	}
	// Of a cluster of its own, in which nobody samples.
	lacks := begin(t, slices.Concat([]string{"train", "--cluster", at, "--cluster-name", "nobody"}, place("y", "trainer,rows"), []string{"--lease", "2s"})...)
	for _, bad := range [][]string{{"rows=1"}, {"samplers=0"}, {"samplers=1", "--roles", "rows"}} {
		if code, _, errs := invoke(t, slices.Concat([]string{"cluster", "join", at}, place("x", "sampler"), []string{"--capacity"}, bad)...); code != exitUsage || !strings.Contains(errs, "capacity "+bad[0]) {
			t.Errorf("--capacity %v: exit %d, %s", bad, code, errs)
		}
	}
	a, b, e := join("a", "sampler"), join("b", "sampler", "--capacity", "samplers=1"), join("e", "rows")
	c := beginHeld(t, "epoch 1/", slices.Concat([]string{"train", "--cluster", at, "--shards", "2", "--wait-for", "2"}, settings, place("c", "trainer"))...)
	d := join("d", "trainer")
	c.log.await(t, ctx, "epoch 1/")
	if text, _ := mustInvoke(t, "cluster", "status", at, "--node", "x"); !strings.Contains(text, "sampler c:0") || !strings.Contains(text, "run/trainer/0") {
		t.Errorf("status:\n%s", text)
	}
	for { // the leader's table follows what it hears
		var status clusterStatus
		out, _ := mustInvoke(t, "cluster", "status", at, "--node", "x", "--output", "json")
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			t.Fatal(err)
		}
		found, nodes := map[string]int{}, map[string]bool{}
		for _, x := range status.Actors {
			if x.Node != "" && x.Since >= began.Unix() && x.Since <= time.Now().Unix() {
				found[x.Kind]++
				nodes[x.Kind+" on "+x.Node] = true
			}
		}
		if found["coordinator"] == 1 && found["parameters"] == 1 && found["trainer"] == 2 && found["sampler"] >= 2 && found["shard"] == 2 &&
			nodes["trainer on c"] && nodes["trainer on d"] && nodes["shard on e"] && slices.ContainsFunc(status.Nodes, func(n cluster.Status) bool { return n.Node == "b" && n.Most == 1 }) && !nodes["sampler on c"] && !nodes["sampler on d"] {
			break
		}
		if ctx.Err() != nil || len(status.Nodes) == 0 { // the run is over
			t.Fatalf("the actors are %+v", status.Actors)
		}
	}
	// The only node that holds rows does not drain. Interrupted it goes, and says what nobody has now: c copies it to the next.
	if code, _, errs := invoke(t, "cluster", "drain", at, "e", "--node", "x"); code != exitFailed || !strings.Contains(errs, "e is the last that holds rows") {
		t.Errorf("drain of e: exit %d, %s", code, errs)
	}
	e.interrupt()
	if code := e.ends(t, ctx); code != exitInterrupted || !strings.Contains(e.log.String(), "2 shards of the features are nowhere") || !strings.Contains(e.out.String(), `"shards_left":2`) {
		t.Errorf("e: exit %d, %s\n%s", code, e.out, e.log)
	}
	e = join("e", "rows")
	b.log.await(t, ctx, "this node samples for the trainers")
	if code, _, errs := invoke(t, "cluster", "drain", at, "a", "--node", "x"); code != exitFailed || !strings.Contains(errs, "the samplers that a takes fit on no other node") {
		t.Errorf("drain of a, where b takes one sampler of two: exit %d, %s", code, errs)
	}
	f := join("f", "sampler")
	f.log.await(t, ctx, "this node samples for the trainers")
	c.goOn()
	mustInvoke(t, "cluster", "drain", at, "a", "--node", "x")
	if out := a.wait(t, ctx); !strings.Contains(out, `"drained":true`) {
		t.Errorf("a: %s", out)
	}
	var one trainResult
	if err := json.Unmarshal([]byte(alone), &one); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]*command{"c": c, "d": d} {
		out := x.wait(t, ctx)
		var r trainResult
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%s: %v in %s", name, err, out)
		}
		if r.ParametersSHA256 != one.ParametersSHA256 || r.LineageSHA256 != one.LineageSHA256 {
			t.Errorf("%s: parameters %s, not those of one process, %s", name, r.ParametersSHA256, one.ParametersSHA256)
		}
		if r.ValidAccuracy != one.ValidAccuracy || r.TestAccuracy != one.TestAccuracy {
			t.Errorf("%s: accuracies %v and %v, not %v and %v", name, r.ValidAccuracy, r.TestAccuracy, one.ValidAccuracy, one.TestAccuracy)
		}
		// What is left of sampling is the order of an epoch's seeds.
		if r.Cluster.Drawn < r.Cluster.MicroBatches || r.Cluster.SamplerMoves == 0 || r.Stages["sample"] > one.Stages["sample"]/5 {
			t.Errorf("%s: %d of %d micro-batches were drawn elsewhere, after %d moves, and it sampled for %v s of %v",
				name, r.Cluster.Drawn, r.Cluster.MicroBatches, r.Cluster.SamplerMoves, r.Stages["sample"], one.Stages["sample"])
		}
	}
	for name, x := range map[string]*command{"b": b, "e": e, "f": f} {
		if out := x.wait(t, ctx); !strings.Contains(out, `"drained":false`) {
			t.Errorf("%s: %s", name, out)
		}
	}
	for name, has := range map[string]bool{"a": true, "b": true, "d": false, "e": false} { // of copies; c has data of its own
		for _, file := range []string{"indptr.bin", "indices.bin"} {
			if _, err := os.Stat(filepath.Join(dir, name, "store", file)); (err == nil) != has {
				t.Errorf("%s: %s: %v", name, file, err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, name, "store", "labels.bin")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if code := lacks.ends(t, ctx); code != exitUsage || !strings.Contains(lacks.log.String(), "no node samples") || !strings.Contains(lacks.log.String(), "add a node with --roles sampler") {
		t.Errorf("without a sampler: exit %d, %s", code, lacks.log)
	}
	store.interrupt()
	store.wait(t, ctx)
}
