package runtime

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
	"github.com/gnnactor/gnnactor/scheduler"
)

// MaxLayers bounds Model.Layers and Model.Hops.
const MaxLayers = 1 << 8

// Bounds that keep a slip of the keyboard from asking for all memory.
const (
	maxHidden = 1 << 16
	maxEpochs = 1 << 30
	maxActors = 1 << 12 // of any kind, their credits, and threads
	maxMicro  = 1 << 16
	maxWindow = 1 << 16
	maxRows   = math.MaxUint32 // there are no more nodes

	maxNegatives = 1 << 16
)

// ErrConfig is wrapped by every error that comes from an invalid Config.
var ErrConfig = errors.New("runtime: invalid config")

// settings are a Config with what its texts mean: they are read once, and nothing reads
// them again.
type settings struct {
	Config
	where     features.Spec      // Features
	cached    features.CacheSpec // Cache
	pinned    int64              // Pinned; 0: any
	limit     scheduler.Limit    // MemoryLimit
	method    overlap.Method     // ReorderMethod; 0: batches keep their order
	precision cpu.Precision
	devices   devices.Choice // Device
	sampler   sampling.Spec  // Sampler, Fanouts and SamplerOptions
	target    Target         // of task regression
	multi     bool           // nodes have several labels each, the data says or Model.Saved
}

// Validate reports every problem at once, each with the setting's name. The
// error wraps ErrConfig.
func (c *Config) Validate() error {
	_, err := c.compile()
	return err
}

// problems are those of a Config.
type problems []string

// check adds a problem if not ok.
func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

func (p *problems) oneOf(name, v string, allowed ...string) {
	named := slices.DeleteFunc(slices.Clone(allowed), func(a string) bool { return a == "" }) // "": the setting is left out
	p.check(slices.Contains(allowed, v), "%s: %q is not one of %s", name, v, strings.Join(named, ", "))
}

// inRange checks n, where zero says what 0 means, if that is not a number like others.
func (p *problems) inRange(name string, n, from, to int, zero ...string) {
	p.check(n >= from && n <= to, "%s: %d is not in [%d, %d]%s", name, n, from, to, strings.Join(zero, ""))
}

func (p *problems) notNegative(name string, n int) {
	p.check(n >= 0, "%s: %d must not be negative", name, n)
}

// compile is Validate, and returns what the settings mean.
func (c *Config) compile() (*settings, error) {
	s := &settings{Config: *c}
	p := new(problems)
	c.Model.validate(p)
	for _, p := range []cpu.Precision{cpu.TF32, cpu.BFloat16} {
		if c.Model.Precision == p.String() {
			s.precision = p
		}
	}
	c.Sampling.validate(p)
	c.Training.validate(p)
	c.Execution.validate(p)
	var err error
	s.devices, err = devices.Parse(c.Execution.Device)
	p.check(err == nil, "device: %v", err)
	c.Checkpoint.validate(p)
	p.check(c.Cluster.Audit >= 0 && c.Cluster.Audit <= 1, "audit: %v is not in [0, 1]", c.Cluster.Audit)
	p.check(!c.Training.Recompute || c.InPieces(), "recompute: activations are computed again where all pieces of a partition set compute a batch together; set sampler to full, or to khop with hybrid, or leave it out")
	c.checkSync(p)
	c.validateLoss(p)
	s.compileMemory(p)
	c.validateLinks(p)
	c.validateStages(p)
	c.checkFanouts(p)
	s.compileSampler(p)
	if *p == nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrConfig, strings.Join(*p, "; "))
}

