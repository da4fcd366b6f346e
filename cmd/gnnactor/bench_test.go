package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/internal/machinelimits"
)

// What is counted is the work of the shapes, and figures fit each other. Times
// are not judged.
func TestBench(t *testing.T) {
	out, said := mustInvoke(t, "bench", "--scale", "8", "--table", "1", "--repeats", "1", "--threads", "1",
		"--only", "limit|gemm/1024|aggregate|spmm|sample|step|subgraph", "--output", "json")
	if !strings.Contains(said, "measuring spmm") {
		t.Errorf("said %q", said)
	}
	var r benchResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Limits) != 5 || r.Edges != 1953 || r.Scale != 8 {
		t.Errorf("%d limits, %d edges, scale %d", len(r.Limits), r.Edges, r.Scale)
	}
	for _, l := range r.Limits {
		if l.Value <= 0 || l.Threads != 1 || l.Unit == "" {
			t.Errorf("limit %+v", l)
		}
	}
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 8, Edges: 1953, Seed: benchSeed})
	if err != nil {
		t.Fatal(err)
	}
	entries := float64(ds.Graph.NumEdges())
	product := work{flop: 2 * 1024 * 47 * 256, bytes: 4 * (1024*256 + 256*47 + 1024*47)}
	want := map[string]work{
		"gemm/1024x47x256/nn": product, "gemm/1024x47x256/tn": product, "gemm/1024x47x256/nt": product,
		"aggregate": {flop: 400_000 * 128, bytes: 400_000 * 512, edges: 400_000},
		"spmm":      {flop: entries * 128, bytes: entries * 512, edges: entries},
	}
	seen := map[string]bool{}
	for _, f := range r.Results {
		seen[f.Name] = true
		did := work{f.FLOP, f.Bytes, f.Edges}
		if w, ok := want[f.Name]; ok && did != w {
			t.Errorf("%s did %+v, want %+v", f.Name, did, w)
		}
		size := 1e9
		if f.Unit == "M/s" {
			size = 1e6
		}
		if rate := did.against(f.LimitName) / f.Seconds / size; !(rate > 0) || math.Abs(rate-f.Achieved) > 1e-9*rate {
			t.Errorf("%s: achieved %v, but work and time give %v", f.Name, f.Achieved, rate)
		}
		if f.Limit <= 0 || f.Ratio != f.Achieved/f.Limit {
			t.Errorf("%s: ratio %v of %v and %v", f.Name, f.Ratio, f.Achieved, f.Limit)
		}
	}
	figures := 10
	if set, err := cpu.Detect(); err != nil {
		t.Fatal(err)
	} else if set.Has(cpu.BFloat16) {
		figures = 14 // three products and the step again
	}
	if len(seen) != figures || len(r.Results) != figures || seen["step/bf16"] != (figures == 14) {
		t.Errorf("measured %v, want %d figures", seen, figures)
	}
}

// A step's stages are its kernels' calls: their products' work is the step's, and
// with one thread their times and what is left make up its time (of two repeats the median is the mean).
func TestBenchStages(t *testing.T) {
	out, _ := mustInvoke(t, "bench", "--scale", "8", "--table", "1", "--repeats", "2", "--threads", "1", "--only", "^stages$", "--output", "json")
	var r benchResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	whole, flop, seconds := r.Results[0], 0.0, 0.0
	count := map[string]int{}
	for _, f := range r.Results[1:] {
		name, _ := strings.CutPrefix(f.Name, "stages/")
		kernel := strings.Fields(name + " -")[1]
		count[kernel]++
		if stageLimit(kernel) == machinelimits.FMA32 {
			flop += f.FLOP
		}
		seconds += f.Seconds
	}
	if math.Abs(flop-whole.FLOP) > 1e-9*flop {
		t.Errorf("products of %v FLOP, want %v", flop, whole.FLOP)
	}
	if math.Abs(seconds-whole.Seconds) > 1e-9*seconds {
		t.Errorf("stages of %v s, want %v", seconds, whole.Seconds)
	}
	for kernel, n := range map[string]int{sampleStage: 1, "aggregate": 3, "activate-backward-sums": 2, "loss": 1, "adam": 1} {
		if count[kernel] != n {
			t.Errorf("%d calls of %s, want %d", count[kernel], kernel, n)
		}
	}
}

// The useful work of the example: 9.0 GFLOP at scale 20 come from this
// formula.
func TestUsefulFLOP(t *testing.T) {
	blocks := []graph.Block{{NumDst: 5000}, {NumDst: 3000}, {NumDst: 1024}}
	want := 5000*128*256*8.0 + 3000*256*256*12.0 + 1024*256*47*12.0
	spec := compute.Spec{Layers: 3, Hidden: 256, InDim: 128, OutDim: 47}
	if got := usefulFLOP(spec, blocks); got != want {
		t.Errorf("%v FLOP, want %v", got, want)
	}
	spec.Decoder = 1
	want += 1024 * 256 * (256*12.0 - 47*12.0 + 47*6.0)
	if got := usefulFLOP(spec, blocks); got != want {
		t.Errorf("%v FLOP with a linear output, want %v", got, want)
	}
	spec.Combine, spec.Decoder = "concat", 0
	want = 5000*128*256*4.0 + 3000*256*256*6.0 + 1024*256*(256*6.0+47*6.0)
	if got := usefulFLOP(spec, blocks); got != want {
		t.Errorf("%v FLOP with both parts side by side, want %v", got, want)
	}
}

func TestBenchTable(t *testing.T) {
	r := benchResult{SIMD: "avx2", Kernels: "go",
		Limits:  []benchLimit{{"fma32", 1, 101.25, "GFLOP/s"}},
		Results: []benchFigure{{Name: "spmm", Threads: 2, Seconds: 0.5, FLOP: 128e6, Bytes: 512e6, Edges: 1e6, Achieved: 1.024, Limit: 4, Unit: "GB/s", Ratio: 0.256, LimitName: "gather512"}},
	}
	var b strings.Builder
	if err := r.table().write(&b); err != nil {
		t.Fatal(err)
	}
	want := `limit (avx2)  threads         best
fma32               1  101 GFLOP/s

kernel (go)  threads   ms  MFLOP   MB  Medges/s   achieved  limit  ratio         of
spmm               2  500    128  512      2.00  1.02 GB/s   4.00   0.26  gather512
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestBenchRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--only abacus":    "matches nothing: there are limit/*, gemm/65536x256x128/nn",
		"--only (":         "--only",
		"--repeats 0":      "--repeats 0",
		"--threads 100000": "--threads 100000",
		"--scale 2":        "--scale 2",
		"--edges -1":       "--edges -1",
		"--table 3":        "--table 3",
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errs := invoke(t, strings.Fields("bench --table 1 --scale 4 "+args)...)
			if code != exitUsage || out != "" || !strings.Contains(errs, want) {
				t.Errorf("exit %d, printed %q, said %q; want %q", code, out, errs, want)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}} {
		if got := median(c.x); got != c.want {
			t.Errorf("%s: %v, want %v", fmt.Sprint(c.x), got, c.want)
		}
	}
}
