package runtime

import (
	"log/slog"
	stdruntime "runtime"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/training"
)

// Config describes a run, in sections. Each setting has one name as a YAML key and as a
// command-line flag, its yaml tag, whatever section it is in: `batch-size` is
// Sampling.BatchSize. Start from DefaultConfig: the zero value of a number is taken
// literally.
type Config struct {
	Data       DataConfig       `yaml:",inline"`
	Model      ModelConfig      `yaml:",inline"`
	Sampling   SamplingConfig   `yaml:",inline"`
	Training   TrainingConfig   `yaml:",inline"`
	Execution  ExecutionConfig  `yaml:",inline"`
	Memory     MemoryConfig     `yaml:",inline"`
	Cluster    ClusterConfig    `yaml:",inline"`
	Checkpoint CheckpointConfig `yaml:",inline"`

	// Stages are the program's own, in this order, of which those after sample come first.
	Stages []Stage `yaml:"-"`

	// Observe, when set, is called with every Event of Train before the loop over it has
	// it, for those that count and do not own the loop. It is called from that loop's
	// goroutine, never twice at once. It must not block, nor call Train or Stop: between
	// two epochs training waits for it, and within one as soon as queues are full. It
	// shares Event.Stages and Event.Late with the loop, and must not change them.
	Observe func(Event) `yaml:"-"`

	// Logger receives what the run has to say; nil: nothing is logged.
	Logger *slog.Logger `yaml:"-"`
}

// DataConfig says what is learnt from.
type DataConfig struct {
	// Path is a store, a partition set (package graph/pieces; samplers but full need edges at their targets), or
	// any directory that importer.Import understands; empty: the built-in graph. Of a set this
	// process opens all pieces, unless Cluster.Parts has them; the run has the ids of nodes that the set has, and what it cannot
	// do there is an error by name.
	Path string `yaml:"data"`
	// Format overrides how the data is recognised (importer.Formats lists them).
	Format string `yaml:"format"`
	// Dataset, when set, is used instead of Path. The caller keeps owning it
	// and must not change it before Stop.
	Dataset *graph.Dataset `yaml:"-"`
	// Rows, when set, is where training reads feature rows, such as the shards of a
	// cluster; the data then needs no features of its own. Inference on data
	// without them reads all rows first, and drops them again. The caller keeps
	// owning the store, and closes it after Stop.
	Rows features.Store `yaml:"-"`
	// NormalizeFeatures divides each node's features by the sum of their
	// absolute values.
	NormalizeFeatures bool `yaml:"normalize-features"`
	// Verify compares the bytes of a store that the run reads with their checksums,
	// in the background: see Runtime.Verified.
	Verify bool `yaml:"verify-data"`
}

