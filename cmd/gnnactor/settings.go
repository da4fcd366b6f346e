package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gnnactor/gnnactor/runtime"
)

// group is a set of settings that a subcommand takes together.
type group int

const (
	dataGroup group = iota
	modelGroup
	samplingGroup
	trainingGroup
	executionGroup
	checkpointGroup
)

// setting describes one field of a section of runtime.Config. Its name is the
// field's yaml tag; flag and environment variable follow from it.
type setting struct {
	name  string
	group group
	doc   string
}

// settings lists every setting, in the order in which --help shows them. A test
// compares it with those of runtime.Config's sections.
var settings = []setting{
	{"data", dataGroup, "`DIR` of the data: a store, a partition set ('gnnactor partition --out'), or anything that 'gnnactor import' understands (default: the built-in graph)"},
	{"format", dataGroup, "`NAME` of the data's format, instead of recognising it by its files"},
	{"normalize-features", dataGroup, "divide each node's features by the sum of their absolute values"},

	{"model", modelGroup, "`NAME` of the model: " + strings.Join(runtime.Models(), ", ")},
	{"task", modelGroup, "`WHAT` is learnt: node, the nodes' classes, regression, a number of each (default: what the labels are), or link, which nodes are joined"},
	{"layers", modelGroup, "message-passing layers"},
	{"hidden", modelGroup, "width of the layers between"},
	{"dropout", modelGroup, "probability of dropping a hidden value in training"},
	{"input-dropout", modelGroup, "the same for input features; negative: 1-(1-dropout)^2 for gcn, 0 for other models"},
	{"combine", modelGroup, "`HOW` sage joins a node and its neighbours: add (default), concat (half of hidden each)"},
	{"aggregation", modelGroup, "`NAME` of what sage does with its neighbours: mean (default), max, sum"},
	{"heads", modelGroup, "attention heads of gat and gatv2; 0: 1"},
	{"output-heads", modelGroup, "attention heads of the output layer, whose mean it takes; 0: as many as heads"},
	{"hops", modelGroup, "powers of the adjacency matrix in a layer of mixhop; 0: 2"},
	{"gcn-norm", modelGroup, "where gcn and mixhop take degrees from in training: graph (default), or the sampled block"},
	{"train-eps", modelGroup, "learn the epsilon of gin"},
	{"scale-sums", modelGroup, "scale what gin and sage's sum receive from sampled neighbours to all neighbours"},
	{"edge-features", modelGroup, "let gat read the data's edge features"},
	{"weight-attention", modelGroup, "let the sampler's weights count in gat and gatv2"},
	{"attention-dropout", modelGroup, "probability of dropping an attention weight in training"},
	{"activation", modelGroup, "`NAME` of what follows every convolution but the last: relu (default), leaky-relu, elu"},
	{"norm", modelGroup, "`NAME` of the norm after every convolution: layer, batch, none (default: batch for gin, none for others)"},
	{"residual", modelGroup, "add a convolution's input to its result"},
	{"jumping-knowledge", modelGroup, "output from all convolutions: cat, max or last (default: from the last alone)"},
	{"decoder-layers", modelGroup, "linear layers after the convolutions; 0: none, but for one with --jumping-knowledge"},
	{"link-decoder", modelGroup, "with --task link: `HOW` two embeddings make a score: dot (default), mlp (two linear layers of their product)"},
	{"precision", modelGroup, "`NAME` of what factors of dense products are rounded to: float32 (default), tf32, on devices, or bf16, on devices and on processors with AVX512_BF16"},
	{"params", modelGroup, "safetensors `FILE` with the parameters to start from, or a directory of checkpoints; settings of its model that are given otherwise are refused"},
	{"map", modelGroup, "`FILE` that says which tensors of --params are which parameters, 'convs.0.bias = conv_in.b' (default: the names of PyG's and DGL's layers are known)"},

	{"sampler", samplingGroup, "`NAME` of the sampler: " + strings.Join(runtime.Samplers(), ", ")},
	{"fanouts", samplingGroup, "neighbours sampled per layer, from the seeds outward; -1 takes all"},
	{"sampler-options", samplingGroup, "further settings of the sampler, like budget=8000,frontier=1000 (see 'gnnactor sample --help')"},
	{"batch-size", samplingGroup, "seed nodes of a batch, or links"},
	{"epoch-subgraphs", samplingGroup, "with node, edge, walk and frontier: subgraphs of an epoch, a micro-batch being one; 0: as many as have, on average, as many nodes as the graph"},
	{"inductive", samplingGroup, "train on the training nodes and the edges between them alone; evaluation and inference see the whole graph"},
	{"hybrid", samplingGroup, "with --sampler khop over a partition set: its nodes' pieces compute each batch together, rather than one node for itself; for large batches"},
	{"negatives", samplingGroup, "with --task link: pairs that no edge joins, per link; 0: 1"},
	{"keep-target-edges", samplingGroup, "with --task link: pass messages along a batch's own links, too"},
	{"micro-batches", samplingGroup, "parts that a batch is cut into"},
	{"reorder", samplingGroup, "batches of a window in which those with common rows follow each other; changes results; 0: none"},
	{"reorder-method", samplingGroup, "`NAME` of how common rows are counted: exact, sketch (default: by the window)"},

	{"epochs", trainingGroup, "passes over the training set"},
	{"optimizer", trainingGroup, "`NAME` of the optimiser: adam, adamw, sgd"},
	{"lr", trainingGroup, "learning rate"},
	{"loss", trainingGroup, "`NAME` of the loss: of classes cross-entropy (default), focal; of numbers mse (default), l1, huber"},
	{"focal-gamma", trainingGroup, "exponent of the focal loss; 0: 2"},
	{"label-smoothing", trainingGroup, "part of the target that is shared out to all classes, in [0, 1)"},
	{"class-weights", trainingGroup, "what a class's nodes count: `balanced`, a number for each class (1,1,5), or class=number pairs (spam=5)"},
	{"weight-decay", trainingGroup, "L2 penalty added to the gradient; adamw: decay of the parameters"},
	{"momentum", trainingGroup, "momentum of sgd"},
	{"clip-norm", trainingGroup, "largest norm of a batch's gradient; 0: any"},
	{"schedule", trainingGroup, "`NAME` of the learning rate's schedule: constant, step, cosine, plateau"},
	{"schedule-epochs", trainingGroup, "step: epochs between two falls; plateau: evaluations without improvement before one"},
	{"schedule-factor", trainingGroup, "what a fall multiplies the learning rate by"},
	{"warmup", trainingGroup, "cosine: epochs in which the learning rate rises first"},
	{"patience", trainingGroup, "evaluations without a better validation accuracy that end training; 0: never"},
	{"keep", trainingGroup, "`WHICH` parameters the run ends with, and --save has: best by validation, or last (default: best with --patience, else last)"},
	{"recompute", trainingGroup, "where all pieces of a partition set compute a batch together: keep each layer's results alone, and compute its other activations again for the backward pass; less memory, more time, the same bits ('plan --parts' shows how much)"},
	{"sync", trainingGroup, "`HOW` trainers work together: sync, or ssp:N, asynchronously, no gradient more than N steps late"},
	{"seed", trainingGroup, "what every random draw derives from"},
	{"eval-every", trainingGroup, "epochs between evaluations; 0: only at the end"},

	{"threads", executionGroup, "workers of the compute pool; 0: one per CPU (training on one machine may compute with fewer, if that measures faster)"},
	{"device", executionGroup, "`WHAT` computes: cpu (default), cuda or cuda:N, an NVIDIA device, several like cuda:0,cuda:1, or cuda:all, to which --micro-batches are dealt, or auto, a device if there is one"},
	{"blas", executionGroup, "`WHAT` makes dense products where a device computes: own (default), or cublas, NVIDIA's library, in float32 or tf32"},
	{"sample-on", executionGroup, "`WHAT` samples where a device computes: cpu, or device, for neighbor without replacement, khop and gns (default: what measures faster)"},
	{"samplers", executionGroup, "sampler actors; 0: the plan chooses (--sync ssp:N: one for each trainer)"},
	{"trainers", executionGroup, "compute actors, at most --micro-batches; 0: 1 (--sync ssp:N: at most N+1; with --hybrid batches in flight, 0: N+1)"},
	{"credits", executionGroup, "batches that a sampler may have out; 0: the plan chooses"},
	{"eval-chunk", executionGroup, "rows computed at once in exact inference; 0: the plan chooses"},
	{"loaders", executionGroup, "reads of features that may be under way; 0: the plan chooses"},
	{"memory-limit", executionGroup, "`SIZE` that the plan has to fit, like 8GiB, or none (default: the limits of control groups and GOMEMLIMIT)"},
	{"pinned-memory", executionGroup, "`SIZE` of memory that may be pinned to copy to a device, like 16MiB (default: a few MiB for each trainer, and features in memory if the device reads them there)"},
	{"features", executionGroup, "`WHERE` training reads feature rows: ram, mmap, disk, or throttled:200MB/s,1ms[,disk] (default: where they lie)"},
	{"match", executionGroup, "`on` or off: do not read rows again that the batches before hold (default: the plan chooses)"},
	{"cache", executionGroup, "`WHAT` rows to keep in memory: gns:1%, degree:5%, hot:64MiB, dynamic:256MiB, none (default: none; training adds a dynamic one if that measures to pay)"},
	{"gather", executionGroup, "`HOW` compute gets at a batch's rows: fused (where they lie) or copied together first (default: fused; training on one machine copies if that measures faster)"},
	{"trace", executionGroup, "`FILE` to write what every stage did when, for Perfetto or chrome://tracing"},
	{"verify-data", executionGroup, "read a store in the background and compare it with its checksums; results that last wait for it"},
	{"audit", executionGroup, "with --cluster: part of the micro-batches that a second node samples, too, to find memory and disks that lie; 0: none"},

	{"checkpoint", checkpointGroup, "`DIR` of the checkpoints, one per epoch (default: none are written)"},
	{"keep-checkpoints", checkpointGroup, "how many checkpoints to keep"},
	{"resume", checkpointGroup, "go on from the newest checkpoint, if there is one"},
	{"shared-checkpoint", checkpointGroup, "the nodes of --cluster share the --checkpoint directory: one of them writes for all"},
	{"allow-other-kernels", checkpointGroup, "resume although the kernel set differs (the bits may, too)"},
}

