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
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/links"
)

// samplingNode is another process that samples: what comes from it went through its bytes.
type samplingNode struct {
	r     *Runtime
	free  sync.Pool
	asked [9]atomic.Int64 // by what was wanted
	bad   func(m *messages.Seeds, data []byte) []byte
}

var wants = []messages.Want{"", messages.WantDraw, messages.WantRows, messages.WantEdges, messages.WantHops, messages.WantCache, messages.WantTop, messages.WantLinks, messages.WantFacts}

func (*samplingNode) Here(int) bool { return false }

func (n *samplingNode) Ask(ctx context.Context, m *messages.Seeds) ([]byte, error) {
	draw, ok := n.free.Get().(func(*sampling.Batch, *messages.Seeds) (messages.Message, error))
	if !ok {
		draw = n.r.NewDraw()
	}
	defer n.free.Put(draw)
	n.asked[slices.Index(wants, m.Want)].Add(1)
	var b sampling.Batch
	body, err := messages.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(body) > 64<<10 {
		return nil, fmt.Errorf("a message of %d bytes", len(body))
	}
	x, err := messages.Unmarshal(m.Kind(), body)
	if err != nil {
		return nil, err
	}
	answer, err := draw(&b, x.(*messages.Seeds))
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	data := messages.AppendBatch(nil, &b)
	if answer != nil {
		data, err = messages.Marshal(answer)
	}
	if n.bad != nil {
		data = n.bad(m, data)
	}
	return data, err
}

func (n *samplingNode) Draw(ctx context.Context, _ int, m *messages.Seeds, b *sampling.Batch) (string, error) {
	data, err := n.Ask(ctx, &messages.Seeds{ID: m.ID, Step: m.Step})
	if err != nil {
		return "", err
	}
	return "s", messages.ReadBatch(b, m.ID, data)
}

// withoutEdges returns a directory with the store of ds, of whose files those are not there that a
// process has not that trains by c where others sample.
func withoutEdges(t *testing.T, ds *graph.Dataset, c Config) (whole, away string) {
	t.Helper()
	whole, away = filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "away")
	if err := store.Create(t.Context(), whole, ds); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Mkdir(away, 0o755); err != nil {
		t.Fatal(err)
	}
	c.Cluster.Away = true
	for _, name := range s.Files(c.Parts() | store.NodeValues) {
		if name == "indices.bin" || name == "indptr.bin" || (name == "weights.bin" || name == "edge-features.bin") && !c.readsEdges() {
			t.Fatalf("%s is among what it has", name)
		}
		if err := os.Link(filepath.Join(whole, name), filepath.Join(away, name)); err != nil {
			t.Fatal(err)
		}
	}
	return whole, away
}