// ModelConfig says what is learnt: the task, the architecture and what it starts from.
type ModelConfig struct {
	// Task is what is learnt: node, the classes of nodes; regression, a number of each (graph.Labels.Values); empty: what
	// of the two the labels are; or link, which pairs of nodes are joined. In task regression the model learns the numbers
	// less their mean over the training nodes, divided by their standard deviation; evaluations and predictions
	// are in the data's units, and report the root mean squared error where those of classes report the accuracy. In task link a batch is of Sampling.BatchSize links
	// with their Sampling.Negatives; the loss is the binary cross-entropy of the dot product of
	// two embeddings, which are Hidden wide; evaluations report the AUC where those
	// of nodes report the accuracy; the splits are described at Links.
	Task string `yaml:"task"`

	Name string `yaml:"model"` // one out of Models
	// Layer, when set, makes the layers of a model of the caller's own, from in
	// to out columns: see compute.NewCustomModel. Name is then the caller's name
	// for it, which stands for it in checkpoints: change it with the layer.
	Layer func(i, in, out int) compute.Layer[float32] `yaml:"-"`

	Layers  int     `yaml:"layers"`  // number of message-passing layers
	Hidden  int     `yaml:"hidden"`  // width of the layers between
	Dropout float64 `yaml:"dropout"` // probability of dropping a hidden value in training
	// InputDropout is the same for input features; negative: 1−(1−Dropout)² for
	// gcn, 0 for other models.
	InputDropout float64 `yaml:"input-dropout"`
	Aggregation  string  `yaml:"aggregation"`  // of sage: mean, max or sum; empty: mean
	Combine      string  `yaml:"combine"`      // of sage, a node's own part with its neighbours': add or concat; empty: add
	Heads        int     `yaml:"heads"`        // attention heads of gat and gatv2; 0: 1
	OutputHeads  int     `yaml:"output-heads"` // those of the output layer; 0: as many as Heads
	Hops         int     `yaml:"hops"`         // powers of the adjacency matrix in a layer of mixhop; 0: 2
	// GCNNorm is where gcn and mixhop take degrees from in training: graph, or
	// the sampled block, as PyG does on a loader's batch; empty: graph.
	GCNNorm string `yaml:"gcn-norm"`
	// TrainEps makes the ε of gin a parameter that is learnt.
	TrainEps bool `yaml:"train-eps"`
	// ScaleSums scales what gin and sage's sum receive from sampled neighbours
	// to all neighbours.
	ScaleSums bool `yaml:"scale-sums"`
	// WeightAttention lets the sampler's weights count in gat and gatv2.
	WeightAttention bool `yaml:"weight-attention"`
	// EdgeFeatures lets gat read the data's edge features (GAT-E).
	EdgeFeatures bool `yaml:"edge-features"`
	// AttentionDropout is the probability of dropping an attention weight.
	AttentionDropout float64 `yaml:"attention-dropout"`
	Activation       string  `yaml:"activation"` // after every convolution but the last: relu, leaky-relu or elu; empty: relu
	// Norm follows every convolution: layer, batch or none; empty: batch for gin,
	// whose sums it keeps in range, none for others.
	Norm     string `yaml:"norm"`
	Residual bool   `yaml:"residual"` // add a convolution's input to its result
	// JumpingKnowledge makes the output a linear layer over all convolutions:
	// cat, max or last; empty: the last convolution is the output.
	JumpingKnowledge string `yaml:"jumping-knowledge"`
	// DecoderLayers is the number of linear layers after the convolutions, which
	// are then all Hidden wide; 0: none, but for one with JumpingKnowledge.
	DecoderLayers int `yaml:"decoder-layers"`
	// LinkDecoder makes a score of two embeddings in task link: dot, their dot product
	// (also if empty), or mlp, two linear layers with the activation between, of their
	// product element by element.
	LinkDecoder string `yaml:"link-decoder"`
	// Precision is what the factors of dense products are rounded to: float32 (also
	// if empty), tf32, which devices have alone, or bf16, whose sums and everything else stay
	// float32. bf16 needs a device, a processor with AVX512_BF16, or the portable kernels
	// (GNNACTOR_SIMD=go). Sparse input features, aggregation and attention are not rounded.
	Precision string `yaml:"precision"`

	// Params, when set, is a safetensors file to start from, or a directory of checkpoints, see OpenModel. The settings of the model
	// must be those that it describes, see OpenModel; of a file that describes none,
	// such as PyG's, they are taken for so.
	Params string `yaml:"params"`
	// Map, when set, is a file that says which tensors of Params are which parameters, see compute.NameMap. Without it the names
	// of PyG's and DGL's layers are known.
	Map string `yaml:"map"`
	// Saved, when set, is what to start from, in place of Params.
	Saved *Model `yaml:"-"`
}

