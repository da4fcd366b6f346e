package runtime

import (
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/training"
)

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
	EvalEvery   int     `json:"eval_every,omitempty"` // plateau: where evaluations change the rate
}

// recipe returns the settings of c that matter for the bits.
func (c *Config) recipe() Recipe {
	t := &c.Training
	p := Recipe{Optimizer: t.Optimizer, LR: t.LR, WeightDecay: t.WeightDecay, ClipNorm: t.ClipNorm}
	if t.Optimizer == "sgd" {
		p.Momentum = t.Momentum
	}
	switch t.Schedule {
	case "step", "plateau":
		p.Schedule, p.Every, p.Factor = t.Schedule, t.ScheduleEpochs, t.ScheduleFactor
	case "cosine":
		p.Schedule, p.Warmup, p.Horizon = t.Schedule, t.Warmup, t.Epochs
	}
	if t.Schedule == "plateau" {
		p.EvalEvery = t.EvalEvery
	}
	return p
}

// updater owns the parameters while a run trains. The pipeline steps it; its
// owner changes rate between epochs, when nothing is computed.
type updater struct {
	recipe Recipe
	rate   float64 // of the current epoch
	params []float32
	step   int
	m, v   []float32 // adam: the moments; sgd: m is the velocity
	x      *cpu.Exec
	model  *compute.Model
	fixed  []compute.Tensor // parameters that the optimiser leaves alone
	aside  []float32        // their values while it steps
	share  actors.Reducer   // with other nodes; nil: there are none
	team   training.Team    // likewise

	engines []*compute.Engine // of the run's pipelines
	execs   []*cpu.Exec       // theirs
}

// close gives back what the engines have.
func (u *updater) close(r *Runtime) {
	for i, e := range u.engines {
		e.Close()
		r.releaseModelExec(u.execs[i])
	}
	u.engines, u.execs = nil, nil
}

func newUpdater(r *Runtime, params []float32) *updater {
	u := &updater{
		recipe: r.identity.Recipe,
		model:  r.model,
		params: slices.Clone(params),
		m:      make([]float32, len(params)),
		v:      make([]float32, len(params)),
		x:      cpu.NewExec(r.pool, r.set),
	}
	for _, t := range r.model.Layout().Tensors() {
		if t.Fixed {
			u.fixed = append(u.fixed, t)
		}
	}
	return u
}

func (u *updater) restore(c *checkpoint) {
	u.params, u.m, u.v, u.step = c.params, c.m, c.v, int(c.Step)
}

// Params implements actors.Updater.
func (u *updater) Params() []float32 { return u.params }

// Observe implements actors.Observer.
func (u *updater) Observe(grad []float32) { u.model.Observe(u.params, grad) }

// TakeStatistics implements actors.Observer.
func (u *updater) TakeStatistics(b []byte, grad []float32) []byte {
	return u.model.TakeStatistics(b, grad)
}

// ObserveStatistics implements actors.Observer.
func (u *updater) ObserveStatistics(b []byte) error { return u.model.ObserveStatistics(u.params, b) }

// hold sets what is not learnt aside, until putBack: zeros without a gradient
// stay zeros, and have no moments, whatever the weight decay.
func (u *updater) hold() {
	u.aside = u.aside[:0]
	for _, t := range u.fixed {
		values := u.params[t.Offset : t.Offset+t.Len]
		u.aside = append(u.aside, values...)
		clear(values)
	}
}

func (u *updater) putBack() {
	at := 0
	for _, t := range u.fixed {
		at += copy(u.params[t.Offset:t.Offset+t.Len], u.aside[at:])
	}
}

// Apply implements actors.Updater.
func (u *updater) Apply(grad []float32) {
	u.hold()
	defer u.putBack()
	p := &u.recipe
	if p.ClipNorm > 0 {
		compute.ClipNorm(grad, p.ClipNorm, u.x)
	}
	switch p.Optimizer {
	case "sgd":
		s := compute.SGDState{Step: u.step, Velocity: u.m}
		compute.SGD{LR: u.rate, Momentum: p.Momentum, WeightDecay: p.WeightDecay}.Step(u.params, grad, &s, u.x)
	case "adam", "adamw":
		a := compute.DefaultAdam(u.rate)
		a.WeightDecay, a.Decoupled = p.WeightDecay, p.Optimizer == "adamw"
		a.Step(u.params, grad, &compute.AdamState{Step: u.step, M: u.m, V: u.v}, u.x)
	default:
		panic(fmt.Sprintf("runtime: optimizer %q was not validated", p.Optimizer))
	}
	u.step++
}

// setRate chooses the learning rate of an epoch; scale is the plateau's.
func (u *updater) setRate(epoch int, scale float64) {
	p := &u.recipe
	switch p.Schedule {
	case "step":
		u.rate = compute.StepDecay{Every: p.Every, Factor: p.Factor}.Rate(p.LR, epoch)
	case "cosine":
		u.rate = compute.Cosine{Epochs: p.Horizon, Warmup: p.Warmup}.Rate(p.LR, epoch)
	case "plateau":
		u.rate = p.LR * scale
	default:
		u.rate = p.LR
	}
}
