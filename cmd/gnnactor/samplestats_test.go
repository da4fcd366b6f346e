package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

// --stats gives what a full neighbourhood must have: no error, no isolated row,
// the graph's own degrees; and a figure for every sampler in every format.
func TestSampleStats(t *testing.T) {
	dir := t.TempDir()
	args := func(extra ...string) []string {
		return append([]string{"sample", "--stats", "--batches", "3", "--batch-size", "64", "--sampler", "khop, neighbor,frontier",
			"--sampler-options", "budget=200,frontier=20", "--fanouts", "4,4"}, extra...)
	}
	svg := filepath.Join(dir, "s.svg")
	out, _ := mustInvoke(t, args("--output", "json", "--plot", svg)...)
	v := lastLine(t, out)
	samplers := v["samplers"].([]any)
	if len(samplers) != 3 {
		t.Fatalf("%d samplers, want 3", len(samplers))
	}
	khop, neighbor, frontier := samplers[0].(map[string]any), samplers[1].(map[string]any), samplers[2].(map[string]any)
	if khop["squared_error"] != 0.0 || khop["isolated_share"] != 0.0 {
		t.Errorf("whole neighbourhoods have error %v and isolated share %v", khop["squared_error"], khop["isolated_share"])
	}
	if e := neighbor["squared_error"].(float64); e <= 0 || e >= 1 {
		t.Errorf("4 neighbours of about 10 have a squared error of %v", e)
	}
	layers := neighbor["layers"].([]any)
	first, second := layers[0].(map[string]any), layers[1].(map[string]any)
	if len(layers) != 2 || first["nodes"].(float64) >= second["nodes"].(float64) || second["nodes"] != neighbor["mean_input_nodes"] {
		t.Errorf("layers %v with %v input nodes", layers, neighbor["mean_input_nodes"])
	}
	if sum := first["edges"].(float64) + second["edges"].(float64); math.Abs(sum-neighbor["mean_edges"].(float64)) > 1e-9 {
		t.Errorf("layers have %v edges, a batch %v", sum, neighbor["mean_edges"])
	}
	if q := neighbor["row_entries"].(map[string]any); q["max"] != 4.0 || q["median"] != 4.0 {
		t.Errorf("entries of a row: %v, want at most 4", q)
	}
	if m := frontier["match_degree"].(float64); m <= 0 || m >= 1 {
		t.Errorf("match degree of random subgraphs is %v", m)
	}
	text, err := os.ReadFile(svg)
	if err != nil || !strings.HasPrefix(string(text), "<?xml") {
		t.Fatalf("the plot: %v", err)
	}
	for _, want := range []string{"khop", "neighbor", "frontier", "match degree", "isolated rows", "distinct nodes", "edges of a batch", "squared error", "share of rows", "share of input nodes"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the plot does not name %q", want)
		}
	}
	png := filepath.Join(dir, "s.png")
	table, _ := mustInvoke(t, args("--plot", png)...)
	for _, want := range []string{"distinct nodes, layer 2", "squared error, layer 1", "frontier, entries of a row", "match degree"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not have %q:\n%s", want, table)
		}
	}
	if b, err := os.ReadFile(png); err != nil || !strings.HasPrefix(string(b), "\x89PNG") {
		t.Errorf("the plot is no PNG: %v", err)
	}
}

