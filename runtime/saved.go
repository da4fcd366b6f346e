package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// Model is a saved model: parameters, and what they belong to. It is read-only, and
// holds the file's tensors in memory.
type Model struct {
	path       string
	about      *Description // nil: the file has none
	checked    bool
	recipe     string            // "": there is none
	checkpoint *checkpoint.State // what it is of, without parameters; nil: a file of Save
	tensors    []compute.RawTensor
	guess      *compute.Spec // of a file without description: what its tensors say
	supposed   bool          // guess has what they do not say
	misnamed   error         // why they say nothing
}

// Description is what a saved model says of itself: all that a program has to know,
// besides the data, to compute with it what was trained. It is JSON in the metadata of
// a safetensors file, under DescriptionKey, and under its checksums.
type Description struct {
	// Version is 1, 2 with Stages, 3 with MultiLabel or NormalizeFeatures, or 4 with Target. One that says more has a higher version, and programs
	// refuse what they do not know: predictions may depend on it. It is 0 in files of before
	// there were versions, see SpecKey.
	Version int `json:"version"`
	// Task is what was learnt: node, regression or link, see ModelConfig.Task.
	Task string `json:"task"`
	// Model is the architecture, with the dropouts that it was trained with. InDim,
	// OutDim and EdgeDim are what the data must have.
	Model compute.Spec `json:"model"`
	// Stages are the program's own after load, as Stage.String names them: the rows that the
	// model computes with are what they make.
	Stages []string `json:"stages,omitempty"`
	// MultiLabel: nodes had several labels each.
	MultiLabel bool `json:"multi_label,omitempty"`
	// NormalizeFeatures is DataConfig.NormalizeFeatures of the run.
	NormalizeFeatures bool `json:"normalize_features,omitempty"`
	// Target says what numbers outputs stand for, of task regression.
	Target *Target `json:"target,omitempty"`
}

const descriptionVersion = 4

// Metadata keys of safetensors files of parameters.
const (
	DescriptionKey = "gnnactor.description" // of a Description
	RecipeKey      = "gnnactor.recipe"      // of an importer.Recipe, where the data has one
	SpecKey        = "gnnactor.model"       // read in files without DescriptionKey: the Model of a Description alone
	TaskKey        = "gnnactor.task"        // likewise its Task; none is node
	namesKey       = "gnnactor.names"       // the style of the names of tensors, where they are not those of Layout
)

// ErrNoDescription is wrapped where a saved model is to say what it is, and its file does
// not: other programs write such files.
var ErrNoDescription = errors.New("runtime: the saved model is not described")

// ErrNewer is wrapped where a file says what a later version of gnnactor wrote, and this
// one does not know.
var ErrNewer = errors.New("runtime: of a later version")

// OpenModel reads a safetensors file of parameters, whole: one that Runtime.Save wrote, or
// another program, with the names of PyG's or DGL's layers (compute.ReadNames). Of a checkpoint, or of a directory of them, the newest that is whole, it takes the parameters that the run would end with: the best, if
// it keeps them. A file that is not what was written is an error, if it has checksums. When ctx ends
// first, the error wraps its cause.
//
//	m, err := runtime.OpenModel(ctx, "model.safetensors")
//	cfg, err := m.Config()
//	cfg.Data.Path = "path/to/store"
//	rt, err := runtime.Start(ctx, cfg)
//	rows, err := rt.Predict(ctx, ids)
func OpenModel(ctx context.Context, path string) (*Model, error) { return openModel(ctx, path, nil) }

// openModel is OpenModel, of a file whose names are others if names is not nil.
func openModel(ctx context.Context, path string, names compute.NameMap) (_ *Model, err error) {
	defer func() { err = damaged(err) }()
	path, tensors, meta, err := openSaved(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("runtime: saved model: %w", err)
	}
	m := &Model{path: path, tensors: tensors}
	_, m.checked = meta[compute.ChecksumKey]
	m.recipe = meta[RecipeKey]
	if text, ok := meta[checkpoint.Key]; ok {
		if err := m.ofCheckpoint(text, meta); err != nil {
			return nil, fmt.Errorf("runtime: saved model: %s: %w", path, err)
		}
	}
	if m.about, err = describe(meta); err != nil {
		return nil, fmt.Errorf("runtime: saved model: %s: %w", path, err)
	}
	if names == nil && m.about != nil && meta[namesKey] == "" {
		return m, nil
	}
	read := compute.ReadNames
	if names != nil {
		read = names.Read
	}
	named, err := read(m.tensors)
	switch {
	case err != nil && names != nil:
		return nil, fmt.Errorf("runtime: saved model: %s: %w", path, err)
	case err != nil: // it may be of layers of the program's own
		m.misnamed = err
		return m, nil
	}
	m.tensors = named
	if s, err := compute.GuessSpec(named); err == nil && m.about == nil {
		m.guess = &s
	}
	return m, nil
}

