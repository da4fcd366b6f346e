package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// The object on the last line has the promised fields, and no others.
func TestTrainJSON(t *testing.T) {
	store := storeOf(t, twoRings(t))
	out, _ := mustInvoke(t, "train", "--data", store, "--epochs", "30", "--batch-size", "20", "--output", "json")
	if strings.Count(out, "\n") != 1 {
		t.Errorf("more than the object was printed:\n%s", out)
	}
	v := lastLine(t, out)
	want := []string{"batches", "epochs", "lineage_sha256", "overlap", "parameters_sha256", "peak_rss_bytes", "seconds", "stages", "test_accuracy", "train_loss", "valid_accuracy"}
	if !slices.Equal(keys(v), want) {
		t.Errorf("fields %v, want %v", keys(v), want)
	}
	if got := keys(v["stages"].(map[string]any)); !slices.Equal(got, []string{"compute", "load", "sample"}) {
		t.Errorf("stages %v", got)
	}
	if v["batches"] != 90.0 || v["epochs"] != 30.0 { // 60 training nodes
		t.Errorf("%v batches in %v epochs, want 90 in 30", v["batches"], v["epochs"])
	}
	if v["test_accuracy"].(float64) < 0.95 || v["train_loss"].(float64) > 0.3 {
		t.Errorf("test accuracy %v, loss %v on data that a linear model tells apart", v["test_accuracy"], v["train_loss"])
	}
	if len(v["parameters_sha256"].(string)) != 64 || v["peak_rss_bytes"].(float64) < 1<<20 || v["seconds"].(float64) <= 0 {
		t.Errorf("got %v", v)
	}
}

// Without a split there is no accuracy: null, not 0.
func TestTrainWithoutTestSplit(t *testing.T) {
	ds := twoRings(t)
	ds.Test, ds.Valid = nil, nil
	store := storeOf(t, ds)
	out, _ := mustInvoke(t, "train", "--data", store, "--epochs", "1", "--output", "json")
	if v := lastLine(t, out); v["test_accuracy"] != nil || v["valid_accuracy"] != nil || v["train_loss"] == nil {
		t.Errorf("got %v", v)
	}
	text, _ := mustInvoke(t, "train", "--data", store, "--epochs", "1")
	if !strings.Contains(text, "test                       0") && !strings.Contains(text, "–") {
		t.Errorf("got\n%s", text)
	}
}

// The whole life of a model: train, save, draw, measure, embed, predict.
func TestTrainSaveEvalEmbedPredict(t *testing.T) {
	dir := t.TempDir()
	store := storeOf(t, twoRings(t))
	model, plot := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "c.svg")
	text, errs := mustInvoke(t, "train", "--data", store, "--fanouts", "5,4,3", "--hidden", "8", "--epochs", "3", "--save", model, "--plot", plot, "--baseline")
	for _, want := range []string{"accuracy", "test, features only", "sample", "load", "compute", "overlap", "peak memory", "sha256"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	for _, want := range []string{"rings: 120 nodes, 242 edges, 2 features (float32), 2 classes", "layers: 3", "epoch 3/3", model, plot} {
		if !strings.Contains(errs, want) {
			t.Errorf("nothing was said of %q:\n%s", want, errs)
		}
	}
	if svg, err := os.ReadFile(plot); err != nil || !strings.Contains(string(svg), "<svg") {
		t.Errorf("no picture: %v", err)
	}
	trained, _ := mustInvoke(t, "train", "--data", store, "--fanouts", "5,4,3", "--hidden", "8", "--epochs", "3", "--output", "json")
	evaluated, _ := mustInvoke(t, "eval", "--data", store, "--params", model, "--output", "json")
	test := lastLine(t, evaluated)["test"].(map[string]any)
	if got, want := test["accuracy"], lastLine(t, trained)["test_accuracy"]; got != want {
		t.Errorf("eval measures %v, train %v", got, want)
	}
	if table, _ := mustInvoke(t, "eval", "--data", store, "--params", model); !strings.Contains(table, "valid") {
		t.Errorf("got\n%s", table)
	}

	npy := filepath.Join(dir, "e.npy")
	mustInvoke(t, "embed", "--data", store, "--params", model, "--out", npy)
	raw, err := os.ReadFile(npy)
	if err != nil {
		t.Fatal(err)
	}
	header := int(binary.LittleEndian.Uint16(raw[8:])) + 10
	if string(raw[:8]) != "\x93NUMPY\x01\x00" || header%64 != 0 || !strings.Contains(string(raw[:header]), "'<f4', 'fortran_order': False, 'shape': (120, 2)") || len(raw) != header+120*2*4 {
		t.Fatalf("no NumPy file of 120×2 float32: %d bytes, header %q", len(raw), raw[:header])
	}
	rows, _ := mustInvoke(t, "embed", "--data", store, "--params", model, "--ids", "7,100-101")
	lines := strings.Split(strings.TrimSpace(rows), "\n")
	if len(lines) != 3 {
		t.Fatalf("got\n%s", rows)
	}
	predictions, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--ids", "7,100-101", "--output", "json")
	predicted := lastLine(t, predictions)["predictions"].([]any)
	for i, id := range []int{7, 100, 101} {
		at := func(j int) float32 {
			return math.Float32frombits(binary.LittleEndian.Uint32(raw[header+4*(2*id+j):]))
		}
		if want := fmt.Sprintf("%d\t%v\t%v", id, at(0), at(1)); lines[i] != want {
			t.Errorf("printed %q, the file says %q", lines[i], want)
		}
		class := 0.0
		if at(1) > at(0) {
			class = 1
		}
		if p := predicted[i].(map[string]any); p["id"] != float64(id) || p["class"] != class {
			t.Errorf("predicted %v, the output says class %v", p, class)
		}
	}
	if all, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--split", "test"); strings.Count(all, "\n") != 30 {
		t.Errorf("%d lines for 30 test nodes", strings.Count(all, "\n"))
	}
}