// With --inductive batches are compared with what the samplers see of the graph: whole
// neighbourhoods there have no error, and no degree of the whole graph is told.
func TestSampleStatsInductive(t *testing.T) {
	stats := func(extra ...string) (degrees, khop map[string]any) {
		out, _ := mustInvoke(t, append([]string{"sample", "--stats", "--batches", "3", "--batch-size", "64", "--sampler", "khop", "--output", "json"}, extra...)...)
		v := lastLine(t, out)
		return v["graph_degrees"].(map[string]any), v["samplers"].([]any)[0].(map[string]any)
	}
	degrees, khop := stats("--inductive")
	if khop["squared_error"] != 0.0 || khop["isolated_share"] != 0.0 {
		t.Errorf("whole neighbourhoods have error %v and isolated share %v", khop["squared_error"], khop["isolated_share"])
	}
	// Of the training nodes, a part, only the edges between them.
	if whole, _ := stats(); degrees["mean"].(float64) >= whole["mean"].(float64) || degrees["median"] == 0.0 {
		t.Errorf("degrees %v, and %v of the whole graph", degrees, whole)
	}
	if inputs := khop["input_degrees"].(map[string]any); inputs["max"].(float64) > degrees["max"].(float64) {
		t.Errorf("input nodes have degrees %v, all nodes %v", inputs, degrees)
	}
}

func TestSampleStatsRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"give that, too":       {"--plot", "x.svg"},
		"must end in .svg":     {"--stats", "--plot", "x.gif"},
		`sampler: "neighbour"`: {"--stats", "--sampler", "labor,neighbour"},
		"several are compared": {"--sampler", "labor,gns"},
	} {
		code, _, stderr := invoke(t, append([]string{"sample"}, args...)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %s; want %q", args, code, stderr, want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	if got := quantilesOf(nil); got != (quantiles{}) {
		t.Errorf("of nothing: %+v", got)
	}
	// 0, 1, 1, 3 ×6, 40: ten in all.
	count := make([]int64, 41)
	count[0], count[1], count[3], count[40] = 1, 2, 6, 1
	if got := quantilesOf(count); got != (quantiles{Mean: 6, Median: 3, P90: 3, P99: 40, Max: 40}) {
		t.Errorf("got %+v", got)
	}
}

// A tail's points are the shares at and above a degree, however many there are.
func TestTail(t *testing.T) {
	points := tail([]int64{5, 0, 3, 2})
	if len(points) != 2 || points[0].X != 2 || points[0].Y != 0.5 || points[1].X != 3 || points[1].Y != 0.2 {
		t.Errorf("got %v", points)
	}
	many := make([]int64, 100_000)
	for d := range many {
		many[d] = 1
	}
	points = tail(many)
	last := points[len(points)-1]
	if len(points) > 300 || last.X != 99_999 || last.Y != 1e-5 {
		t.Errorf("%d points, the last one %v", len(points), last)
	}
	if !slices.IsSortedFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) }) {
		t.Error("degrees do not increase")
	}
}

// Axes of any range have labels, none of them outside.
func TestDecades(t *testing.T) {
	for _, c := range [][2]float64{{1, 10}, {3, 40}, {1e-6, 1}, {1, 1e9}, {0.02, 0.7}} {
		labels := 0
		for _, tick := range (decades{}).Ticks(c[0], c[1]) {
			if tick.Value < c[0]*0.999 || tick.Value > c[1]*1.001 {
				t.Errorf("%v: a tick at %v", c, tick.Value)
			}
			if tick.Label != "" {
				labels++
			}
		}
		if labels < 2 || labels > 10 {
			t.Errorf("%v: %d labels", c, labels)
		}
	}
}

// Rows are counted wherever the setting comes from, and never beside --stats,
// which would pass them over.
func TestSampleCountsRows(t *testing.T) {
	t.Setenv("GNNACTOR_CACHE", "degree:5%")
	out, _ := mustInvoke(t, "sample", "--match", "on", "--loaders", "1", "--output", "json")
	if rows, ok := lastLine(t, out)["rows"].(map[string]any); !ok || rows["asked"].(float64) == 0 || rows["pinned"].(float64) == 0 {
		t.Errorf("rows are not counted: %s", out)
	}
	if code, _, stderr := invoke(t, "sample", "--stats"); code != exitUsage || !strings.Contains(stderr, "leave out") {
		t.Errorf("--stats with a cache: exit %d, %s", code, stderr)
	}
}