// Open reads Params, and what Map says of its names.
func (c *ModelConfig) Open(ctx context.Context) (*Model, error) {
	if c.Map == "" {
		return OpenModel(ctx, c.Params)
	}
	names, err := ReadNameMap(c.Map)
	if err != nil {
		return nil, err
	}
	return openModel(ctx, c.Params, names)
}

// ReadNameMap reads a file of ModelConfig.Map.
func ReadNameMap(path string) (compute.NameMap, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("runtime: map: %w", err)
	}
	names, err := compute.ParseNameMap(string(text))
	if err != nil {
		return nil, fmt.Errorf("runtime: map: %s: %w", path, err)
	}
	return names, nil
}

// Guess returns what the tensors of a file without description say of the model: not which activation or aggregation it has.
// ok is false where they say nothing.
func (m *Model) Guess() (d Description, ok bool) {
	if m.guess == nil {
		return d, false
	}
	return Description{Version: 1, Task: "node", Model: *m.guess}, true
}

// Unsaid is what the tensors of a file without description do not say of its model: activation and aggregation (empty: relu, mean), and whether
// it is residual.
type Unsaid struct {
	Activation, Aggregation string
	Residual                bool
}

// Suppose says what the tensors of m, a file without description, do not, for what is exported of it. Of a file that has one it is an error.
func (m *Model) Suppose(u Unsaid) error {
	if m.guess == nil {
		return fmt.Errorf("%w: %s says itself what activation, aggregation and residuals its model has, or is of no model that is known; leave them out", ErrConfig, m.path)
	}
	s := *m.guess
	s.Activation, s.Aggregation, s.Residual = u.Activation, u.Aggregation, u.Residual
	if err := s.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	m.guess, m.supposed = &s, true
	return nil
}

// IsSaved reports whether OpenModel may read path: a safetensors file, or a directory with checkpoints.
func IsSaved(path string) bool {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return false
	case info.IsDir():
		files, err := checkpoint.List(path)
		return err == nil && len(files) > 0
	}
	return strings.HasSuffix(path, checkpoint.Suffix) || info.Mode().IsRegular() && beginsAsSafetensors(path)
}

// beginsAsSafetensors reports whether a file begins with the length of a header that fits in it, and with an object.
func beginsAsSafetensors(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [9]byte
	info, err := f.Stat()
	if err != nil {
		return false
	}
	_, err = io.ReadFull(f, b[:])
	return err == nil && b[8] == '{' && binary.LittleEndian.Uint64(b[:]) <= uint64(info.Size()-8)
}

// openSaved reads path or, if that is a directory of checkpoints, the newest of them that can be read.
func openSaved(ctx context.Context, path string) (file string, tensors []compute.RawTensor, meta map[string]string, err error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		tensors, meta, err := compute.OpenSafetensors(ctx, path)
		return path, tensors, meta, err
	}
	files, err := checkpoint.List(path)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there are no checkpoints in %s; name a directory that 'gnnactor train --checkpoint' wrote, or a file of --save", path)
	}
	var damaged []error
	for _, file := range files {
		tensors, meta, err := compute.OpenSafetensors(ctx, file)
		if err == nil || ctx.Err() != nil {
			return file, tensors, meta, err
		}
		damaged = append(damaged, err)
	}
	return "", nil, nil, errors.Join(append(damaged, err)...)
}

// ofCheckpoint makes m, of a checkpoint's tensors, the model that the run would end with there. Checkpoints of before they had
// descriptions have the run's identity.
func (m *Model) ofCheckpoint(text string, meta map[string]string) error {
	c := new(checkpoint.State)
	if err := json.Unmarshal([]byte(text), c); err != nil {
		return fmt.Errorf("%w: it is no checkpoint: %w", compute.ErrSafetensors, err)
	}
	if c.Version > checkpoint.Version {
		return fmt.Errorf("%w: a checkpoint of version %d, and this program knows up to %d; use a newer gnnactor", ErrNewer, c.Version, checkpoint.Version)
	}
	prefix := "param."
	if c.Kept != nil {
		prefix = "best."
	}
	m.checkpoint = c
	var of []compute.RawTensor
	for _, t := range m.tensors {
		if name, ok := strings.CutPrefix(t.Name, prefix); ok {
			t.Name = name
			of = append(of, t)
		}
	}
	m.tensors = of
	if _, ok := meta[DescriptionKey]; ok {
		return nil
	}
	d := Description{Version: 1, Task: c.Identity.Task, Model: c.Identity.Model, NormalizeFeatures: c.Identity.NormalizeFeatures}
	if d.Task == "" {
		d.Task = "node"
	}
	if d.NormalizeFeatures {
		d.Version = 3
	}
	b, err := json.Marshal(d)
	meta[DescriptionKey] = string(b)
	return err
}

