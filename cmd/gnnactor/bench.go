package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/internal/machinelimits"
	"github.com/gnnactor/gnnactor/pool"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	scale, edges, repeats, threads, table int
	only                                  string
	sample                                time.Duration // least time of one repeat
}

// graphEdges returns how many edges to draw for the graph.
func (o *benchOptions) graphEdges() int {
	if o.edges > 0 {
		return o.edges
	}
	return max(1, 8_000_000<<o.scale>>20)
}

func newBench(a *app) *cobra.Command {
	o := benchOptions{scale: 18, repeats: 5, table: 1024, sample: 20 * time.Millisecond}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the kernels against this machine's limits",
		Long: `Measure the kernels against this machine's limits: what each achieves, what the
machine can do, and the ratio, with 1 thread and with all.

The limits are measured here, and again between the repeats of each kernel, since
machines are shared and drift; the best run counts. Of a kernel the median counts.

  fma32      float32 multiply-adds in registers, two FLOP each
  read       sequential read of a table that no cache holds
  gather512  random rows of 512 bytes out of it, prefetched and summed
  copy512    the same rows copied to a dense buffer (bytes read)
  random8    independent random loads of 8 bytes

What is counted, per run:

  gemm       2·M·N·K FLOP, against fma32. Bytes: each operand once. After the
             product A·B (nn), with B's width N, come the two products of its
             gradient: Aᵀ·dC (tn) and dC·Bᵀ (nt), of as many FLOP
  aggregate  the mean of 10 random rows of the table for each of 40,000 nodes:
             bytes read from the table, against gather512; one FLOP per value
  spmm       the mean over neighbours of 128 features, for the whole R-MAT graph:
             512 bytes per entry, against gather512. Its nodes of high degree
             stay in the caches: the ratio may exceed 1
  sample     neighbours of 1024 seeds, fan-outs 15,10,5, in 8 batches a run: one
             load per sampled edge, against random8
  sample/unfused  the same batches, made in two passes with a list of edges in
             between: what fused sampling, above, is measured against
  step       a training step of a 3-layer GraphSAGE with mean aggregation: the
             sampling of a batch as above (with more than 1 thread, of the next
             batch, while this one is computed), gradient and Adam, hidden width
             256, 128 features, 47 classes. FLOP: 2·destinations·in·out for both
             weights of a layer, forward, weight gradient, and input gradient but
             for the input layer. Aggregation and all else is time, not work.
             Against fma32
  stages     the step once more, and then each of its stages in order: the sampling,
             and every call of a kernel with its shape (rows, columns, terms or
             entries), products against fma32, aggregation (a row for each entry)
             against gather512, sampling and transposes (an entry each) against
             random8, all else (operands and result once) against read; other is
             what is left of the step: with more than 1 thread, waiting for the
             sampling, too, which is beside the step
  subgraph   a training step without sampling: a 2-layer GraphSAGE of width 512
             (256 of a node and 256 of its neighbours side by side) and a linear
             output, on a frontier-sampled subgraph (1000 nodes on the frontier,
             8000 draws: at scale 20 about 6,600 nodes and 880,000 edges, which
             both layers read), every node of which carries loss. FLOP as above
  subgraph/train  the same with loss on the training nodes alone, at scale 20 1213
             of them: the rows that they do not depend on are left out, of
             the time and of the FLOP

Products, and a step, are measured with --precision bf16, too, where the kernels
have it (…/bf16): against fma32 as well, so that their ratio over that of the
same in float32 is what bf16 gains or loses here.

With --output json the last line of the standard output is an object with simd,
kernels, scale, edges, repeats, limits and results.`,
		Example: `  gnnactor bench
  gnnactor bench --scale 20 --only 'spmm|step'
  gnnactor bench --scale 21 --edges 65000000 --only step --output json`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.bench(cmd.Context(), o)
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return a.printJSON(r)
			}
			return r.table().write(a.stdout)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.scale, "scale", o.scale, "log2 of the number of nodes of the R-MAT graph; 20 for the record")
	f.IntVar(&o.edges, "edges", o.edges, "undirected edges to draw; 0: 8,000,000 for scale 20, in proportion for others")
	f.IntVar(&o.repeats, "repeats", o.repeats, "repeats of every measurement, whose median counts")
	f.IntVar(&o.threads, "threads", o.threads, "measure with 1 and with this many threads; 0: all")
	f.StringVar(&o.only, "only", o.only, "measure what this regular `PATTERN` matches, such as gemm, limit/fma32, step")
	f.IntVar(&o.table, "table", o.table, "`MIB` of the table of random rows, a power of two; larger than the caches for an honest figure")
	a.addOutputFlag(cmd)
	return cmd
}