// The built-in graph shows its features-only baseline, and the edges are worth
// something on it.
func TestTrainBuiltin(t *testing.T) {
	text, _ := mustInvoke(t, "train", "--epochs", "5")
	figure := func(row string) (x float64) {
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(line, row+" "); ok {
				f := strings.Fields(rest)
				if _, err := fmt.Sscan(f[1], &x); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
			}
		}
		return x
	}
	test, baseline := figure("test"), figure("test, features only")
	if baseline == 0 || test < baseline+5 {
		t.Errorf("test accuracy %v %%, features only %v %%\n%s", test, baseline, text)
	}
}

func TestPlan(t *testing.T) {
	store := storeOf(t, twoRings(t))
	text, _ := mustInvoke(t, "plan", "--data", store, "--samplers", "3")
	if !strings.Contains(text, "rings: 120 nodes") || !strings.Contains(text, "sampler") {
		t.Errorf("got\n%s", text)
	}
	out, _ := mustInvoke(t, "plan", "--data", store, "--samplers", "3", "--output", "json")
	if v := lastLine(t, out); v["samplers"] != 3.0 {
		t.Errorf("got %v", v)
	}
}

// Sampling needs neither features nor labels, and draws its seeds where there
// is no training split.
func TestSample(t *testing.T) {
	ds := twoRings(t)
	bare := storeOf(t, &graph.Dataset{Name: "bare", Graph: ds.Graph})
	out, _ := mustInvoke(t, "sample", "--data", bare, "--fanouts", "1", "--batch-size", "50", "--batches", "7", "--output", "json")
	v := lastLine(t, out)
	if want := []string{"batches_per_second", "mean_edges", "mean_input_nodes", "sampled_edges_per_second"}; !slices.Equal(keys(v), want) {
		t.Errorf("fields %v, want %v", keys(v), want)
	}
	// 7 batches of an epoch of 50, 50 and 20 seeds, each of which has an edge.
	if want := float64(2*120+50) / 7; math.Abs(v["mean_edges"].(float64)-want) > 1e-9 {
		t.Errorf("mean_edges %v, want %v", v["mean_edges"], want)
	}
	text, _ := mustInvoke(t, "sample", "--data", storeOf(t, ds), "--batch-size", "50", "--micro-batches", "2")
	if !strings.Contains(text, "batches per second") || !strings.Contains(text, "  2  in ") { // 60 training nodes
		t.Errorf("got\n%s", text)
	}
}

// Drawn seeds are distinct, sorted, as many as asked for, the same for the same
// seed, and uniform: with fixed seeds, so no error rate.
func TestDrawNodes(t *testing.T) {
	g := twoRings(t).Graph
	if got := drawNodes(g, 500, 1); len(got) != 120 || got[119] != 119 {
		t.Errorf("all nodes: got %v", got)
	}
	count := make([]int, 120)
	const runs, k = 4000, 30
	for seed := range uint64(runs) {
		nodes := drawNodes(g, k, seed)
		if len(nodes) != k || !slices.IsSorted(nodes) || len(slices.Compact(slices.Clone(nodes))) != k {
			t.Fatalf("seed %d: %v", seed, nodes)
		}
		if !slices.Equal(nodes, drawNodes(g, k, seed)) {
			t.Fatalf("seed %d: two draws differ", seed)
		}
		for _, v := range nodes {
			count[v]++
		}
	}
	mean := float64(runs) * k / 120
	deviation := math.Sqrt(mean * (1 - float64(k)/120))
	for v, c := range count {
		if math.Abs(float64(c)-mean) > 4.5*deviation {
			t.Errorf("node %d was drawn %d times of %v", v, c, mean)
		}
	}
}
