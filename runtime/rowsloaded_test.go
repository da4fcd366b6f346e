package runtime

import (
	"context"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/rng"
)

// loading is a line of the table: how rows are brought to memory.
type loading struct {
	name string
	set  func(*Config)
}

// loadings are what rows loaded are counted for; the first loads every row of
// every batch.
var loadings = []loading{
	{"nothing", func(c *Config) { c.Memory.Match = "off" }},
	{"match", func(*Config) {}},
	{"match-of-4", func(c *Config) { c.Memory.Loaders = 2 }},
	{"match-of-3", func(c *Config) { c.Memory.Loaders = 1 }},
	{"match+reorder8", func(c *Config) { c.Sampling.Reorder = 8 }},
	{"match+reorder32", func(c *Config) { c.Sampling.Reorder = 32 }},
	{"match+degree1%", func(c *Config) { c.Memory.Cache = "degree:1%" }},
	{"match+degree5%", func(c *Config) { c.Memory.Cache = "degree:5%" }},
	{"match+degree20%", func(c *Config) { c.Memory.Cache = "degree:20%" }},
	{"degree5%", func(c *Config) { c.Memory.Match, c.Memory.Cache = "off", "degree:5%" }},
	{"gns1%", func(c *Config) { c.Sampling.Sampler, c.Memory.Cache = "gns", "gns:1%" }},
	{"labor+dependency8", func(c *Config) {
		c.Sampling.Sampler, c.Sampling.Options = "labor", map[string]string{"dependency": "8"}
	}},
	{"labor+dependency8+degree5%", func(c *Config) {
		c.Sampling.Sampler, c.Sampling.Options, c.Memory.Cache = "labor", map[string]string{"dependency": "8"}, "degree:5%"
	}},
	{"labor+dependency8+reorder8+hot5%", func(c *Config) {
		c.Sampling.Sampler, c.Sampling.Options, c.Memory.Cache, c.Sampling.Reorder = "labor", map[string]string{"dependency": "8"}, "hot:5%", 8
	}},
}

// BenchmarkRowsLoaded counts the rows that an epoch's batches ask for and load,
// and takes the time of sampling, matching and loading them, without compute,
// from a store of three bandwidths; count is one that hardly waits. Its caches
// are filled within that time. It wants the data in GNNACTOR_BENCH_DATA, whose
// table is 512 bytes a row in the figures that docs/benchmarks.md gives, and
// takes the first GNNACTOR_BENCH_BATCHES batches of the epoch, or all, and
// GNNACTOR_BENCH_SEEDS training nodes, or as many as ogbn-products has:
//
//	gnnactor generate rmat DIR --scale 21 --edges 65000000 --features 128
//	GNNACTOR_BENCH_DATA=DIR go test ./runtime -run '^$' -bench RowsLoaded -benchtime 1x
func BenchmarkRowsLoaded(b *testing.B) {
	dir := os.Getenv("GNNACTOR_BENCH_DATA")
	if dir == "" {
		b.Skip("GNNACTOR_BENCH_DATA names no data; see the comment above for how to make it")
	}
	most := benchNumber(b, "GNNACTOR_BENCH_BATCHES", math.MaxInt) // else the whole epoch
	for _, shape := range []struct {
		name    string
		batch   int
		fanouts []int
	}{
		{"8000-5,10,15", 8000, []int{5, 10, 15}}, {"8000-15,10,5", 8000, []int{15, 10, 5}},
		{"1024-5,10,15", 1024, []int{5, 10, 15}}, {"1024-15,10,5", 1024, []int{15, 10, 5}},
	} {
		for _, l := range loadings {
			for _, store := range []struct{ name, rate string }{{"count", "100GB/s"}, {"1GB", "1GB/s"}, {"200MB", "200MB/s"}} {
				b.Run(shape.name+"/"+l.name+"/"+store.name, func(b *testing.B) {
					c := DefaultConfig()
					c.Data.Path, c.Memory.Features = dir, "throttled:"+store.rate
					c.Model.Layers, c.Sampling.Fanouts, c.Sampling.BatchSize = 3, shape.fanouts, shape.batch
					l.set(&c)
					r, err := Start(context.Background(), c)
					if err != nil {
						b.Fatal(err)
					}
					defer r.Stop()
					var took time.Duration
					var s RowStats
					batches := 0
					for b.Loop() {
						took, batches, s = loadEpoch(b, r, most)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(took.Seconds(), "s")
					b.ReportMetric(float64(batches), "batches")
					b.ReportMetric(float64(s.Asked), "asked")
					b.ReportMetric(float64(s.Loaded+s.Pins), "loaded")
					b.ReportMetric(float64(s.Bytes())/1e6, "MB")
					b.ReportMetric(100*float64(s.Shared)/float64(s.Asked), "%shared")
					b.ReportMetric(100*float64(s.Pinned)/float64(s.Asked), "%pinned")
				})
			}
		}
	}
}

// trainingSetOfProducts is how many seeds ogbn-products trains on.
const trainingSetOfProducts = 196_615

// benchNumber returns the number that a variable of the environment gives, or
// otherwise.
func benchNumber(b *testing.B, name string, otherwise int) int {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		b.Fatalf("%s is %q; it must be a number above 0", name, s)
	}
	return n
}

// loadEpoch takes the first batches of an epoch, at most so many.
func loadEpoch(b *testing.B, r *Runtime, most int) (took time.Duration, batches int, rows RowStats) {
	seeds := r.data.ds.Train
	if len(seeds) == 0 {
		perm := make([]uint32, r.data.ds.Graph.NumNodes())
		rng.New(2).Perm(perm)
		seeds = slices.Clone(perm[:min(len(perm), benchNumber(b, "GNNACTOR_BENCH_SEEDS", trainingSetOfProducts))])
	}
	began := time.Now()
	for batch, err := range r.Batches(context.Background(), BatchesOptions{Nodes: seeds, NoCopy: true}) {
		if err != nil {
			b.Fatal(err)
		}
		rows = batch.Rows
		if batches++; batches == most {
			break
		}
	}
	return time.Since(began), batches, rows
}
