// Package update changes a model's parameters by gradients, as a recipe says: on a processor or
// in a device's memory.
package update

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// Updater owns the parameters while a run trains. A pipeline steps it; its
// owner changes the rate between epochs, when nothing is computed. On a device, parameters, moments and gradients stay
// in its memory. It implements actors.Updater, Resident and Observer.
type Updater struct {
	recipe checkpoint.Recipe
	rate   float64 // of the current epoch
	params []float32
	step   int
	m, v   []float32 // adam: the moments; sgd: m is the velocity
	x      *cpu.Exec
	model  *compute.Model
	learnt [][2]int // ranges of params that the optimiser changes: zeros without a gradient stay zeros, whatever the weight decay

	device cpu.Device[float32] // that params, m, v and gradients lie in; nil: the host's memory
	mu     sync.Mutex          // of what follows, and of device
	made   [][]float32         // of the device's memory
	host   []float32           // params in the host's memory
	stale  bool                // params have changed since

	deviceOf func(trainer int) int // 0: device
	observes bool                  // the model has running statistics
	brought  map[int][]float32     // by part, memory for those that other devices made
}

// New returns an updater of a model that begins with params, on x, and in the memory of x's device if
// it has one. deviceOf says which device a trainer computes on, 0 being that; nil: all do. It panics with an error
// of the device's if that has no room.
func New(m *compute.Model, recipe checkpoint.Recipe, x *cpu.Exec, params []float32, deviceOf func(trainer int) int) *Updater {
	u := &Updater{recipe: recipe, model: m, x: x, deviceOf: deviceOf}
	at := 0
	for _, t := range m.Layout().Tensors() {
		u.observes = u.observes || t.Statistic
		if t.Fixed {
			u.learnt, at = append(u.learnt, [2]int{at, t.Offset}), t.Offset+t.Len
		}
	}
	u.learnt = append(u.learnt, [2]int{at, m.Layout().Len()})
	if u.device = cpu.DeviceOf[float32](x); u.device != nil {
		u.host = make([]float32, len(params))
	}
	u.params, u.m, u.v = u.alloc(len(params)), u.alloc(len(params)), u.alloc(len(params))
	u.set(params, make([]float32, len(params)), make([]float32, len(params)))
	return u
}

// Close gives back the device's memory.
func (u *Updater) Close() {
	if u.device == nil {
		return
	}
	_ = graph.Guard(func() error { // a device that fails at it has failed at something before
		for _, s := range u.made {
			u.device.Free(s)
		}
		return nil
	})
	u.made, u.brought = nil, nil
}

// alloc returns memory where the parameters lie.
func (u *Updater) alloc(n int) []float32 {
	if u.device == nil {
		return make([]float32, n)
	}
	s := u.device.Alloc(n)
	u.made = append(u.made, s)
	return s
}

// set overwrites the parameters and the optimiser's state.
func (u *Updater) set(params, m, v []float32) {
	if u.device == nil {
		copy(u.params, params)
		copy(u.m, m)
		copy(u.v, v)
		return
	}
	u.device.Upload(u.params, params)
	u.device.Upload(u.m, m)
	u.device.Upload(u.v, v)
	u.settle()
}

// settle waits for the device, so that others may read what was written.
func (u *Updater) settle() {
	u.stale = true
	if err := u.device.Wait(); err != nil {
		panic(err)
	}
}

// Restore makes the state of a checkpoint the present one.
func (u *Updater) Restore(c *checkpoint.State) {
	u.step = int(c.Step)
	u.set(c.Params, c.M, c.V)
}

// Save has c hold the present parameters and moments, in the host's memory. They change with the next step.
func (u *Updater) Save(c *checkpoint.State) (err error) {
	if c.Params, err = u.InHost(); err == nil {
		c.M, c.V, err = u.moments()
	}
	return err
}

// Recipe is what steps are made by.
func (u *Updater) Recipe() *checkpoint.Recipe { return &u.recipe }