// benchLimit is a limit, the best of some runs.
type benchLimit struct {
	Name    machinelimits.Limit `json:"name"`
	Threads int                 `json:"threads"`
	Value   float64             `json:"value"`
	Unit    string              `json:"unit"`
}

// benchFigure is what one kernel achieves with some threads.
type benchFigure struct {
	Name     string  `json:"name"`
	Threads  int     `json:"threads"`
	Seconds  float64 `json:"seconds"` // of one run, like what follows
	FLOP     float64 `json:"flop"`
	Bytes    float64 `json:"bytes"`
	Edges    float64 `json:"edges"`
	Achieved float64 `json:"achieved"`
	Limit    float64 `json:"limit"`
	Unit     string  `json:"unit"`
	Ratio    float64 `json:"ratio"`

	LimitName machinelimits.Limit `json:"limit_name"`
}

// benchResult is what --output json prints.
type benchResult struct {
	SIMD    string        `json:"simd"`    // what limits are measured with
	Kernels string        `json:"kernels"` // the kernel set
	Scale   int           `json:"scale"`
	Edges   int           `json:"edges"` // drawn
	Repeats int           `json:"repeats"`
	Limits  []benchLimit  `json:"limits"`
	Results []benchFigure `json:"results"`
}

// bench measures what o selects.
func (a *app) bench(ctx context.Context, o benchOptions) (r benchResult, err error) {
	most := runtime.GOMAXPROCS(0)
	switch {
	case o.repeats < 1:
		return r, usagef("--repeats %d: must be 1 or more", o.repeats)
	case o.threads < 0 || o.threads > most:
		return r, usagef("--threads %d: must be 1 to %d, or 0 for all", o.threads, most)
	case o.scale < 4 || o.scale > 24:
		return r, usagef("--scale %d: must be 4 to 24", o.scale)
	case o.edges < 0:
		return r, usagef("--edges %d: must be 1 or more, or 0 for the default", o.edges)
	case o.table < 1 || o.table > 1<<20 || o.table&(o.table-1) != 0:
		return r, usagef("--table %d: must be a power of two of MiB, at most 2^20", o.table)
	}
	pattern, err := regexp.Compile(o.only)
	if err != nil {
		return r, usagef("--only: %v", err)
	}
	set, err := cpu.Detect()
	if err != nil {
		return r, &usageError{err}
	}
	threads := []int{1}
	if n := cmp.Or(o.threads, most); n > 1 {
		threads = append(threads, n)
	}
	m, err := machinelimits.New(max(o.table<<20, 4*machinelimits.RowLen<<o.scale), slices.Max(threads))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()

	r = benchResult{SIMD: machinelimits.SIMD(), Kernels: set.String(), Scale: o.scale, Edges: o.graphEdges(), Repeats: o.repeats}
	for _, l := range machinelimits.All() {
		if !pattern.MatchString("limit/" + string(l)) {
			continue
		}
		for _, t := range threads {
			if err := ctx.Err(); err != nil {
				return r, err
			}
			b := benchLimit{Name: l, Threads: t}
			b.Unit, _ = l.Unit()
			for range o.repeats {
				b.Value = max(b.Value, m.Measure(l, t))
			}
			r.Limits = append(r.Limits, b)
		}
	}
	names := []string{}
	for _, w := range benchWorkloads(ctx, o, m.Table(), set) {
		names = append(names, w.name)
		if !pattern.MatchString(w.name) {
			continue
		}
		a.logf("measuring %s", w.name)
		for _, t := range threads {
			figures, err := w.measure(ctx, o, m, set, t)
			if err != nil {
				return r, fmt.Errorf("%s: %w", w.name, err)
			}
			r.Results = append(r.Results, figures...)
		}
	}
	if len(r.Limits)+len(r.Results) == 0 {
		return r, usagef("--only %q matches nothing: there are limit/*, %s", o.only, strings.Join(names, ", "))
	}
	return r, nil
}

