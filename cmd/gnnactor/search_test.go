package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const rings = "lr: {from: 0.001, to: 0.3, log: true}\nhidden: [2, 4, 8]\noptimizer: [adam, sgd]\nmomentum: {from: 0.1, to: 0.9}\n"

// searched runs a search to its end and returns its result, without times.
func searched(t *testing.T, args ...string) searchResult {
	t.Helper()
	out, _ := mustInvoke(t, slices.Concat([]string{"search"}, args, []string{"--output", "json"})...)
	var r searchResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for _, one := range r.Trials {
		for i := range one.Rungs {
			one.Rungs[i].Seconds = 0
		}
	}
	r.Checkpoints, r.Plot = filepath.Base(r.Checkpoints), filepath.Base(r.Plot)
	for i := range r.Best.Rungs {
		r.Best.Rungs[i].Seconds = 0
	}
	return r
}

// The best trial is that of the best validation figure, although the test nodes, whose labels here are one class, say otherwise; and
// its command line trains to the same figure.
func TestSearchChoosesByValidation(t *testing.T) {
	ds := twoRings(t)
	for _, v := range ds.Test {
		ds.Labels.Class[v] = 1
	}
	data, dir := storeOf(t, ds), t.TempDir()
	args := []string{writeTemp(t, "ranges.yaml", rings), "--out", dir, "--data", data, "--trials", "6", "--epochs", "2", "--fanouts", "2,2", "--dropout", "0.1"}
	r := searched(t, args...)
	if len(r.Trials) != 6 || r.Figure != "valid_accuracy" {
		t.Fatalf("%d trials, by %s", len(r.Trials), r.Figure)
	}
	least := 1.0
	for _, one := range r.Trials {
		if one.valid() > r.Best.valid() {
			t.Errorf("trial %d has %v, and the best, %d, %v", one.Trial, one.valid(), r.Best.Trial, r.Best.valid())
		}
		least = min(least, one.valid())
	}
	if least == r.Best.valid() {
		t.Fatal("all trials are alike: they show nothing")
	}
	line := strings.Fields(r.Command)
	if !slices.Contains(line, "--hidden") || !slices.Contains(line, "--dropout") || slices.Contains(line, "--momentum") == (r.Best.Settings["optimizer"] == "adam") {
		t.Errorf("of %v the command line is %s", r.Best.Settings, r.Command)
	}
	out, _ := mustInvoke(t, append(line[1:], "--output", "json")...)
	if got := lastLine(t, out)["valid_accuracy"]; got != r.Best.valid() {
		t.Errorf("%s comes to %v, the trial had come to %v", r.Command, got, r.Best.valid())
	}
	out, _ = mustInvoke(t, "eval", "--data", data, "--params", filepath.Join(dir, "checkpoints", r.Checkpoints), "--output", "json")
	if got := lastLine(t, out)["valid"].(map[string]any)["accuracy"]; got != r.Best.valid() {
		t.Errorf("the checkpoint has %v, the trial had come to %v", got, r.Best.valid())
	}
	left, err := os.ReadDir(filepath.Join(dir, "checkpoints"))
	if err != nil || len(left) != 1 {
		t.Errorf("%d directories of checkpoints are left, %v", len(left), err)
	}
	picture, err := os.ReadFile(filepath.Join(dir, "search.svg"))
	if err != nil || !bytes.Contains(picture, []byte("valid accuracy by momentum")) {
		t.Errorf("search.svg: %v", err)
	}
	// More trials add to those that are there.
	args[slices.Index(args, "6")] = "7"
	more := searched(t, args...)
	at := slices.IndexFunc(more.Trials, func(one *trial) bool { return one.Trial == 7 })
	if rest := slices.Delete(slices.Clone(more.Trials), at, at+1); !reflect.DeepEqual(rest, r.Trials) {
		t.Error("with a trial more the others are not what they were")
	}
}