// Rate is the present learning rate.
func (u *Updater) Rate() float64 { return u.rate }

// Params implements actors.Updater.
func (u *Updater) Params() []float32 { return u.params }

// InHost returns the parameters in the host's memory. They change with the next step.
func (u *Updater) InHost() ([]float32, error) {
	if u.device == nil {
		return u.params, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	err := graph.Guard(func() error {
		if u.stale {
			u.device.Download(u.host, u.params)
			u.stale = false
		}
		return nil
	})
	return u.host, err
}

// moments returns the optimiser's state in the host's memory. It changes with the next step.
func (u *Updater) moments() (m, v []float32, err error) {
	if u.device == nil {
		return u.m, u.v, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	m, v = make([]float32, len(u.m)), make([]float32, len(u.v))
	err = graph.Guard(func() error {
		u.device.Download(m, u.m)
		u.device.Download(v, u.v)
		return nil
	})
	return m, v, err
}

// Copy implements actors.Resident.
func (u *Updater) Copy() ([]float32, error) {
	params, err := u.InHost()
	return slices.Clone(params), err
}

// NewGradient implements actors.Resident.
func (u *Updater) NewGradient(trainer int) []float32 {
	if u.deviceOf != nil && u.deviceOf(trainer) > 0 {
		return make([]float32, len(u.params))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.alloc(len(u.params))
}

// bring has parts that other devices made, which are in the host's memory, lie in this device's.
func (u *Updater) bring(parts [][]float32) {
	for i, g := range parts {
		if u.device == nil || u.device.Holds(g) {
			continue
		}
		if u.brought == nil {
			u.brought = map[int][]float32{}
		}
		if u.brought[i] == nil {
			u.brought[i] = u.alloc(len(g))
		}
		u.device.Upload(u.brought[i], g)
		parts[i] = u.brought[i]
	}
}

// Observe implements actors.Observer.
func (u *Updater) Observe(grad []float32) {
	if u.device == nil || u.device.Holds(grad) {
		u.model.Observe(u.params, grad, u.x)
		return
	}
	if !u.observes {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	parts := [][]float32{grad}
	u.bring(parts)
	u.model.Observe(u.params, parts[0], u.x)
	u.device.Download(grad, parts[0])
}

// TakeStatistics implements actors.Observer.
func (u *Updater) TakeStatistics(b []byte, grad []float32) []byte {
	return u.model.TakeStatistics(b, grad)
}

// ObserveStatistics implements actors.Observer.
func (u *Updater) ObserveStatistics(b []byte) error { return u.model.ObserveStatistics(u.params, b) }

// Apply implements actors.Updater.
func (u *Updater) Apply(parts [][]float32, weight float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bring(parts)
	grad := compute.Mean(parts, weight, u.x)
	p := &u.recipe
	if p.ClipNorm > 0 {
		compute.ClipNorm(grad, p.ClipNorm, u.x)
	}
	for _, l := range u.learnt {
		params, grad, m, v := u.params[l[0]:l[1]], grad[l[0]:l[1]], u.m[l[0]:l[1]], u.v[l[0]:l[1]]
		switch p.Optimizer {
		case "sgd":
			s := compute.SGDState{Step: u.step, Velocity: m}
			compute.SGD{LR: u.rate, Momentum: p.Momentum, WeightDecay: p.WeightDecay}.Step(params, grad, &s, u.x)
		case "adam", "adamw":
			a := compute.DefaultAdam(u.rate)
			a.WeightDecay, a.Decoupled = p.WeightDecay, p.Optimizer == "adamw"
			a.Step(params, grad, &compute.AdamState{Step: u.step, M: m, V: v}, u.x)
		default:
			panic(fmt.Sprintf("update: optimizer %q was not validated", p.Optimizer))
		}
	}
	u.step++
	if u.device != nil {
		u.settle()
	}
}

// SetRate chooses the learning rate of an epoch; scale is the plateau's.
func (u *Updater) SetRate(epoch int, scale float64) {
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
