package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/leak"
)

// setOf divides the store in dir.
func setOf(t *testing.T, dir string, o pieces.Options) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "set")
	err := store.View(dir, func(s *store.Store) error {
		_, err := pieces.Create(t.Context(), out, s, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// blockModel is a store of a block model, of whose features one in sixteen is not zero if they are to be sparse.
func blockModel(t *testing.T, sparse bool) string {
	t.Helper()
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 9000, Classes: 6, AvgDegree: 8, Homophily: 0.8, FeatureDim: 64, Signal: 0.3, TrainFraction: 0.1, ValidFraction: 0.02, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	if f := ds.NodeFeatures; sparse {
		x := make([]float32, f.Rows*f.Cols)
		for v := range f.Rows {
			f.Row(x[v*f.Cols:(v+1)*f.Cols], v)
		}
		for i := range x {
			if i%16 != 3 {
				x[i] = 0
			}
		}
		ds.NodeFeatures = graph.NewFeatures(f.Rows, f.Cols, x)
	}
	dir := filepath.Join(t.TempDir(), "store")
	if ds.Fingerprint = ""; err == nil {
		err = store.Create(t.Context(), dir, ds)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// cora is the store of Cora.
func cora(t *testing.T) string {
	t.Helper()
	data := filepath.Join("..", "..", "shared", "data", "cora")
	if _, err := os.Stat(data); err != nil {
		t.Skip("needs ../shared/data/cora")
	}
	if err := importedCora(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(leak.Dir(), "cora", "store")
}

var importedCora = sync.OnceValue(func() error {
	dir := filepath.Join(leak.Dir(), "cora")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return importer.Import(context.Background(), filepath.Join("..", "..", "shared", "data", "cora"), filepath.Join(dir, "store"), importer.Options{})
})

// setConfig is a short run on data.
func setConfig(data string) Config {
	c := DefaultConfig()
	c.Data.Path, c.Data.Verify = data, false
	c.Model.Hidden, c.Training.Epochs, c.Sampling.BatchSize = 16, 2, 128
	c.Sampling.Fanouts, c.Execution.Threads = []int{5, 4}, 2
	return c
}

// A run on a partition set that keeps the ids is the run on the store that was divided, bit for
// bit: parameters, losses and accuracies.
func TestSetRunIsThatOfTheStore(t *testing.T) {
	t.Parallel()
	type change func(c *Config)
	with := func(model, sampler string, more ...change) change {
		return func(c *Config) {
			c.Model.Name, c.Sampling.Sampler = model, sampler
			for _, f := range more {
				f(c)
			}
		}
	}
	options := func(pairs ...string) change {
		return func(c *Config) {
			c.Sampling.Options = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				c.Sampling.Options[pairs[i]] = pairs[i+1]
			}
		}
	}
	for _, c := range []struct {
		name   string
		data   func(t *testing.T) string
		pieces []int
		runs   map[string]change
	}{
		{"cora", cora, []int{1, 2, 3}, map[string]change{
			"gcn": with("gcn", "neighbor"), "sage": with("sage", "labor"),
		}},
		{"sparse", func(t *testing.T) string { return blockModel(t, true) }, []int{3}, map[string]change{"sage": with("sage", "neighbor")}},
		{"blocks", func(t *testing.T) string { return blockModel(t, false) }, []int{5, 8}, map[string]change{
			"gcn":      with("gcn", "neighbor"),
			"sage":     with("sage", "labor", func(c *Config) { c.Sampling.MicroBatches = 2 }),
			"gat":      with("gat", "neighbor", options("replace", "true")),
			"walk":     with("sage", "walk", options("roots", "100", "walk-length", "3")),
			"pinsage":  with("gcn", "pinsage", options("walks", "4")),
			"fastgcn":  with("gcn", "fastgcn", func(c *Config) { c.Sampling.Fanouts = []int{300, 300} }),
			"node":     with("gat", "node", options("budget", "400")),
			"gns":      with("sage", "gns", options("cache-fraction", "0.1"), func(c *Config) { c.Memory.Cache = "gns:10%" }),
			"cluster":  with("gcn", "cluster", options("clusters", "40", "partition-by", "contiguous", "boundary", "true")),
			"gin":      with("gin", "khop", func(c *Config) { c.Sampling.BatchSize = 300 }),
			"scaled":   with("sage", "neighbor", func(c *Config) { c.Model.Aggregation, c.Model.ScaleSums = "sum", true }),
			"reorder":  with("sage", "neighbor", func(c *Config) { c.Sampling.Reorder, c.Sampling.BatchSize = 4, 64 }),
			"hot rows": with("sage", "neighbor", func(c *Config) { c.Memory.Cache = "hot:5%" }),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole := c.data(t)
			sets := map[int]string{}
			for _, n := range c.pieces {
				sets[n] = setOf(t, whole, pieces.Options{Method: "contiguous", Pieces: n})
			}
			for name, f := range c.runs {
				config := setConfig(whole)
				f(&config)
				r := started(t, config)
				want, sum := trained(t, r), sumOf(t, r)
				embedded, err := r.Embed(t.Context(), []uint32{7, 1500, 2})
				if err != nil {
					t.Fatal(err)
				}
				for n, set := range sets {
					config.Data.Path = set
					r := started(t, config)
					if sparse := c.name != "blocks"; r.model.SparseInput() != sparse || r.plan.Load == sparse {
						t.Errorf("%s on %d pieces: sparse features are %v, rows are read to a slab: %v", name, n, !sparse, r.plan.Load)
					}
					got := trained(t, r)
					if sumOf(t, r) != sum || got.Loss != want.Loss || got.ValidAccuracy != want.ValidAccuracy || got.TestAccuracy != want.TestAccuracy {
						t.Errorf("%s on %d pieces: parameters %.8s, loss %v, accuracies %v and %v, want %.8s, %v, %v and %v", name, n,
							sumOf(t, r), got.Loss, got.ValidAccuracy, got.TestAccuracy, sum, want.Loss, want.ValidAccuracy, want.TestAccuracy)
					}
					e, err := r.Embed(t.Context(), []uint32{7, 1500, 2})
					if err != nil || !slices.Equal(e.Data, embedded.Data) {
						t.Errorf("%s on %d pieces: other embeddings, %v", name, n, err)
					}
				}
			}
		})
	}
}

// A set whose method gives nodes other ids trains and is evaluated; what is asked about nodes by
// their ids is refused. Two sets of one graph are two runs.
func TestSetByOtherMethods(t *testing.T) {
	t.Parallel()
	whole := blockModel(t, false)
	identities := map[string]bool{}
	for method, edges := range map[string]string{"hash": "", "fennel": "", "contiguous": ""} {
		set := setOf(t, whole, pieces.Options{Method: method, Edges: edges, Pieces: 3})
		r := started(t, setConfig(set))
		if e := trained(t, r); e.TestAccuracy < 0.5 {
			t.Errorf("%s: accuracy %v", method, e.TestAccuracy)
		}
		identities[r.identity.Data] = true
		_, err := r.Embed(t.Context(), []uint32{1})
		if refused := errors.Is(err, ErrConfig) && strings.Contains(err.Error(), "--method contiguous"); refused != (method != "contiguous") || !refused && err != nil {
			t.Errorf("%s: embeddings: %v", method, err)
		}
	}
	if len(identities) != 3 {
		t.Errorf("three sets have %d fingerprints", len(identities))
	}
}

// Edges are drawn by their weights from a set as from the store, for models that do not look the
// weights up.
func TestSetWeights(t *testing.T) {
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 3000, Classes: 3, AvgDegree: 8, Homophily: 0.8, FeatureDim: 8, Signal: 0.3, TrainFraction: 0.1, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	for e := range ds.Graph.Indices {
		ds.Graph.Weights = append(ds.Graph.Weights, float32(e%7))
	}
	ds.Fingerprint = ""
	whole := filepath.Join(t.TempDir(), "store")
	if err := store.Create(t.Context(), whole, ds); err != nil {
		t.Fatal(err)
	}
	set := setOf(t, whole, pieces.Options{Method: "contiguous", Pieces: 3})
	var sums []string
	for _, data := range []string{whole, set} {
		c := setConfig(data)
		c.Sampling.Options = map[string]string{"weighted": "true"}
		r := started(t, c)
		trained(t, r)
		sums = append(sums, sumOf(t, r))
	}
	if sums[0] != sums[1] {
		t.Errorf("parameters %.8s on the store and %.8s on the set", sums[0], sums[1])
	}
	c := setConfig(set)
	c.Model.Name = "gcn"
	if r, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "model gcn looks up the weights of edges") {
		if err == nil {
			err = r.Stop()
		}
		t.Errorf("gcn: %v", err)
	}
}

// What a partition set cannot do is refused by name.
func TestSetRefuses(t *testing.T) {
	whole := blockModel(t, false)
	set := setOf(t, whole, pieces.Options{Method: "contiguous", Pieces: 2})
	grid := setOf(t, whole, pieces.Options{Method: "contiguous", Edges: pieces.EdgesOnGrid, Pieces: 4})
	for want, change := range map[string]func(c *Config){
		"full: a batch is the whole graph": func(c *Config) { c.Sampling.Sampler, c.Sampling.Fanouts = "full", nil },
		"ladies: it draws among all":       func(c *Config) { c.Sampling.Sampler = "ladies" },
		"edge: what it prepares": func(c *Config) {
			c.Sampling.Sampler, c.Sampling.Fanouts, c.Sampling.Options = "edge", nil, map[string]string{"budget": "40"}
		},
		"task link":                                              func(c *Config) { c.Model.Task = "link" },
		"inductive: the graph":                                   func(c *Config) { c.Sampling.Inductive = true },
		"needs the times of nodes":                               func(c *Config) { c.Sampling.Options = map[string]string{"temporal": "true"} },
		"normalize-features: rows":                               func(c *Config) { c.Data.NormalizeFeatures = true },
		"features: ram: rows are read":                           func(c *Config) { c.Memory.Features = "ram" },
		"cache: degree:10%: nodes":                               func(c *Config) { c.Memory.Cache = "degree:10%" },
		"several nodes: one process":                             func(c *Config) { c.Cluster.SamplesOnly = true },
		"edges lie on a grid of pieces (partition --edges grid)": func(c *Config) { c.Data.Path = grid },
	} {
		c := setConfig(set)
		change(&c)
		r, err := Start(context.Background(), c)
		if err == nil {
			err = fmt.Errorf("it started: %w", r.Stop())
		}
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "grid") && (!strings.Contains(err.Error(), "--hybrid") || strings.Contains(err.Error(), "sampler-options")) {
			t.Errorf("edges on a grid: error %v, want one that names what trains on them, and nothing else", err)
		}
	}
}

// Damage to a piece ends a run on the set, and is said to be of the piece's file.
func TestSetDamage(t *testing.T) {
	set := setOf(t, blockModel(t, false), pieces.Options{Method: "contiguous", Pieces: 2})
	path := filepath.Join(set, "piece-0001", "node-features.bin")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	c := setConfig(set)
	c.Data.Verify = true
	r, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	for _, failed := range r.Train(t.Context()) {
		err = failed
	}
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one of %s", err, path)
	}
}
