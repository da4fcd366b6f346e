package cluster

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/runtime"
)

// A run whose program has stages of its own is refused by one that lacks them, by name.
func TestRunWithOtherStages(t *testing.T) {
	o := Options{Config: runtime.DefaultConfig()}
	r := &Run{Node: "a", Settings: map[string]string{runStages: "thin 2 after sample"}}
	err := o.check(r, nil, nil)
	if !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), "node a began: its own stages and sampler are thin 2 after sample, and none here") {
		t.Error(err)
	}
	o.Config.Stages = []runtime.Stage{{Name: "thin", Version: "2", After: runtime.AfterSample}}
	if err := o.check(r, nil, nil); err != nil {
		t.Error(err)
	}
	o.Config.Sampling.Sampler, o.Config.Sampling.Own = "mine", &runtime.OwnSampler{Version: "3"}
	if err := o.check(r, nil, nil); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), "and thin 2 after sample, sampler mine 3 here") {
		t.Errorf("a sampler of its own: %v", err)
	}
	if propose, err := o.proposal(t.Context()); err != nil || o.check(propose, nil, nil) != nil {
		t.Errorf("its own run: %v, %v", err, o.check(propose, nil, nil))
	}
}

// GNS draws as many nodes as its cache holds: all nodes of a run have the cache that it began with.
func TestRunWithCache(t *testing.T) {
	o := Options{Config: runtime.DefaultConfig()}
	o.Config.Sampling.Sampler, o.Config.Memory.Cache = "gns", "gns:5%"
	r, err := o.proposal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Node = "a"
	other := Options{Config: runtime.DefaultConfig()}
	if err := errors.Join(other.check(r, nil, nil), other.adopt(r)); err != nil || other.Config.Memory.Cache != "gns:5%" {
		t.Errorf("its cache is %q, %v", other.Config.Memory.Cache, err)
	}
	other.Config.Memory.Cache = "gns:6%"
	if err := other.check(r, nil, nil); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), "cache is gns:5%, and gns:6% here") {
		t.Error(err)
	}
	o.Config.Memory.Cache = "degree:5%" // nothing depends on it
	if r, err = o.proposal(t.Context()); err != nil || r.Settings[runDraws] != "" {
		t.Errorf("%q, %v", r.Settings[runDraws], err)
	}
	other.Config.Memory.Cache = "hot:1MiB"
	if err := errors.Join(other.check(r, nil, nil), other.adopt(r)); err != nil || other.Config.Memory.Cache != "hot:1MiB" {
		t.Errorf("its cache is %q, %v", other.Config.Memory.Cache, err)
	}
}

// A run must have what this node was given, or, when nobody says what that was, what is not the default; the
// rest is the run's.
func TestRequired(t *testing.T) {
	o := Options{Config: runtime.DefaultConfig(), WaitFor: 3}
	o.Config.Training.LR, o.Config.Training.Epochs = 0.5, 7
	propose, err := o.proposal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := o.required(propose), map[string]string{"lr": "0.5", "epochs": "7", "wait-for": "3"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	o.Given = []string{"epochs", "data"}
	required := o.required(propose)
	if want := map[string]string{"epochs": "7", "wait-for": "3"}; !maps.Equal(required, want) {
		t.Errorf("%v, want %v", required, want)
	}
	r := &Run{Node: "a", Settings: maps.Clone(propose.Settings)}
	r.Settings["lr"], r.Settings["micro-batches"] = "0.25", "4"
	if err := errors.Join(o.check(r, required, propose), o.adopt(r)); err != nil || o.Config.Training.LR != 0.25 || o.Config.Sampling.MicroBatches != 4 {
		t.Errorf("lr %v, micro-batches %d, %v", o.Config.Training.LR, o.Config.Sampling.MicroBatches, err)
	}
	r.Settings["epochs"] = "8"
	if err := o.check(r, required, propose); !errors.Is(err, ErrOptions) || !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), `epochs is "8", and "7" here`) {
		t.Error(err)
	}
	r.Settings["wait-for"] = "5"
	if err := o.adopt(r); !errors.Is(err, ErrOptions) {
		t.Errorf("more nodes than micro-batches: %v", err)
	}
	delete(r.Settings, "hidden")
	if err := o.adopt(r); err == nil || !strings.Contains(err.Error(), "says nothing of hidden") {
		t.Error(err)
	}
}

// Of a partition set what several nodes cannot sample is refused by name, with a remedy, before this node enters the cluster; what they can is not.
func TestSamplersOverParts(t *testing.T) {
	for name, want := range map[string]string{
		"frontier": "a round of questions for each; choose walk", "ladies": "lists would all be sent; choose fastgcn", "edge": "edge: what it prepares", "lazy": "lazy: what it prepares",
		"neighbor": "", "khop": "", "labor": "", "pinsage": "", "fastgcn": "", "gns": "", "node": "", "walk": "", "cluster": "", "full": "",
	} {
		o := Options{Config: runtime.DefaultConfig(), Roles: Roles{true, true, true}}
		o.Config.Sampling.Sampler = name
		err := o.suits(&Run{Settings: map[string]string{runData: dataSet}})
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want one that says %q", name, err, want)
		}
	}
	o := Options{Config: runtime.DefaultConfig(), Roles: Roles{true, true, true}}
	o.Config.Sampling.Sampler, o.Config.Execution.Samplers, o.Config.Memory.Loaders = "full", 2, 2
	if err := o.suits(&Run{Settings: map[string]string{runData: dataSet}}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "samplers, credits") || !strings.Contains(err.Error(), "loaders") {
		t.Errorf("batches of all pieces, with samplers and loaders: %v", err)
	}
	if o.Infers = "eval"; o.suits(&Run{Settings: map[string]string{runData: dataSet}}) != nil {
		t.Error("inference, which reads none of that, is refused")
	}
}

// Roles are read as they are written, and nothing else is; a run that has nothing to do for them is refused.
func TestRoles(t *testing.T) {
	for text, suits := range map[string]bool{"sampler,trainer,rows": true, "trainer,rows": true, "sampler": true, "trainer": false, "rows": false} {
		o := Options{Config: runtime.DefaultConfig()}
		if err := o.Roles.Set(text); err != nil || o.Roles.String() != text {
			t.Errorf("%s is read as %v, %v", text, &o.Roles, err)
		}
		if err := o.suit(nil); (err == nil) != suits || err != nil && !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, roles := range []Roles{{false, true, true}, {true, true, true}, {true, false, false}} { // who trains on whole graphs samples
		o := Options{Config: runtime.DefaultConfig(), Roles: roles}
		o.Config.Sampling.Sampler = "full"
		if err := o.suit(nil); (err == nil) != roles.Sample || err != nil && !strings.Contains(err.Error(), "roles trainer,rows: a node that trains and does not sample has no topology, and sampler full") {
			t.Errorf("%s, full: %v", &roles, err)
		}
	}
	for _, text := range []string{"", "trainers", "sampler,,rows"} {
		if err := new(Roles).Set(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