// A search that is interrupted wherever it is, and loses a record, ends with what one that was not does. Halving trains the best
// of each rung on.
func TestSearchGoesOn(t *testing.T) {
	data, ranges := storeOf(t, twoRings(t)), writeTemp(t, "ranges.yaml", rings)
	args := func(dir string) []string {
		return []string{ranges, "--out", dir, "--data", data, "--trials", "5", "--halving", "2", "--epochs", "5", "--fanouts", "2,2"}
	}
	whole, dir := searched(t, args(t.TempDir())...), t.TempDir()
	for _, line := range []string{"trial 3 (3 of 5)", "rung 2 of 3", "(1 of 2)"} {
		ctx, stop := context.WithCancel(t.Context())
		w := &cutOff{at: line, cancel: stop}
		if code := run(ctx, append([]string{"search"}, args(dir)...), new(bytes.Buffer), w); code != exitInterrupted {
			t.Fatalf("exit %d\n%s", code, w)
		}
		if !strings.Contains(w.String(), "goes on from --out") {
			t.Errorf("how to go on is not said:\n%s", w)
		}
	}
	best := filepath.Join(dir, "trials", "000"+strconv.Itoa(whole.Best.Trial)+".json")
	if err := os.Remove(best); err != nil {
		t.Fatal(err)
	}
	if got := searched(t, args(dir)...); !reflect.DeepEqual(got, whole) {
		t.Errorf("came to %+v, not interrupted to %+v", got.Best, whole.Best)
	}
	var epochs []int
	for _, r := range whole.Best.Rungs {
		epochs = append(epochs, r.Epochs)
	}
	if !slices.Equal(epochs, []int{1, 2, 5}) {
		t.Errorf("the best has rungs of %v epochs", epochs)
	}
	var reached [4]int
	for _, one := range whole.Trials {
		reached[len(one.Rungs)]++
	}
	if want := [4]int{0, 3, 1, 1}; reached != want {
		t.Errorf("trials by rungs that they reached: %v, want %v", reached, want)
	}
	if code, _, errs := invoke(t, append([]string{"search"}, append(args(dir), "--lr", "0.1")...)...); code != exitUsage || !strings.Contains(errs, "leave one out") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if code, _, errs := invoke(t, append([]string{"search"}, append(args(dir), "--seed", "9")...)...); code != exitUsage || !strings.Contains(errs, "seed was not given and is 9") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// A trial that diverges comes last, in a table and a record that say so, and the others are trained, also where the search begins again. Where
// none can be trained to the end the search fails.
func TestSearchDiverges(t *testing.T) {
	data, dir := storeOf(t, twoRings(t)), t.TempDir()
	args := func(dir string, lr string) []string {
		return []string{"search", writeTemp(t, "ranges.yaml", "lr: "+lr+"\nhidden: [8, 16]\n"), "--out", dir, "--data", data, "--trials", "4", "--epochs", "4",
			"--halving", "2", "--fanouts", "2,2", "--optimizer", "sgd", "--batch-size", "8"}
	}
	var tables []string
	for range 2 {
		out, errs := mustInvoke(t, args(dir, "[0.01, 1e30]")...)
		if tables = append(tables, out); strings.Count(out, "diverged") != 2 {
			t.Errorf("%s\n%s", out, errs)
		}
	}
	lines := strings.Split(tables[0], "\n")
	if tables[0] != tables[1] || !strings.Contains(lines[3], "diverged") || !strings.Contains(lines[4], "diverged") {
		t.Errorf("of a search that begins again there is another table, or those that diverged are not last:\n%s\n%s", tables[0], tables[1])
	}
	if left, err := os.ReadDir(filepath.Join(dir, "checkpoints")); err != nil || len(left) != 1 {
		t.Errorf("%d directories of checkpoints are left, %v", len(left), err)
	}
	if code, _, errs := invoke(t, args(t.TempDir(), "[1e29, 1e30]")...); code != exitUsage || !strings.Contains(errs, "no trial could be trained; the first: train/e0/b") {
		t.Errorf("exit %d: %s", code, errs)
	}
	late, early := &trial{Trial: 1, Rungs: make([]rungResult, 1), Diverged: "in its second rung"}, &trial{Trial: 2}
	if new(searchCommand).better(late, early) < 0 {
		t.Error("a trial that diverged is better as it was trained longer")
	}
}

// A search that is begun again trains none in the place of a trial that diverged in a rung that it had come to.
func TestSearchDivergesLate(t *testing.T) {
	dir := t.TempDir()
	args := []string{"search", writeTemp(t, "ranges.yaml", "lr: [0.01, 0.02]\nhidden: [8, 16]\n"), "--out", dir, "--data", storeOf(t, twoRings(t)), "--trials", "4", "--epochs", "4",
		"--halving", "2", "--fanouts", "2,2", "--optimizer", "sgd", "--batch-size", "8"}
	mustInvoke(t, args...)
	late := false
	for i := range 4 {
		record := filepath.Join(dir, "trials", fmt.Sprintf("%04d.json", i+1))
		var was trial
		if err := readJSON(record, &was); err != nil {
			t.Fatal(err)
		}
		if len(was.Rungs) == 2 {
			late, was.Rungs, was.Diverged = true, was.Rungs[:1], "the loss is NaN"
			if err := writeJSON(record, &was); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, errs := mustInvoke(t, args...)
	if !late || strings.Contains(errs, " of 2): ") || strings.Count(out, "diverged") != 1 {
		t.Errorf("a trial diverged in its second rung: %v; and then\n%s\n%s", late, errs, out)
	}
}

// What a file of ranges can have wrong is told with its line and what would be right.
func TestSearchRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "there is no setting; write one per line",
		"- lr\n":                              "line 1: must be settings with their values",
		"lr: [0.1\n":                          "line 1",
		"# ranges\nhiden: [1]\n":              "line 2: hiden: there is no such setting",
		"lr: 0.1\n\nlr: 0.2\n":                "line 3: lr: is there twice",
		"data: [a, b]\n":                      "line 1: data: is the same for all trials; say it with --data",
		"hidden: [3, x]\n":                    `line 1: hidden: "x": must be a whole number`,
		"hidden: []\n":                        "line 1: hidden: has no values",
		"fanouts: [[[1]]]\n":                  "a value is text, a number, or one list",
		"lr: {from: 0.1}\n":                   "needs a from that is less than to; a range is written {from:",
		"lr: {from: 2, to: 1}\n":              "needs a from that is less than to",
		"lr: {from: 1, to: b}\n":              "to: b: a range is written",
		"lr: {from: 1, to: 2, lg: true}\n":    "lg: true: a range is written",
		"lr: {from: 0, to: 2, log: true}\n":   "make it more than 0, or leave log out",
		"layers: {from: 1.5, to: 3}\n":        "must be whole numbers",
		"model: {from: 1, to: 3}\n":           "list its values",
		"lr: 1\n---\nlr: 2\n":                 "more than one YAML document",
		"schedule: [constant, cosine]\n":      "the cosine schedule spans all epochs",
		"epochs: [1, 2]\n":                    "with --halving epochs are what trials get more of",
		"heads: [3]\nmodel: gat\nhidden: 4\n": "no trial could be trained; the first: runtime: invalid config: compute: hidden width 4 is not a multiple of 3 heads",
	} {
		args := []string{"search", writeTemp(t, "ranges.yaml", text), "--out", t.TempDir(), "--trials", "2", "--epochs", "2", "--halving", "2"}
		if code, _, errs := invoke(t, args...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: exit %d\n%swant %q", text, code, errs, want)
		}
	}
}

// Draws are in their ranges and all over them, no two trials are the same, of more trials the first are those of fewer, and a setting
// that is added changes no other's values.
func TestSearchDraws(t *testing.T) {
	space, err := readSpace(writeTemp(t, "ranges.yaml", "lr: {from: 0.0001, to: 1, log: true}\nlayers: {from: 1, to: 3}\nsampler-options: [{budget: 8, frontier: 2}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	many := space.draw(7, 300)
	layers, below := map[string]int{}, 0
	for _, one := range many {
		layers[one["layers"]]++
		x, err := strconv.ParseFloat(one["lr"], 64)
		if err != nil || x < 0.0001 || x > 1 || len(one["lr"]) > 9 {
			t.Errorf("lr %s", one["lr"])
		}
		if x < 0.01 {
			below++
		}
		if one["sampler-options"] != "budget=8,frontier=2" {
			t.Errorf("sampler-options %s", one["sampler-options"])
		}
	}
	// Each has a third, and half, with a standard deviation below 9 of 300.
	for _, n := range []string{"1", "2", "3"} {
		if math.Abs(float64(layers[n]-100)) > 40 {
			t.Errorf("layers are %v", layers)
		}
	}
	if math.Abs(float64(below-150)) > 40 {
		t.Errorf("%d of 300 learning rates are below the middle", below)
	}
	if !reflect.DeepEqual(space.draw(7, 30), many[:30]) {
		t.Error("fewer trials are other ones")
	}
	for i, one := range space[:2].draw(7, 30) {
		if !maps.Equal(one, map[string]string{"lr": many[i]["lr"], "layers": many[i]["layers"]}) {
			t.Errorf("trial %d without sampler-options is %v", i, one)
		}
	}
	if few := space[1:2].draw(7, 30); len(few) != 3 {
		t.Errorf("of three settings %d trials were drawn", len(few))
	}
	for _, c := range []struct {
		trials, epochs, eta, least int
		want                       []rung
	}{
		{20, 10, 0, 1, []rung{{20, 10}}}, {81, 81, 3, 1, []rung{{81, 1}, {27, 3}, {9, 9}, {3, 27}, {1, 81}}},
		{9, 100, 3, 5, []rung{{9, 11}, {3, 33}, {1, 100}}}, {20, 10, 3, 4, []rung{{20, 10}}}, {2, 10, 3, 1, []rung{{2, 10}}},
	} {
		if got := rungs(c.trials, c.epochs, c.eta, c.least); !slices.Equal(got, c.want) {
			t.Errorf("rungs of %+v: %v", c, got)
		}
	}
}