// A process that trains where others sample has no topology: the files are not there. It gives the
// parameters and accuracies of one that has all, for every sampler and what models look up.
func TestAwayChangesNoBits(t *testing.T) {
	t.Parallel()
	weighted := *small()
	g := *weighted.Graph
	g.Weights = make([]float32, g.NumEdges())
	for e := range g.Weights {
		g.Weights[e] = 0.5 + float32(e%7)/8
	}
	features := make([]float32, 2*g.NumEdges())
	for i := range features {
		features[i] = float32(i%11) / 11
	}
	weighted.Graph, weighted.EdgeFeatures = &g, graph.NewFeatures(int(g.NumEdges()), 2, features)
	weighted.NodeTimes = make([]int64, g.NumNodes())
	for v := range weighted.NodeTimes {
		weighted.NodeTimes[v] = int64(v % 5)
	}
	weighted.Fingerprint = ""
	type run struct {
		config Config
		ds     *graph.Dataset
		asks   messages.Want
	}
	runs := map[string]run{}
	with := func(name string, ds *graph.Dataset, asks messages.Want, change func(*Config)) {
		c := config()
		c.Training.Epochs, c.Sampling.MicroBatches, c.Memory.EvalChunk = 2, 2, 100
		change(&c)
		c.Data.Dataset = nil
		runs[name] = run{c, ds, asks}
	}
	for _, name := range Samplers() {
		with(name, small(), messages.WantRows, func(c *Config) {
			c.Sampling.Sampler, c.Sampling.Options = name, samplerOptions[name]
			if name == "ladies" || name == "fastgcn" {
				c.Sampling.Fanouts = []int{100, 100}
			}
		})
	}
	delete(runs, "full")
	with("gcn", small(), messages.WantRows, func(c *Config) { c.Model.Name = "gcn" })
	with("gcn of weights", &weighted, messages.WantEdges, func(c *Config) { c.Model.Name = "gcn" })
	with("mixhop of weights", &weighted, messages.WantEdges, func(c *Config) { c.Model.Name, c.Sampling.Fanouts = "mixhop", []int{3, 3, 3, 3} })
	with("gin of sums", &weighted, messages.WantRows, func(c *Config) { c.Model.Name, c.Model.ScaleSums = "gin", true })
	with("edge features", &weighted, messages.WantEdges, func(c *Config) { c.Model.Name, c.Model.EdgeFeatures, c.Model.Heads = "gat", true, 2 })
	with("temporal", &weighted, messages.WantHops, func(c *Config) { c.Sampling.Options = map[string]string{"temporal": "true"} })
	with("inductive", small(), messages.WantRows, func(c *Config) { c.Sampling.Inductive = true })
	with("inductive gin of sums", small(), messages.WantRows, func(c *Config) { c.Sampling.Inductive, c.Model.Name, c.Model.ScaleSums = true, "gin", true })
	with("gns, cached", small(), messages.WantCache, func(c *Config) { c.Sampling.Sampler, c.Memory.Cache, c.Training.Epochs = "gns", "gns:10%", 3 })
	with("degree, cached", small(), messages.WantTop, func(c *Config) { c.Memory.Cache = "degree:10%" })
	with("hot, cached", small(), messages.WantDraw, func(c *Config) { c.Memory.Cache = "hot:10%" })
	with("inductive gcn", small(), messages.WantRows, func(c *Config) { c.Sampling.Inductive, c.Model.Name = true, "gcn" })
	for _, name := range links.Samplers() {
		with("links by "+name, &weighted, messages.WantLinks, func(c *Config) { *c = linkConfig(); c.Sampling.Sampler, c.Training.Epochs = name, 2 })
	}
	with("links, gcn, mlp, hot, a stage", small(), messages.WantDraw, func(c *Config) {
		*c = linkConfig()
		c.Model.Name, c.Model.LinkDecoder, c.Memory.Cache, c.Training.Epochs, c.Training.EvalEvery = "gcn", "mlp", "hot:10%", 2, 1
		c.Stages = []Stage{stageOf("pairs", AfterSample, func(_ context.Context, b *StageBatch) error {
			b.Batch.KeepSeeds(func(i int, _ uint32) bool { return i/2%5 > 0 })
			return nil
		})}
		c.Stages[0].SizesOnly = true
	})
	with("a stage", small(), messages.WantRows, func(c *Config) {
		c.Stages = []Stage{thinned()}
		c.Stages[0].SizesOnly = true
	})
	with("reordered", small(), messages.WantRows, func(c *Config) { c.Sampling.Reorder = 3 })
	with("ssp", small(), messages.WantRows, func(c *Config) {
		c.Sampling.MicroBatches, c.Training.Sync, c.Execution.Trainers = 1, SSP(0), 1
	})
	for name, x := range runs {
		t.Run(name, func(t *testing.T) {
			whole, away := withoutEdges(t, x.ds, x.config)
			x.config.Data.Path = whole
			one := started(t, x.config)
			want := trained(t, one)
			only := x.config
			only.Cluster.SamplesOnly = true
			n := &samplingNode{r: started(t, only)}
			x.config.Data.Path, x.config.Cluster.Away, x.config.Cluster.Elsewhere = away, true, n
			r := started(t, x.config)
			got := trained(t, r)
			if sumOf(t, r) != sumOf(t, one) || got.ValidAccuracy != want.ValidAccuracy || got.TestAccuracy != want.TestAccuracy || got.Lineage != want.Lineage {
				t.Errorf("other bits: %v %v, want %v %v", got.ValidAccuracy, got.TestAccuracy, want.ValidAccuracy, want.TestAccuracy)
			}
			if !r.Dataset().Graph.Away() || n.asked[0].Load() == 0 || n.asked[slices.Index(wants, x.asks)].Load() == 0 || n.asked[len(wants)-1].Load() == 0 {
				t.Errorf("asked for %v %d times", wants, n.asked[0].Load())
			}
			// Some nodes' neighbourhoods alone.
			ids := []uint32{7, 3, 7, 400}
			a, err := one.Embed(t.Context(), ids)
			if err != nil {
				t.Fatal(err)
			}
			b, err := r.Embed(t.Context(), ids)
			if err != nil || !slices.Equal(a.Data, b.Data) {
				t.Errorf("other embeddings, %v", err)
			}
		})
	}
}

