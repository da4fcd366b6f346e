package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/training"
)

// What eval, embed and predict say of a partition set is what they say of the store that it was made of: with
// the same ids to the bit, in memory and in files, and for permuted ids by the ids that the user knows; where edges lie elsewhere than
// at their targets, in float32's error.
func TestInferDivided(t *testing.T) {
	store, dir := storeOf(t, generate.Builtin()), t.TempDir()
	for _, model := range []string{"gcn", "gat"} {
		params := filepath.Join(dir, model+".safetensors")
		mustInvoke(t, "train", "--data", store, "--model", model, "--epochs", "1", "--save", params)
		whole := filepath.Join(dir, model+".npy")
		mustInvoke(t, "embed", "--data", store, "--params", params, "--out", whole)
		want, err := os.ReadFile(whole)
		if err != nil {
			t.Fatal(err)
		}
		figures, _ := mustInvoke(t, "eval", "--data", store, "--params", params, "--output", "json")
		some := []string{"--params", params, "--ids", "17,3990,5-9,17"}
		classes, _ := mustInvoke(t, append([]string{"predict", "--data", store}, some...)...)
		split, _ := mustInvoke(t, "predict", "--data", store, "--params", params, "--split", "valid")
		for _, method := range []string{"contiguous", "hash", "source", "grid"} {
			set, scratch, out := filepath.Join(dir, model+method), filepath.Join(dir, "scratch"), filepath.Join(dir, "out.npy")
			args := []string{"partition", "--data", store, "--parts", "3", "--method", method, "--out", set}
			if method == "source" || method == "grid" {
				args = append(args[:6], "hash", "--out", set, "--edges", method)
			}
			mustInvoke(t, args...)
			_, said := mustInvoke(t, "embed", "--data", set, "--params", params, "--out", out, "--scratch", scratch)
			if !strings.Contains(said, "in 3 pieces") {
				t.Errorf("embed said %q", said)
			}
			if _, err := os.Stat(scratch); !os.IsNotExist(err) {
				t.Errorf("the scratch directory is still there: %v", err)
			}
			got, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			same := bytes.Equal(got, want)
			if method == "contiguous" && !same || !same && !near(got, want) {
				t.Errorf("%s, %s: the rows of all nodes differ", model, method)
			}
			sum, _ := mustInvoke(t, "eval", "--data", set, "--params", params, "--output", "json")
			if sum != figures && method == "contiguous" {
				t.Errorf("%s: eval says\n%swant\n%s", model, sum, figures)
			}
			if got, _ := mustInvoke(t, append([]string{"predict", "--data", set}, some...)...); got != classes {
				t.Errorf("%s, %s: predict says\n%swant\n%s", model, method, got, classes)
			}
			if got, _ := mustInvoke(t, "predict", "--data", set, "--params", params, "--split", "valid"); got != split {
				t.Errorf("%s, %s: predict says other things of the validation nodes", model, method)
			}
		}
	}
	params := filepath.Join(dir, "gcn.safetensors")
	set := filepath.Join(dir, "gcncontiguous")
	for want, args := range map[string][]string{
		"is not empty":              {"--data", set, "--scratch", dir},
		"a partition set":           {"--data", store, "--scratch", filepath.Join(dir, "new")},
		"out of range":              {"--data", set, "--ids", "4000"},
		"computed by the processor": {"--data", set, "--device", "cuda"},
	} {
		if code, _, stderr := invoke(t, append([]string{"predict", "--params", params}, args...)...); code == exitDone || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
	if _, said := mustInvoke(t, "train", "--data", filepath.Join(dir, "gcngrid"), "--sampler", "full", "--epochs", "2"); !strings.Contains(said, "loss") {
		t.Errorf("edges on a grid: train said %s", said)
	}
}

// Names of nodes and classes, and the recipe of features, are those of the store, whatever ids the set gives its nodes.
func TestDividedKeepsNames(t *testing.T) {
	dir := t.TempDir()
	var nodes, edges strings.Builder
	nodes.WriteString("id,x,kind,label\n")
	edges.WriteString("src,dst\n")
	const n = 1500
	for v := range n {
		fmt.Fprintf(&nodes, "node %d%d,%d.5,%c,%s\n", v%7, v, v%11, 'a'+v%3, []string{"bird", "fish"}[v%2])
		fmt.Fprintf(&edges, "node %d%d,node %d%d\n", v%7, v, (v+1)%n%7, (v+1)%n)
	}
	for name, text := range map[string]string{"nodes.csv": nodes.String(), "edges.csv": edges.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	mustInvoke(t, "import", "--edges", in("edges.csv"), "--nodes", in("nodes.csv"), in("store"), "--undirected", "--split", "random:60/20/20")
	mustInvoke(t, "train", "--data", in("store"), "--model", "gcn", "--epochs", "1", "--save", in("params"))
	for _, method := range []string{"contiguous", "hash"} {
		set := in(method)
		mustInvoke(t, "partition", "--data", in("store"), "--parts", "2", "--method", method, "--out", set)
		mustInvoke(t, "inspect", set, "--verify")
		for _, args := range [][]string{{"predict", "--ids", "node 00,node 331,node 41495"}, {"predict", "--split", "test", "--output", "json"}, {"embed", "--ids", "node 331"}} {
			args = append(args, "--params", in("params"))
			want, _ := mustInvoke(t, append(slices.Clone(args), "--data", in("store"))...)
			got, _ := mustInvoke(t, append(slices.Clone(args), "--data", set)...)
			exact := method == "contiguous" || args[0] == "predict" && !slices.Contains(args, "json")
			if exact && got != want || !strings.Contains(got, "node ") || args[0] == "predict" && !strings.Contains(got, "fish") && !strings.Contains(got, "bird") {
				t.Errorf("%s: %q says\n%swant\n%s", method, args, got, want)
			}
		}
		if code, _, stderr := invoke(t, "predict", "--data", set, "--params", in("params"), "--ids", "node 00,nobody"); code != 2 || !strings.Contains(stderr, `called "nobody"`) {
			t.Errorf("%s: exit code %d, %s", method, code, stderr)
		}
		mustInvoke(t, "train", "--data", set, "--model", "gcn", "--epochs", "1", "--sampler", "full", "--save", in(method+"-params"))
		m, err := runtime.OpenModel(t.Context(), in(method+"-params"))
		if err != nil || !strings.Contains(string(m.Recipe()), "fish") {
			t.Errorf("%s: the saved model's recipe is %s, %v", method, m.Recipe(), err)
		}
	}
}

// Global batches over a partition set learn what they learn of the store, and what they save is a model like others.
func TestTrainDivided(t *testing.T) {
	store, dir := storeOf(t, generate.Builtin()), t.TempDir()
	set, params := filepath.Join(dir, "set"), filepath.Join(dir, "model.safetensors")
	mustInvoke(t, "partition", "--data", store, "--parts", "3", "--method", "contiguous", "--out", set)
	args := []string{"--model", "gcn", "--sampler", "full", "--epochs", "5", "--output", "json"}
	out, _ := mustInvoke(t, append([]string{"train", "--data", store}, args...)...)
	want := lastLine(t, out)
	out, said := mustInvoke(t, append([]string{"train", "--data", set, "--save", params, "--baseline=false"}, args...)...)
	got := lastLine(t, out)
	for _, what := range []string{"train_loss", "valid_accuracy", "test_accuracy"} {
		if d := got[what].(float64) - want[what].(float64); math.Abs(d) > 1e-3 {
			t.Errorf("%s is %v, want %v", what, got[what], want[what])
		}
	}
	if !strings.Contains(said, "epoch 5 of 5: loss") || got["epochs"] != 5.0 || got["peak_rss_bytes"] == nil {
		t.Errorf("got %v, said %s", got, said)
	}
	out, _ = mustInvoke(t, "eval", "--data", store, "--params", params, "--output", "json")
	if v := lastLine(t, out)["test"].(map[string]any); v["accuracy"] != got["test_accuracy"] {
		t.Errorf("the saved model has the accuracy %v, want %v", v["accuracy"], got["test_accuracy"])
	}
	kept := append(append([]string{"train", "--data", set}, args...), "--checkpoint", filepath.Join(dir, "checkpoints"))
	mustInvoke(t, append(slices.Clone(kept), "--epochs", "3", "--keep-checkpoints", "1")...)
	out, said = mustInvoke(t, append(kept, "--resume")...)
	if v := lastLine(t, out); v["parameters_sha256"] != got["parameters_sha256"] || !strings.Contains(said, "resumed after 3 epochs") || strings.Contains(said, "epoch 3 of") {
		t.Errorf("resumed: %v, want %v; said %s", v, got, said)
	}
	batches := []string{"train", "--model", "gcn", "--sampler", "khop", "--batch-size", "200", "--epochs", "2", "--output", "json"}
	out, _ = mustInvoke(t, append(slices.Clone(batches), "--data", store)...)
	want = lastLine(t, out)
	out, _ = mustInvoke(t, append(batches, "--data", set, "--hybrid")...)
	if got := lastLine(t, out); got["batches"] != want["batches"] || math.Abs(got["train_loss"].(float64)-want["train_loss"].(float64)) > 1e-3 {
		t.Errorf("hybrid: %v, want %v", got, want)
	}
	if code, _, stderr := invoke(t, append(append([]string{"train", "--data", set}, args...), "--scratch", dir)...); code == exitDone || !strings.Contains(stderr, "is not empty") || strings.Contains(stderr, "epoch 1") {
		t.Errorf("files in a directory with others: exit code %d, %s", code, stderr)
	}
	for _, more := range [][]string{{"--plot", filepath.Join(dir, "x.svg")}, {"--patience", "3"}} {
		if code, _, stderr := invoke(t, append(append([]string{"train", "--data", set}, args...), more...)...); code == exitDone || !strings.Contains(stderr, "over a partition set") {
			t.Errorf("%q: exit code %d, %s", more, code, stderr)
		}
	}
}

// allHere has all pieces of a set here, as a node of a cluster would that computes them all, and hears between two steps.
type allHere struct {
	compute.Exchange
	pieces  []*store.Piece
	between func()
}

func (s *allHere) Mine() (all []int) {
	for i := range s.pieces {
		all = append(all, i)
	}
	return all
}
func (s *allHere) Piece(i int) *store.Piece { return s.pieces[i] }
func (s *allHere) Better() bool             { s.between(); return false }
func (s *allHere) Keep([]byte)              {}
func (s *allHere) Kept() []byte             { return nil }

// Offer is Send of what take writes.
func (s *allHere) Offer(ctx context.Context, round string, from, to, size int, take func(rows []float32) error) error {
	rows := make([]float32, size)
	return errors.Join(take(rows), s.Exchange.Send(ctx, round, from, to, rows))
}

// A node that trains again says once what it trains on, and saves what it came to where it was the last, but not where others go on.
func TestTrainDividedAgain(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "set")
	mustInvoke(t, "partition", "--data", storeOf(t, generate.Builtin()), "--parts", "2", "--out", path)
	set, err := pieces.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	here := &allHere{}
	for i := range set.Pieces() {
		p, err := set.OpenPiece(i)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		here.pieces = append(here.pieces, p)
	}
	cfg := runtime.DefaultConfig()
	cfg.Data.Path, cfg.Model.Name, cfg.Cluster.Spread, cfg.Training.Epochs = path, "gcn", here, 4
	cfg.Sampling.Sampler, cfg.Sampling.Fanouts = "full", nil
	var out, said bytes.Buffer
	_, a := newRoot(&out, &said)
	a.output = outputJSON
	run := new(dividedRun)
	for i, c := range []struct {
		why   error
		saves bool
	}{{errors.New("node b is lost"), false}, {fmt.Errorf("%w: %w", context.Canceled, training.ErrLast), true}, {nil, true}} {
		ctx, stop := context.WithCancelCause(t.Context())
		here.Exchange = compute.NewMemoryExchange()
		steps := 0
		here.between = func() {
			if steps++; steps == 3 && c.why != nil {
				stop(c.why)
			}
		}
		command := &trainCommand{app: a, save: filepath.Join(dir, fmt.Sprint(i))}
		if err := command.trainDivided(ctx, newTrain(a), cfg, run); !errors.Is(err, c.why) {
			t.Fatalf("it ends with %v, want %v", err, c.why)
		}
		if _, err := os.Stat(command.save); (err == nil) != c.saves {
			t.Errorf("%v: what it came to is saved: %v", c.why, err)
		}
		stop(nil)
	}
	if n := strings.Count(said.String(), "nodes in 2 pieces"); n != 1 {
		t.Errorf("it says %d times on what it trains:\n%s", n, said.String())
	}
}

// What is said of steps of a run on a store is said of those on a set, too: how late each gradient was, and a loss where nothing was left to train.
func TestTrainDividedTells(t *testing.T) {
	dir := t.TempDir()
	set, lines := filepath.Join(dir, "set"), filepath.Join(dir, "steps")
	mustInvoke(t, "partition", "--data", storeOf(t, generate.Builtin()), "--parts", "2", "--out", set)
	args := []string{
		"train", "--data", set, "--model", "sage", "--sampler", "khop", "--hybrid", "--batch-size", "300", "--epochs", "2", "--sync", "ssp:2", "--output", "json",
		"--steps", lines, "--checkpoint", filepath.Join(dir, "kept"),
	}
	out, _ := mustInvoke(t, args...)
	want := lastLine(t, out)
	b, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	counts, n := []any{0.0, 0.0, 0.0}, 0
	for line := range strings.Lines(string(b)) {
		v := lastLine(t, line)
		late := int(v["staleness"].(float64))
		counts[late] = counts[late].(float64) + 1
		if n++; v["applied"] != float64(n) || v["loss"].(float64) <= 0 || late != min(int(v["batch"].(float64)), 2) {
			t.Errorf("step %d is %s", n, line)
		}
	}
	if got := want["staleness"]; n != int(want["batches"].(float64)) || !reflect.DeepEqual(got, counts) {
		t.Errorf("%d steps of %v, late by %v; it says %v", n, want["batches"], counts, got)
	}
	out, said := mustInvoke(t, append(args, "--resume")...)
	if got := lastLine(t, out); got["train_loss"] == nil || got["train_loss"] != want["train_loss"] || got["parameters_sha256"] != want["parameters_sha256"] || !strings.Contains(said, "resumed after 2 epochs") {
		t.Errorf("resumed when it was over: %v, want %v; said %s", got, want, said)
	}
	if text, _ := mustInvoke(t, "train", "--data", set, "--sampler", "khop", "--hybrid", "--batch-size", "700", "--epochs", "1", "--sync", "ssp:1"); !strings.HasSuffix(text, "\n\ngradients, by steps late  0: 50.0 %  1: 50.0 %\n") {
		t.Errorf("it prints\n%s", text)
	}
	if again, err := os.ReadFile(lines); err != nil || !bytes.Equal(again, b) {
		t.Errorf("steps of a run that was over: %v\n%s", err, again)
	}
	for want, args := range map[string][]string{"--norm layer": {"--model", "gin"}, "gcn-norm block": {"--model", "gcn", "--gcn-norm", "block"}} {
		if code, _, stderr := invoke(t, append([]string{"train", "--data", set, "--sampler", "khop", "--hybrid"}, args...)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
	mustInvoke(t, "train", "--data", set, "--sampler", "khop", "--hybrid", "--model", "gin", "--norm", "layer", "--epochs", "1")
}

// near tells whether two .npy files have one header and values that differ by 1e-5 at most, by them.
func near(got, want []byte) bool {
	const header = 128
	if len(got) != len(want) || !bytes.Equal(got[:header], want[:header]) {
		return false
	}
	for i := header; i < len(want); i += 4 {
		g, w := math.Float32frombits(binary.LittleEndian.Uint32(got[i:])), math.Float32frombits(binary.LittleEndian.Uint32(want[i:]))
		if d := math.Abs(float64(g - w)); !(d <= 1e-5*max(1, math.Abs(float64(w)))) {
			return false
		}
	}
	return true
}