// Checked reports whether checksums told that the file is what was written. Files that
// other programs write, and old ones, have none.
func (m *Model) Checked() bool { return m.checked }

// Path is the file that it was read from.
func (m *Model) Path() string { return m.path }

// Progress says how far the run of a checkpoint is.
type Progress struct {
	Step       int64    `json:"step"`                  // batches that were applied
	Epochs     int      `json:"epochs"`                // that ended
	BestEpoch  int      `json:"best_epoch,omitempty"`  // after how many epochs the parameters were made, if they are the best by validation
	BestFigure float64  `json:"best_figure,omitempty"` // their validation accuracy, of numbers the error
	Identity   Identity `json:"identity"`
}

// Progress returns how far the run is, of a checkpoint; ok is false of a file of parameters alone.
func (m *Model) Progress() (p Progress, ok bool) {
	c := m.checkpoint
	if c == nil {
		return p, false
	}
	p = Progress{Step: c.Step, Epochs: c.Ended, BestEpoch: c.BestEpoch(), Identity: c.Identity}
	if c.Kept != nil {
		if p.BestFigure = c.Kept.Figure; c.Identity.Task == taskRegression {
			p.BestFigure = -p.BestFigure
		}
	}
	return p, true
}

// Parameters returns how many values the parameters are, running statistics among them, and what Runtime.ParametersSHA256
// says of them; "" where the file holds them in another type than float32.
func (m *Model) Parameters() (n int, sha256sum string) {
	h, plain := sha256.New(), true
	sorted := slices.SortedFunc(slices.Values(m.tensors), func(a, b compute.RawTensor) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range sorted {
		size := 1
		for _, d := range t.Shape {
			size *= d
		}
		n += size
		switch {
		case t.DType == "F32":
			h.Write(t.Data)
		case t.DType == "I64" && len(t.Data) == 8: // PyTorch's count of batches
			count := float32(int64(binary.LittleEndian.Uint64(t.Data)))
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(count)))
		default:
			plain = false
		}
	}
	if !plain {
		return n, ""
	}
	return n, hex.EncodeToString(h.Sum(nil))
}

// Recipe returns how the columns of the data that it was trained on became features and classes, which
// importer.ParseRecipe reads; nil: the file does not say.
func (m *Model) Recipe() []byte {
	if m.recipe == "" {
		return nil
	}
	return []byte(m.recipe)
}

// Description returns what the file says of the model. The error wraps ErrNoDescription.
func (m *Model) Description() (Description, error) {
	if m.about == nil {
		return Description{}, fmt.Errorf("%w: %s does not say which model it belongs to; set the model's settings, as it was trained", ErrNoDescription, m.path)
	}
	return *m.about, nil
}

// Config returns DefaultConfig for this model: its settings, a fan-out for each of its
// layers, and Saved. The caller adds the data, and, for a model of layers or stages of its
// own, Layer or Stages. The error wraps ErrNoDescription.
func (m *Model) Config() (Config, error) {
	d, err := m.Description()
	if err != nil {
		return Config{}, err
	}
	c := DefaultConfig()
	d.Configure(&c)
	c.Sampling.Fanouts, c.Model.Saved = slices.Repeat(c.Sampling.Fanouts[:1], c.Blocks()), m
	return c, nil
}

// Configure gives c the settings that d describes: Task, and those of Model that
// inference depends on. It leaves those alone that only training does, such as dropout.
func (d *Description) Configure(c *Config) {
	m := &c.Model
	s := &d.Model
	m.Task, m.Name, m.Layers, m.Hidden = d.Task, s.Model, s.Layers, s.Hidden
	m.Aggregation, m.Combine, m.Heads, m.OutputHeads, m.Hops, m.TrainEps = s.Aggregation, s.Combine, s.Heads, s.OutHeads, s.Hops, s.TrainEps
	m.Activation, m.Norm, m.Residual, m.JumpingKnowledge = s.Activation, s.Norm, s.Residual, s.JumpingKnowledge
	m.DecoderLayers, m.LinkDecoder, m.EdgeFeatures = s.Decoder, s.LinkDecoder, s.EdgeDim > 0
	c.Data.NormalizeFeatures = c.Data.NormalizeFeatures || d.NormalizeFeatures // files of before do not say
	if m.Norm == "" {
		m.Norm = "none"
	}
}

// Check reports the settings of c that contradict d, by their names. Settings that only
// training depends on, and the data, may be any. The error wraps ErrConfig.
func (d *Description) Check(c *Config) error {
	s := c.spec()
	s.InDim, s.OutDim = d.Model.InDim, d.Model.OutDim
	if c.Model.EdgeFeatures {
		s.EdgeDim = max(d.Model.EdgeDim, 1)
	}
	return d.check(s, c)
}