// SamplingConfig says what a batch is made of.
type SamplingConfig struct {
	Sampler string `yaml:"sampler"` // a name out of sampling.Names
	// Own, when set, makes a sampler of the caller's own. Sampler is then the caller's name for it.
	Own *OwnSampler `yaml:"-"`
	// Fanouts are the neighbours sampled per layer, from the seeds outward;
	// -1 takes all of them. For fastgcn and ladies they are a layer's nodes.
	// Samplers of whole neighbourhoods and of subgraphs do without.
	Fanouts []int `yaml:"fanouts"`
	// Options are further settings of the sampler, by the yaml names of
	// sampling.Spec: {"budget": "8000", "frontier": "1000"}.
	Options map[string]string `yaml:"sampler-options"`

	// EpochSubgraphs is how many subgraphs an epoch of the samplers node, edge, walk and
	// frontier has, a micro-batch being one; 0: as many as have, on average, as many nodes
	// as there are to draw from.
	EpochSubgraphs int `yaml:"epoch-subgraphs"`
	// Inductive has training see the training nodes and the edges between them alone;
	// evaluation and inference see the whole graph.
	Inductive bool `yaml:"inductive"`
	// Hybrid has all pieces of a partition set compute each batch of the sampler khop, where its nodes lie, in place of
	// one trainer for itself: for batches whose neighbourhoods are much of the graph.
	Hybrid bool `yaml:"hybrid"`

	BatchSize    int `yaml:"batch-size"`    // seed nodes of a global batch, or links
	MicroBatches int `yaml:"micro-batches"` // parts a global batch is cut into

	// Negatives is how many pairs that no edge joins are drawn per link in task
	// link; 0: 1.
	Negatives int `yaml:"negatives"`
	// KeepTargetEdges leaves the edges of a batch's own links among those that its
	// messages pass along; else they are taken out, so that the model cannot see
	// what it is asked for.
	KeepTargetEdges bool `yaml:"keep-target-edges"`

	// Reorder is the number of batches of a window in which batches with common
	// rows are made to follow each other; 0: batches keep their order.
	Reorder int `yaml:"reorder"`
	// ReorderMethod is how common rows are counted: exact, sketch, or auto.
	ReorderMethod string `yaml:"reorder-method"`
}

// TrainingConfig says how parameters are made of batches.
type TrainingConfig struct {
	Epochs    int     `yaml:"epochs"`
	Optimizer string  `yaml:"optimizer"` // adam, adamw or sgd, as PyTorch has them
	LR        float64 `yaml:"lr"`        // learning rate
	// Loss of numbers (task regression): mse (also if empty), l1, or huber, which is mse/2 within a standard deviation and l1 beyond. Of
	// classes: cross-entropy (also if empty), of softmax, or of the sigmoid of each label where nodes have several; or
	// focal, with its exponent FocalGamma (0: 2). What a run reports of training is this loss; evaluations
	// report the cross-entropy.
	Loss       string  `yaml:"loss"`
	FocalGamma float64 `yaml:"focal-gamma"`
	// LabelSmoothing s has cross-entropy learn 1-s+s/c of the right one of c classes, and s/c of the others; with several labels
	// a node c is 2.
	LabelSmoothing float64 `yaml:"label-smoothing"`
	// ClassWeights multiply what the nodes of a class cost, or where nodes have several labels what each label costs that is set, as
	// PyTorch's weight and pos_weight do: balanced, the inverse of how often training nodes have it (with several labels, the unset for
	// each that is set); numbers with commas between, one for each class; or class=weight pairs, by names or numbers, the
	// others having 1. Empty: all 1.
	ClassWeights string `yaml:"class-weights"`

	WeightDecay float64 `yaml:"weight-decay"` // added to the gradient; adamw: taken from the parameters
	Momentum    float64 `yaml:"momentum"`     // of sgd
	ClipNorm    float64 `yaml:"clip-norm"`    // largest norm of a batch's gradient; 0: any
	// Schedule of the learning rate: constant; step: times ScheduleFactor every
	// ScheduleEpochs; cosine: over Epochs, after Warmup; plateau: times
	// ScheduleFactor when ScheduleEpochs evaluations brought nothing.
	Schedule       string  `yaml:"schedule"`
	ScheduleEpochs int     `yaml:"schedule-epochs"`
	ScheduleFactor float64 `yaml:"schedule-factor"`
	Warmup         int     `yaml:"warmup"`
	// Patience ends training when so many evaluations did not improve the
	// validation accuracy; 0: never.
	Patience int `yaml:"patience"`
	// Keep says which parameters the runtime has when training ends, interrupted or not: best, those of the
	// evaluation with the highest validation accuracy, the first of several, or last; empty: best with
	// Patience, else last. Checkpoints have both, so that a run that goes on from one ends with the same.
	Keep string `yaml:"keep"`

	// Recompute has batches that all pieces of a partition set compute together keep each layer's results alone for the backward pass, which
	// computes the rest of the activations again: less memory, more time and rows between pieces, the same bits.
	Recompute bool `yaml:"recompute"`

	Sync      Sync   `yaml:"sync"` // how trainers work together; SSP(N) is ssp:N in files and flags
	Seed      uint64 `yaml:"seed"`
	EvalEvery int    `yaml:"eval-every"` // epochs between evaluations; 0: only at the end
}

