package runtime

import (
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/devices"
)

// openDevice opens the device that the settings name, if it is not the processor.
func (r *Runtime) openDevice() error {
	name := r.cfg.Execution.Device
	d, why, err := devices.Open(name)
	if err == nil && d != nil && r.cfg.precision != cpu.Float32 {
		if name == devices.Auto {
			why = fmt.Errorf("precision: a device computes in float32, not in %v", r.cfg.precision)
		} else {
			err = fmt.Errorf("precision: %s computes in float32, not in %v: use --device cpu, or --precision float32", name, r.cfg.precision)
		}
		err = errors.Join(err, d.Close())
		d = nil
	}
	if err != nil {
		return fmt.Errorf("%w: device: %w", ErrConfig, err)
	}
	switch {
	case d != nil:
		r.device = d
		r.log.Info("device", "is", d.Describe())
	case why != nil:
		r.fallback = fmt.Sprintf("device auto: the processor computes: %v", why)
		r.log.Info("device", "is", "the processor", "why", why)
	}
	return nil
}

// closeDevice gives back the device and what was made of it.
func (r *Runtime) closeDevice() error {
	if r.device == nil {
		return nil
	}
	r.mu.Lock()
	queues := r.queues
	r.queues = nil
	r.mu.Unlock()
	var errs []error
	if r.drawn != nil {
		errs = append(errs, r.drawn.Close())
		r.drawn = nil
	}
	for _, q := range queues {
		errs = append(errs, q.Close())
	}
	return errors.Join(append(errs, r.device.Close())...)
}

// kernels is the name of the kernel set in the run's identity.
func (r *Runtime) kernels() string {
	if r.device != nil {
		return r.device.Kernels()
	}
	return r.set.String()
}

// modelExec returns an Exec for the caller's model alone, until releaseModelExec: with the
// run's kernels and precision, on its device if it has one.
func (r *Runtime) modelExec() *cpu.Exec {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.modelExecs); n > 0 {
		x := r.modelExecs[n-1]
		r.modelExecs = r.modelExecs[:n-1]
		return x
	}
	x := r.newExec()
	if r.device != nil {
		q := r.device.Queue()
		r.queues = append(r.queues, q)
		x.UseDevice(q)
	}
	return x
}

// releaseModelExec gives back what modelExec returned. What ran on it was closed.
func (r *Runtime) releaseModelExec(x *cpu.Exec) {
	x.SetThreads(0)
	r.mu.Lock()
	r.modelExecs = append(r.modelExecs, x)
	r.mu.Unlock()
}