func (d *Description) check(model compute.Spec, c *Config) error {
	var bad []string
	task, stages := c.task(), c.rowStages()
	if d.NormalizeFeatures && !c.Data.NormalizeFeatures {
		bad = append(bad, "normalize-features is false, and the model's true")
	}
	if !slices.Equal(stages, d.Stages) {
		bad = append(bad, fmt.Sprintf("the program's own stages after load are %s, and the model's %s", named(stages), named(d.Stages)))
	}
	if task != d.Task {
		bad = append(bad, fmt.Sprintf("task is %s, and the model's %s", task, d.Task))
	}
	bad = append(bad, model.Unlike(d.Model)...)
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrConfig, strings.Join(bad, "; "))
}

func named(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// describe reads the description in a file's metadata; nil: there is none.
func describe(meta map[string]string) (*Description, error) {
	d := new(Description)
	key, into, least := DescriptionKey, any(d), 1
	text, ok := meta[key]
	if !ok {
		key, into, least = SpecKey, &d.Model, 0
		if text, ok = meta[key]; !ok {
			return nil, nil
		}
		if d.Task = meta[TaskKey]; d.Task == "" {
			d.Task = "node"
		}
	}
	var said struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal([]byte(text), &said); err == nil && said.Version > descriptionVersion {
		return nil, fmt.Errorf("%w: its description is of version %d, and this program knows up to %d; use a newer gnnactor", ErrNewer, said.Version, descriptionVersion)
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err != nil && strings.Contains(err.Error(), "unknown field") {
		return nil, fmt.Errorf("%w: the metadata %s: %w; use a newer gnnactor", ErrNewer, key, err)
	}
	if err == nil && dec.More() {
		err = errors.New("there is more after it")
	}
	if err == nil {
		err = d.validate(least)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the metadata %s: %w", compute.ErrSafetensors, key, err)
	}
	return d, nil
}

// validate keeps what a file says within the bounds of settings.
func (d *Description) validate(version int) error {
	s := &d.Model
	for _, x := range []struct {
		name         string
		n, from, max int
	}{
		{"version", d.Version, version, descriptionVersion}, {"layers", s.Layers, 1, MaxLayers}, {"hops", s.Hops, 0, MaxLayers},
		{"decoder layers", s.Decoder, 0, MaxLayers}, {"hidden", s.Hidden, 1, maxHidden}, {"heads", s.Heads, 0, maxHidden}, {"output heads", s.OutHeads, 0, maxHidden},
		{"in_dim", s.InDim, 1, maxRows}, {"out_dim", s.OutDim, 1, maxRows}, {"edge_dim", s.EdgeDim, 0, maxRows},
	} {
		if x.n < x.from || x.n > x.max {
			return fmt.Errorf("%s: %d is not in [%d, %d]", x.name, x.n, x.from, x.max)
		}
	}
	if d.Task != "node" && d.Task != "link" && d.Task != taskRegression {
		return fmt.Errorf("task: %q is none of node, regression and link", d.Task)
	}
	if t := d.Target; (t != nil) != (d.Task == taskRegression) || t != nil && (d.Version < 4 || !(t.Deviation > 0) || t.Mean-t.Mean+t.Deviation-t.Deviation != 0) {
		return fmt.Errorf("target: %+v in task %s", t, d.Task)
	}
	if s.Model == "" {
		return errors.New("it names no model")
	}
	return nil
}

// parameters returns those of m, for the model of the run.
func (r *Runtime) parameters(m *Model) ([]float32, error) {
	if r.model == nil {
		return nil, r.noModel
	}
	return m.parameters(r.model, &r.cfg.Config, r.log)
}

// parameters returns m's, for the model that cfg says.
func (m *Model) parameters(model *compute.Model, cfg *Config, log *slog.Logger) ([]float32, error) {
	if m.about == nil {
		log.Warn("parameters without a description: they are taken for those of the model that the settings name", "file", m.path)
	} else if err := m.about.check(model.Spec(), cfg); err != nil {
		return nil, fmt.Errorf("%w; %s was saved of another model, or for other data", err, m.path)
	}
	if !m.checked {
		log.Warn("parameters without checksums: nothing tells whether they are what was written", "file", m.path)
	}
	params, err := model.Parameters(m.tensors)
	if err != nil {
		if m.misnamed != nil {
			err = fmt.Errorf("%w; %w: say with a map which is which", err, m.misnamed)
		}
		return nil, fmt.Errorf("runtime: saved model: %s: %w", m.path, err)
	}
	return params, nil
}

// task is Task, named.
func (c *Config) task() string {
	if c.Model.Task == "" {
		return "node"
	}
	return c.Model.Task
}