// ExecutionConfig says what does the work, in this process. None of it changes a result.
type ExecutionConfig struct {
	Threads  int `yaml:"threads"`  // workers of the compute pool; 0: one per CPU, of which training on one machine computes with fewer where that measures faster
	Samplers int `yaml:"samplers"` // sampler actors; 0: the plan chooses
	Trainers int `yaml:"trainers"` // compute actors, at most Sampling.MicroBatches; 0: 1. With Training.Sync ssp:N at most N+1; 0: one per thread, in a cluster 1; with Sampling.Hybrid so many batches are in flight, 0: N+1
	Credits  int `yaml:"credits"`  // batches a sampler may have out; 0: the plan chooses
	// Device is what models are computed on: cpu (also if empty), cuda or cuda:N, an
	// NVIDIA device, several with commas between them, like cuda:0,cuda:1, or cuda:all, which
	// micro-batches are dealt to, or auto, which is cuda where there is a device, and says so where there
	// is none. What drives devices is linked in by who imports
	// github.com/gnnactor/gnnactor/compute/cuda.
	Device string `yaml:"device"`
	// BLAS is what makes dense products where a device computes: own (also if empty), this program's
	// kernels, or cublas, NVIDIA's library, which has to be installed. Their bits differ.
	BLAS string `yaml:"blas"`
	// SampleOn is what samples where a device computes: cpu, device (neighbor without
	// replacement, khop and gns), or empty: what measures faster, if the graph takes less than a quarter of the
	// device's memory.
	SampleOn string `yaml:"sample-on"`
	// Trace, when set, is a file to write the stages' spans to, as a Chrome trace.
	Trace string `yaml:"trace"`
	// Spans has the run keep that many spans of its stages, for Runtime.Spans;
	// with Trace, at least a million.
	Spans int `yaml:"-"`
}

// MemoryConfig says how feature rows come to where they are computed with, and what memory
// that takes. None of it changes a result, but for the fraction of Cache's gns.
type MemoryConfig struct {
	// Limit is what the plan has to fit: a size such as 8GiB, none, or empty:
	// the smallest limit that the process's control groups, those that they lie in, and
	// GOMEMLIMIT set. Training that does not fit is refused before it takes much.
	Limit string `yaml:"memory-limit"`
	// Pinned is how much of the host's memory may be pinned to copy to a device, a size such as
	// 16MiB; empty: what the plan finds best, a few MiB for each trainer, and a table of features
	// that lies in memory and whose rows the device may gather itself. One in a mapped file is
	// pinned only if this is large enough for it.
	Pinned string `yaml:"pinned-memory"`
	// Features is where training reads feature rows: ram, mmap, disk, or
	// throttled:BANDWIDTH[,LATENCY][,ram|mmap|disk] to stand in for a slower
	// one; empty: where they lie, in memory or in a mapped file.
	Features string `yaml:"features"`
	// Match brings rows to a slab, and leaves those where they are that the
	// batches before needed too: on, off (a batch reads all its rows), or empty:
	// the plan chooses. Where a device computes the slab is in its memory.
	Match string `yaml:"match"`
	// Cache keeps rows in the slab: gns:1%, degree:5%, hot:64MiB, dynamic:256MiB,
	// none; empty: none, unless measuring the first batches finds that a dynamic one
	// within the plan's peak pays. gns also says how many nodes that sampler draws, which changes
	// results, unless cache-fraction of Sampling.Options does.
	Cache string `yaml:"cache"`
	// Gather is how compute gets at a batch's rows: fused, it reads them where they
	// lie, in the table or the slab; copied, it copies them together first; or empty:
	// fused, unless copied measures faster in synchronous training on one machine.
	Gather    string `yaml:"gather"`
	Loaders   int    `yaml:"loaders"`    // reads of features that may be under way; 0: the plan chooses
	EvalChunk int    `yaml:"eval-chunk"` // rows computed at once in exact inference; 0: the plan chooses
}