// What cannot be done without the topology is refused, by name; Check, which can ask nobody, finds
// the rest of what does not suit.
func TestAwayRefused(t *testing.T) {
	weighted := *small()
	g := *weighted.Graph
	g.Weights, weighted.Graph = make([]float32, g.NumEdges()), &g
	for want, change := range map[string]func(*Config){
		"sampler full":    func(c *Config) { c.Sampling.Sampler = "full" },
		"stage thinned ":  func(c *Config) { c.Stages = []Stage{thinned()} },
		"model gcn looks": func(c *Config) { c.Sampling.Inductive, c.Model.Name, c.Data.Dataset = true, "gcn", &weighted },
		"model mixhop ": func(c *Config) {
			*c = linkConfig()
			c.Model.Name, c.Data.Dataset, c.Sampling.Fanouts = "mixhop", &weighted, []int{3, 3, 3, 3}
		},
		"": func(c *Config) { *c = linkConfig(); c.Training.Patience = 2 },
	} {
		c := config()
		change(&c)
		c.Cluster.Away = true
		err := Check(t.Context(), c)
		if want == "" {
			if err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(c.NeedsTopology(c.Data.Dataset), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	c := config()
	n := &samplingNode{r: started(t, c)}
	c.Cluster.Away, c.Cluster.Elsewhere, c.Training.Seed = true, n, 99
	if _, err := Start(t.Context(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "other settings or data") {
		t.Errorf("samplers of another run: %v", err)
	}
	c.Training.Seed, c.Sampling.Fanouts = config().Training.Seed, []int{4, 2}
	if _, err := Start(t.Context(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "same settings") {
		t.Errorf("samplers of other fan-outs: %v", err)
	}
	c.Sampling.Fanouts = config().Sampling.Fanouts
	r := started(t, c)
	for _, err := range r.Batches(t.Context(), BatchesOptions{}) {
		if !errors.Is(err, ErrConfig) {
			t.Errorf("batches: %v", err)
		}
	}
	if p, of := r.Plan(), started(t, config()).Plan(); p.PeakBytes >= of.PeakBytes {
		t.Errorf("a peak of %d bytes without the graph, %d with it", p.PeakBytes, of.PeakBytes)
	}
}

// An answer that does not fit the graph, or the question, is an error.
func TestAwayAnswers(t *testing.T) {
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 50, Classes: 3, AvgDegree: 6, Homophily: 0.7, FeatureDim: 4, Signal: 0.5, TrainFraction: 0.5, ValidFraction: 0.2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := config()
	larger := started(t, c)
	c.Data.Dataset, c.Sampling.BatchSize, c.Sampling.Sampler, c.Memory.Cache = ds, 5, "gns", "gns:50%"
	n := &samplingNode{r: started(t, c)}
	c.Cluster.Away, c.Cluster.Elsewhere = true, n
	r := started(t, c)
	for want, bad := range map[string]func(m *messages.Seeds, data []byte) []byte{
		"it ends early": func(_ *messages.Seeds, data []byte) []byte { return data[:len(data)/2] },
		"out of range": func(m *messages.Seeds, _ []byte) []byte {
			var b sampling.Batch
			if _, err := larger.NewDraw()(&b, m); err != nil {
				t.Fatal(err)
			}
			return messages.AppendBatch(nil, &b)
		},
		"of other nodes": func(m *messages.Seeds, _ []byte) []byte {
			var b sampling.Batch
			if _, err := n.r.NewDraw()(&b, &messages.Seeds{Want: m.Want, Seeds: []uint32{49, 48}}); err != nil {
				t.Fatal(err)
			}
			return messages.AppendBatch(nil, &b)
		},
	} {
		n.bad = bad
		if _, err := r.Embed(t.Context(), []uint32{1, 2, 3}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	n.bad = func(*messages.Seeds, []byte) []byte {
		b, _ := messages.Marshal(&messages.Nodes{Nodes: []uint32{50}})
		return b
	}
	if _, err := r.generations().Nodes(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "node 50 of 50") {
		t.Errorf("a cache of other nodes: %v", err)
	}
	n.bad = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Embed(ctx, []uint32{1}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	learns := linkConfig()
	learns.Data.Dataset = ds
	n = &samplingNode{r: started(t, learns)}
	learns.Cluster.Away, learns.Cluster.Elsewhere = true, n
	r = started(t, learns)
	for _, ranked := range []messages.Uint32s{{}, {0}, {2, 1, 2, 3}, {1, 1, 50}} {
		n.bad = func(m *messages.Seeds, data []byte) []byte {
			if m.Want == messages.WantLinks {
				data, _ = messages.Marshal(&messages.Nodes{Nodes: ranked})
			}
			return data
		}
		if _, err := r.EvaluateLinks(t.Context(), TestLinks); err == nil || !strings.Contains(err.Error(), "or of nodes that there are not") {
			t.Errorf("links and pairs %d: %v", ranked, err)
		}
	}
	n.bad = func(m *messages.Seeds, data []byte) []byte {
		b, _ := messages.Marshal(&messages.Facts{Run: n.r.SamplingID(), Sampler: n.r.sampler.Facts(), Links: []uint32{1, 1, 1 << 31}})
		return b
	}
	if _, err := Start(t.Context(), learns); err == nil || !strings.Contains(err.Error(), "links in splits") {
		t.Errorf("more links than edges: %v", err)
	}
	draw := n.r.NewDraw()
	for _, m := range []*messages.Seeds{{Want: "x"}, {Want: messages.WantLinks}, {Want: messages.WantLinks, Seeds: []uint32{0, 1 << 20}}, {Want: messages.WantLinks, Step: 3, Seeds: []uint32{0, 0}},
		{Want: messages.WantDraw, Seeds: []uint32{1 << 20}}, {Want: messages.WantHops, Step: -1}, {Want: messages.WantHops, Step: 1 << 40}, {Want: messages.WantCache, Step: -1},
		{Want: messages.WantCache, Step: 1 << 40}, {Want: messages.WantRows, Seeds: []uint32{50}}, {Want: messages.WantRows, Seeds: []uint32{1, 1}}} {
		if _, err := draw(new(sampling.Batch), m); err == nil {
			t.Errorf("%+v is answered", m)
		}
	}
}