func (m *ModelConfig) validate(p *problems) {
	if m.Layer == nil {
		p.oneOf("model", m.Name, Models()...)
	} else {
		p.check(m.Name != "" && !slices.Contains(Models(), m.Name), "model: %q is not a name of its own for the layers given by Layer", m.Name)
	}
	p.oneOf("precision", m.Precision, "", cpu.Float32.String(), cpu.TF32.String(), cpu.BFloat16.String())
	p.inRange("layers", m.Layers, 1, MaxLayers)
	p.inRange("hidden", m.Hidden, 1, maxHidden)
	p.inRange("hops", m.Hops, 0, MaxLayers)
	p.inRange("heads", m.Heads, 0, maxHidden, "; 0 is 1")
	p.inRange("output-heads", m.OutputHeads, 0, maxHidden, "; 0 is as many as heads")
	p.inRange("decoder-layers", m.DecoderLayers, 0, MaxLayers)
	p.check(m.Dropout >= 0 && m.Dropout < 1, "dropout: %v is not in [0, 1)", m.Dropout)
	p.check(m.InputDropout < 1 && !math.IsNaN(m.InputDropout), "input-dropout: %v is not in [0, 1), nor negative, which is what the model takes", m.InputDropout)
}

func (s *SamplingConfig) validate(p *problems) {
	if s.Own == nil {
		p.oneOf("sampler", s.Sampler, Samplers()...)
	} else {
		s.validateOwn(p)
	}
	p.inRange("batch-size", s.BatchSize, 1, maxRows)
	p.check(!s.Hybrid || s.Sampler == "khop", "hybrid: batches of whole neighbourhoods are computed by all pieces together; set sampler to khop, or leave it out")
	p.inRange("micro-batches", s.MicroBatches, 1, maxMicro)
	p.check(s.BatchSize < 1 || s.MicroBatches <= s.BatchSize, "micro-batches: %d are more than the seed nodes of the batch-size, %d; each needs one", s.MicroBatches, s.BatchSize)
	p.inRange("epoch-subgraphs", s.EpochSubgraphs, 0, maxEpochs, "; 0 covers the nodes on average")
	p.inRange("negatives", s.Negatives, 0, maxNegatives, "; 0 is 1")
	p.inRange("reorder", s.Reorder, 0, maxWindow)
	p.check(s.ReorderMethod == "" || s.Reorder > 1, "reorder-method: %s is how windows are reordered, and there are none; set reorder to the batches of a window, or leave it out", s.ReorderMethod)
}

func (t *TrainingConfig) validate(p *problems) {
	p.inRange("epochs", t.Epochs, 0, maxEpochs)
	p.oneOf("optimizer", t.Optimizer, "adam", "adamw", "sgd")
	p.check(t.LR > 0 && !math.IsInf(t.LR, 0), "lr: %v must be a positive number", t.LR)
	p.check(t.WeightDecay >= 0 && !math.IsInf(t.WeightDecay, 0), "weight-decay: %v must be 0 or a positive number", t.WeightDecay)
	p.check(t.Momentum >= 0 && t.Momentum < 1, "momentum: %v is not in [0, 1)", t.Momentum)
	p.check(t.ClipNorm >= 0, "clip-norm: %v must be 0 or a positive number", t.ClipNorm)
	p.notNegative("eval-every", t.EvalEvery)
	p.oneOf("schedule", t.Schedule, "constant", "step", "cosine", "plateau")
	p.check(t.ScheduleEpochs >= 1, "schedule-epochs: %d must be at least 1", t.ScheduleEpochs)
	p.check(t.ScheduleFactor > 0 && t.ScheduleFactor <= 1, "schedule-factor: %v is not in (0, 1]", t.ScheduleFactor)
	p.notNegative("warmup", t.Warmup)
	if t.Warmup > 0 {
		p.check(t.Schedule == "cosine", "warmup: only the cosine schedule rises first; set schedule to cosine, or leave warmup out")
		p.check(t.Warmup < t.Epochs, "warmup: the learning rate would rise for %d epochs of %d; take fewer than epochs", t.Warmup, t.Epochs)
	}
	p.notNegative("patience", t.Patience)
	p.oneOf("keep", t.Keep, "", "best", "last")
	if t.followsValidation() {
		p.check(t.EvalEvery >= 1, "eval-every: patience, keep best and the plateau schedule follow the validation accuracy; evaluate at least every so many epochs")
	}
}

// followsValidation reports whether evaluations change what training ends with.
func (t *TrainingConfig) followsValidation() bool {
	return t.Patience > 0 || t.keepsBest() || t.Schedule == "plateau"
}