// ClusterConfig says what trains together with this process.
type ClusterConfig struct {
	// Peers, when set, are the other nodes that train the same model together
	// with this one; every node has the same Config apart from Execution, Memory,
	// Checkpoint and this. The caller keeps owning it.
	Peers training.Session `yaml:"-"`
	// Elsewhere, when set, has this process's samplers sample on other nodes (package
	// cluster/samplers).
	Elsewhere actors.Elsewhere `yaml:"-"`
	// Actors is the system that the run's actors are in; nil: one that all such runs of the process share.
	Actors *actor.ActorSystem `yaml:"-"`
	// Away: this process opens no topology, and asks those who sample what it would look up there (by
	// Elsewhere); NeedsTopology says for which settings and data that cannot be. What Runtime.Dataset
	// returns has the sizes of the graph alone then. It trains, and infers; it makes no Batches.
	Away bool `yaml:"-"`
	// SamplesOnly: this process draws micro-batches for others (Runtime.NewDraw) and neither
	// trains nor infers; its data may lack the values of the features.
	SamplesOnly bool `yaml:"-"`
	// Parts, when set, are the pieces of the partition set Data.Path, which lie on several nodes. The caller keeps
	// owning them.
	Parts training.Parts `yaml:"-"`
	// Spread, when set, has a Divided compute some pieces of Data.Path, where others compute the rest. The caller keeps owning it.
	Spread training.Spread `yaml:"-"`
	// Audit is which part of the micro-batches that this node samples another of
	// Peers samples again, to find memory and disks that lie (package cluster/trainers);
	// 0: none.
	Audit float64 `yaml:"audit"`
}

// CheckpointConfig says where a run is kept, to go on with after an interruption.
type CheckpointConfig struct {
	Dir               string `yaml:"checkpoint"`          // empty: none are written
	Keep              int    `yaml:"keep-checkpoints"`    // how many to keep
	Resume            bool   `yaml:"resume"`              // go on from the newest checkpoint, if there is one
	Shared            bool   `yaml:"shared-checkpoint"`   // the nodes of Cluster.Peers share Dir, and one of them writes to it
	AllowOtherKernels bool   `yaml:"allow-other-kernels"` // resume although the kernel set differs
}

// DefaultConfig returns the settings that `gnnactor train` uses with no flags.
func DefaultConfig() Config {
	return Config{
		Data:     DataConfig{Verify: true},
		Model:    ModelConfig{Name: "sage", Layers: 2, Hidden: 64, Dropout: 0.5, InputDropout: -1},
		Sampling: SamplingConfig{Sampler: "neighbor", Fanouts: []int{10, 10}, BatchSize: 512, MicroBatches: 1},
		Training: TrainingConfig{
			Epochs: 10, Optimizer: "adam", LR: 0.01, WeightDecay: 5e-4, Momentum: 0.9, Seed: 1, EvalEvery: 1,
			Schedule: "constant", ScheduleEpochs: 10, ScheduleFactor: 0.5,
		},
		Cluster:    ClusterConfig{Audit: 0.01},
		Checkpoint: CheckpointConfig{Keep: 3},
	}
}

// Blocks returns how many blocks a batch for the model has.
func (c *Config) Blocks() int {
	if c.Model.Name != "mixhop" {
		return c.Model.Layers
	}
	if c.Model.Hops == 0 {
		return 2 * c.Model.Layers
	}
	return c.Model.Hops * c.Model.Layers
}

// keepsBest reports whether training ends with the parameters that are best by validation.
func (t *TrainingConfig) keepsBest() bool { return t.Keep == "best" || t.Keep == "" && t.Patience > 0 }

func (c *Config) threads() int {
	if c.Execution.Threads > 0 {
		return c.Execution.Threads
	}
	return stdruntime.GOMAXPROCS(0)
}
