package runtime

import (
	"slices"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/training"
	"github.com/gnnactor/gnnactor/training/update"
)

// recipe returns the settings of c that matter for the bits.
func (c *Config) recipe() Recipe {
	t := &c.Training
	p := Recipe{Optimizer: t.Optimizer, LR: t.LR, WeightDecay: t.WeightDecay, ClipNorm: t.ClipNorm, LabelSmoothing: t.LabelSmoothing, ClassWeights: t.ClassWeights}
	if slices.Contains(regressionLosses[1:], t.Loss) {
		p.Loss = t.Loss
	}
	if t.Loss == focalLoss {
		p.Loss, p.FocalGamma = t.Loss, t.gamma()
	}
	if t.Optimizer == "sgd" {
		p.Momentum = t.Momentum
	}
	switch t.Schedule {
	case "step", "plateau":
		p.Schedule, p.Every, p.Factor = t.Schedule, t.ScheduleEpochs, t.ScheduleFactor
	case "cosine":
		p.Schedule, p.Warmup, p.Horizon = t.Schedule, t.Warmup, t.Epochs
	}
	if t.Schedule == "plateau" || t.keepsBest() {
		p.EvalEvery = t.EvalEvery
	}
	return p
}

// updater is what a run's parameters change by, and what computes for it.
type updater struct {
	*update.Updater
	x     *cpu.Exec      // its own
	share actors.Reducer // with other nodes; nil: there are none
	team  training.Team  // likewise

	engines []*compute.Engine // of the run's pipelines
	execs   []*cpu.Exec       // theirs
	workers []*worker         // of the present pipeline
}

// close gives back what the engines have, and the device's memory.
func (u *updater) close(r *Runtime) {
	for i, e := range u.engines {
		e.Close()
		r.releaseModelExec(u.execs[i])
	}
	u.engines, u.execs = nil, nil
	u.Close()
	if r.resident() {
		r.releaseModelExec(u.x)
	}
}

// resident reports whether training's parameters stay in a device's memory: nobody else adds to
// their gradients, which are not late.
func (r *Runtime) resident() bool {
	return r.device != nil && r.cfg.Cluster.Peers == nil && !r.cfg.Training.Sync.Asynchronous()
}

// newUpdater returns an updater of a run that begins with params. It panics with an error of
// the device's if that has no room for them.
func newUpdater(r *Runtime, params []float32) *updater {
	x := cpu.NewExec(r.pool, r.set)
	if r.resident() {
		x = r.modelExec()
	}
	return &updater{Updater: update.New(r.model, r.identity.Recipe, x, params, r.deviceOf), x: x}
}