func (e *ExecutionConfig) validate(p *problems) {
	p.oneOf("blas", e.BLAS, "", devices.OwnBLAS, devices.CuBLAS)
	if e.BLAS == devices.CuBLAS {
		p.check(e.Device != "" && e.Device != devices.CPU, "blas: cublas computes on a device; choose one by --device cuda, or leave the setting out")
	}
	p.oneOf("sample-on", e.SampleOn, "", onProcessor, onDevice)
	const planned = "; 0 leaves it to the plan"
	p.inRange("threads", e.Threads, 0, maxActors, planned)
	p.inRange("samplers", e.Samplers, 0, maxActors, planned)
	p.inRange("trainers", e.Trainers, 0, maxActors, planned)
	p.inRange("credits", e.Credits, 0, maxActors, planned)
}

// compileMemory reads Memory and what goes with it, and reports their problems.
func (s *settings) compileMemory(p *problems) {
	m := &s.Memory
	p.oneOf("match", m.Match, "", "on", "off")
	p.oneOf("gather", m.Gather, "", "fused", "copied")
	p.inRange("loaders", m.Loaders, 0, maxActors, "; 0 leaves it to the plan")
	p.inRange("eval-chunk", m.EvalChunk, 0, maxRows)
	var err error
	s.limit, err = m.limit()
	p.check(err == nil, "%v", err)
	if m.Pinned != "" {
		n, err := features.ParseBytes(m.Pinned)
		p.check(err == nil && n > 0, "pinned-memory: %q is not a size such as 16MiB", m.Pinned)
		s.pinned = int64(n)
	}
	s.where, err = features.ParseSpec(m.Features)
	p.check(err == nil, "%v", err)
	s.cached, err = features.ParseCacheSpec(m.Cache)
	p.check(err == nil, "%v", err)
	p.check(s.cached.Kind != features.CacheGNS || s.Sampling.Sampler == "gns", "cache: %s keeps the rows that the sampler gns prefers, and the sampler is %s; choose --sampler gns, or degree, hot or dynamic", m.Cache, s.Sampling.Sampler)
	method, err := overlap.ParseMethod(s.Sampling.ReorderMethod)
	p.check(err == nil, "reorder-method: %v", err)
	if err == nil && s.Sampling.Reorder > 1 {
		s.method = method.For(s.Sampling.Reorder)
	}
}

func (c *CheckpointConfig) validate(p *problems) {
	p.check(c.Keep >= 1, "keep-checkpoints: %d must be at least 1", c.Keep)
	p.check(!c.Resume || c.Dir != "", "resume: needs checkpoint, the directory to resume from")
	p.check(!c.Shared || c.Resume, "shared-checkpoint: needs resume, because a node finds what the others have written")
}

// checkFanouts reports fan-outs that the model's layers do not have.
func (c *Config) checkFanouts(p *problems) {
	if !c.UsesFanouts() {
		return
	}
	given := len(c.Sampling.Fanouts)
	if c.Model.Name == "mixhop" {
		p.check(given == c.Blocks(), "fanouts: %d given; mixhop needs one per layer and hop, %d", given, c.Blocks())
	} else {
		p.check(given == c.Model.Layers, "fanouts: %d given for %d layers; give one per layer, from the seeds outward", given, c.Model.Layers)
	}
	for i, k := range c.Sampling.Fanouts {
		p.check(k >= 1 && k <= maxRows || k == -1, "fanouts: number %d is %d; it must be in [1, %d], or -1 for all neighbours", i+1, k, maxRows)
	}
}

// compileSampler reads the sampler's options, and reports their problems.
func (s *settings) compileSampler(p *problems) {
	spec, err := s.samplerSpec()
	if err != nil {
		p.check(false, "%v", err)
		return
	}
	s.sampler = spec
	p.check(!spec.Temporal || s.Model.Task != "link", "sampler-options: temporal does not go with task link")
	if slices.Contains(Samplers(), spec.Name) && s.Model.Layers >= 1 {
		spec.Fanouts = nil // those are reported above
		err := spec.Validate()
		p.check(err == nil, "sampler-options: %s", strings.TrimPrefix(fmt.Sprint(err), "sampling: "))
	}
}