// measure runs w with some threads, its limit before every repeat.
func (w *workload) measure(ctx context.Context, o benchOptions, m *machinelimits.Machine, set cpu.Set, threads int) (all []benchFigure, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads)) // no thread beside those counted
	p := pool.New(threads)
	defer p.Close()
	x := cpu.NewExec(p, set)
	step, err := w.start(x)
	if err != nil {
		return nil, err
	}
	parts := w.stages
	if parts != nil {
		x.Observe(parts.kernel)
	}
	unit, size := w.limit.Unit()
	f := benchFigure{Name: w.name, Threads: threads, Unit: unit, LimitName: w.limit}
	timed := func(n int) (sum work, took time.Duration, err error) {
		began := time.Now()
		for range n {
			if parts != nil {
				parts.step()
			}
			d, err := step()
			if err != nil {
				return sum, 0, err
			}
			sum.add(d)
		}
		return sum, max(time.Since(began), 1), nil
	}
	// Memory grows in the first two runs; the third tells how many runs fill a
	// sample.
	var took time.Duration
	for range 3 {
		if _, took, err = timed(1); err != nil {
			return nil, err
		}
	}
	runs := int(min(o.sample/took, 1<<20)) + 1
	runtime.GC() // what came before does not collect in this one's time
	var seconds, rates []float64
	var total work
	limits := map[machinelimits.Limit]float64{}
	if parts != nil {
		parts.forget()
	}
	for range o.repeats {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f.Limit = max(f.Limit, m.Measure(w.limit, threads))
		if parts != nil {
			for _, l := range stageLimits {
				limits[l] = max(limits[l], m.Measure(l, threads))
			}
		}
		did, took, err := timed(runs)
		if err != nil {
			return nil, err
		}
		total.add(did)
		if parts != nil {
			parts.take(runs, threads, took.Seconds())
		}
		seconds = append(seconds, took.Seconds()/float64(runs))
		rates = append(rates, did.against(w.limit)/took.Seconds()/size)
	}
	n := float64(runs * o.repeats)
	f.FLOP, f.Bytes, f.Edges = total.flop/n, total.bytes/n, total.edges/n
	f.Seconds, f.Achieved = median(seconds), median(rates)
	f.Ratio = f.Achieved / f.Limit
	all = append(all, f)
	if parts != nil {
		all = append(all, parts.figures(w.name, threads, runs*o.repeats, limits)...)
	}
	return all, nil
}

// median returns the middle value, or the mean of the two in the middle.
func median(x []float64) float64 {
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// table lays r out.
func (r *benchResult) table() *table {
	var t table
	if len(r.Limits) > 0 {
		t.row("limit ("+r.SIMD+")", "threads", "best")
		for _, l := range r.Limits {
			t.row(string(l.Name), strconv.Itoa(l.Threads), significant(l.Value)+" "+l.Unit)
		}
	}
	if len(r.Results) == 0 {
		return &t
	}
	if len(r.Limits) > 0 {
		t.gap()
	}
	count := func(x, size float64) string {
		if x == 0 {
			return "–"
		}
		return significant(x / size)
	}
	t.row("kernel ("+r.Kernels+")", "threads", "ms", "MFLOP", "MB", "Medges/s", "achieved", "limit", "ratio", "of")
	for _, f := range r.Results {
		t.row(f.Name, strconv.Itoa(f.Threads), significant(1e3*f.Seconds), count(f.FLOP, 1e6), count(f.Bytes, 1e6),
			count(f.Edges/f.Seconds, 1e6), significant(f.Achieved)+" "+f.Unit, significant(f.Limit), strconv.FormatFloat(f.Ratio, 'f', 2, 64), string(f.LimitName))
	}
	return &t
}