// env returns the environment variable of a setting.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

const envPrefix = "GNNACTOR_"

// field returns the field of cfg that is the setting of that name. It panics when there
// is none: names come from the settings table.
func field(cfg *runtime.Config, name string) *runtime.Setting { return cfg.Setting(name) }

// addFlags gives flags one flag for each setting of the groups and of the
// further names. They write to cfg, which also holds the defaults shown.
func addFlags(flags *pflag.FlagSet, cfg *runtime.Config, groups []group, names ...string) {
	for _, s := range settings {
		if !slices.Contains(groups, s.group) && !slices.Contains(names, s.name) {
			continue
		}
		f := flags.VarPF(field(cfg, s.name), s.name, "", s.doc)
		if f.Value.Type() == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// learningOnly are settings of the model that inference does not read: what is drawn or weighed in training alone.
var learningOnly = []string{"dropout", "input-dropout", "attention-dropout", "gcn-norm", "scale-sums", "weight-attention"}

// unplanned are settings of training that change no plan. 'gnnactor plan' takes them, so that it can be given what 'gnnactor train'
// is, and does not show them.
var unplanned = slices.Concat(settingNames(checkpointGroup), []string{
	"verify-data", "dropout", "input-dropout", "activation", "residual", "epochs", "lr", "loss", "focal-gamma", "label-smoothing", "class-weights", "weight-decay",
	"momentum", "clip-norm", "schedule", "schedule-epochs", "schedule-factor", "warmup", "seed", "eval-every", "trace", "audit",
})

// settingNames returns those of a group, without some.
func settingNames(g group, without ...string) (names []string) {
	for _, s := range settings {
		if s.group == g && !slices.Contains(without, s.name) {
			names = append(names, s.name)
		}
	}
	return names
}
