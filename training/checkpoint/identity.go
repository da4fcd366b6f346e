package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/sampling"
)

// Identity is everything that changes the result of a run, other than how long
// it runs. It is kept in every checkpoint.
type Identity struct {
	Data              string        `json:"data"`                // fingerprint
	Task              string        `json:"task,omitempty"`      // empty: classes of nodes
	Negatives         int           `json:"negatives,omitempty"` // of task link
	KeepTargetEdges   bool          `json:"keep_target_edges,omitempty"`
	NormalizeFeatures bool          `json:"normalize_features"`
	Model             compute.Spec  `json:"model"`
	Sampler           sampling.Spec `json:"sampler"`
	Seed              uint64        `json:"seed"`
	BatchSize         int           `json:"batch_size"`
	Hybrid            bool          `json:"hybrid,omitempty"` // all pieces compute each batch
	MicroBatches      int           `json:"micro_batches"`
	Reorder           int           `json:"reorder,omitempty"`        // batches of a window
	ReorderMethod     string        `json:"reorder_method,omitempty"` // exact, or sketch, of micro-batches if there are several
	Stages            []string      `json:"stages,omitempty"`         // the program's own: see runtime.Config.StageNames
	Recipe            Recipe        `json:"recipe"`
	Keep              string        `json:"keep,omitempty"` // best: what training ends with; empty: the last parameters
	Start             string        `json:"start"`          // SHA-256 of the parameters that the run started from
	Precision         string        `json:"precision"`
	Sync              string        `json:"sync,omitempty"` // ssp and its bound: no two such runs have the same bits, unless Hybrid
	Kernels           string        `json:"kernels"`
}

// ErrIdentity is wrapped when a checkpoint belongs to another run.
var ErrIdentity = errors.New("checkpoint: of another run")

// Sampling returns a hash of what the micro-batches depend on: processes of which it is the
// same draw the same ones.
func (id Identity) Sampling() string {
	b, _ := json.Marshal(&Identity{ // plain data always encodes
		Data: id.Data, Task: id.Task, Negatives: id.Negatives, KeepTargetEdges: id.KeepTargetEdges, Sampler: id.Sampler, Seed: id.Seed,
		BatchSize: id.BatchSize, MicroBatches: id.MicroBatches,
	})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Different says what two identities, as JSON, have not in common: say is given what a setting is called, and its values in
// words. ok is false where one of them is not JSON.
func Different(a, b string, say func(name, a, b string) string) (diff []string, ok bool) {
	x, ok := fields([]byte(a))
	y, also := fields([]byte(b))
	if !ok || !also {
		return nil, false
	}
	return differences(nil, "", x, y, say), true
}

// differences adds what two values of identities, as JSON makes them, have not in common, objects key by key.
func differences(diff []string, name string, a, b any, say func(name, a, b string) string) []string {
	x, all := a.(map[string]any)
	y, both := b.(map[string]any)
	if !all || !both {
		if reflect.DeepEqual(a, b) {
			return diff
		}
		return append(diff, say(strings.ReplaceAll(name, "_", "-"), inWords(a), inWords(b)))
	}
	if name != "" {
		name += "."
	}
	keys := maps.Clone(x)
	maps.Copy(keys, y)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		diff = differences(diff, name+k, x[k], y[k], say)
	}
	return diff
}

// inWords is a setting's value, a hash by its beginning.
func inWords(v any) string {
	b, _ := json.Marshal(v) // of JSON
	switch text := string(b); {
	case v == nil || v == "":
		return "none"
	case len(text) == 2*sha256.Size+2 && text[0] == '"':
		return text[1:17] + "…"
	default:
		return text
	}
}

// fields returns the values of an identity's JSON. Numbers stay as they are written.
func fields(b []byte) (m map[string]any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return m, d.Decode(&m) == nil
}

// until says what of an identity has changed to another.
func (id Identity) until(now Identity) []string {
	was, _ := json.Marshal(id) // plain data always encodes
	is, _ := json.Marshal(now)
	diff, _ := Different(string(was), string(is), func(name, a, b string) string { return fmt.Sprintf("%s was %s and is %s", name, a, b) })
	return diff
}

// Same reports how the checkpoint's identity differs from the run's.
func (id Identity) Same(saved Identity, otherKernels bool) error {
	own := id
	if otherKernels {
		saved.Kernels, own.Kernels = "", ""
	}
	diff := saved.until(own)
	if diff == nil {
		return nil
	}
	hint := "start with the same settings, or in an empty directory"
	if len(diff) == 1 && own.Kernels != saved.Kernels {
		hint = "allow-other-kernels resumes all the same, with other bits"
	}
	if len(diff) > 2 || len(diff) == 2 && own.Kernels == saved.Kernels { // of other settings there is another start, which explains nothing
		saved.Start, own.Start = "", ""
		diff = saved.until(own)
	}
	return fmt.Errorf("%w: %s; %s", ErrIdentity, strings.Join(diff, ", "), hint)
}

// Recipe says how gradients change the parameters. It is part of a run's
// identity.
type Recipe struct {
	Optimizer   string  `json:"optimizer"`
	LR          float64 `json:"lr"`
	WeightDecay float64 `json:"weight_decay"`
	Momentum    float64 `json:"momentum,omitempty"`
	ClipNorm    float64 `json:"clip_norm,omitempty"`
	Schedule    string  `json:"schedule,omitempty"` // empty: constant
	Every       int     `json:"schedule_epochs,omitempty"`
	Factor      float64 `json:"schedule_factor,omitempty"`
	Warmup      int     `json:"warmup,omitempty"`
	Horizon     int     `json:"horizon,omitempty"`    // cosine: the epochs it spans
	EvalEvery   int     `json:"eval_every,omitempty"` // plateau, keep best: where evaluations change what comes of it

	Loss           string  `json:"loss,omitempty"` // empty: cross-entropy
	FocalGamma     float64 `json:"focal_gamma,omitempty"`
	LabelSmoothing float64 `json:"label_smoothing,omitempty"`
	ClassWeights   string  `json:"class_weights,omitempty"`
}

// RunID names the run of an identity, on whatever kernels it runs.
func (id Identity) RunID() ([32]byte, error) {
	id.Kernels = ""
	b, err := json.Marshal(id)
	if err != nil {
		return [32]byte{}, fmt.Errorf("checkpoint: identity: %w", err)
	}
	return sha256.Sum256(b), nil
}
