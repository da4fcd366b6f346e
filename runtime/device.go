package runtime

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// openDevice opens the devices that the settings name, unless that is the processor.
func (r *Runtime) openDevice() error {
	all, why, err := r.cfg.devices.Open()
	closeAll := func() {
		for _, d := range all {
			err = errors.Join(err, d.Close())
		}
		all = nil
	}
	for _, d := range all {
		if err == nil {
			r.blasBytes, err = d.UseBLAS(r.cfg.Execution.BLAS, r.cfg.precision)
		}
		if k := d.Kernels(); err == nil && k != all[0].Kernels() {
			err = fmt.Errorf("%s has %s kernels and %s has %s: runs have those of one; use devices of one kind", all[0].Describe(), all[0].Kernels(), d.Describe(), k)
		}
	}
	if err != nil {
		closeAll()
		return fmt.Errorf("%w: device: %w", ErrConfig, err)
	}
	switch {
	case all != nil:
		r.device, r.others = all[0], all[1:]
		for _, d := range all {
			r.log.Info("device", "is", d.Describe())
		}
	case why != nil:
		r.fallback = fmt.Sprintf("device auto: the processor computes: %v", why)
		r.log.Info("device", "is", "the processor", "why", why)
	}
	if r.device == nil {
		err := r.cfg.checkPrecision(r.set)
		if err != nil && why != nil {
			err = fmt.Errorf("%w; device auto found none: %w", err, why)
		}
		return err
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
	for _, d := range r.others {
		errs = append(errs, d.Close())
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

// deviceOf is which of the run's devices trainer i computes on: 0, whose memory has the
// parameters, or above 0 that of r.others before it.
func (r *Runtime) deviceOf(i int) int { return i % (1 + len(r.others)) }

// modelExec returns an Exec for the caller's model alone, until releaseModelExec: with the
// run's kernels and precision, on its first device if it has one.
func (r *Runtime) modelExec() *cpu.Exec { return r.modelExecOn(0) }

// modelExecOn is modelExec on another of the run's devices.
func (r *Runtime) modelExecOn(device int) *cpu.Exec {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, x := range r.modelExecs {
		if r.execDevices[x] == device {
			r.modelExecs = slices.Delete(r.modelExecs, i, i+1)
			return x
		}
	}
	x := r.newExec()
	if r.device != nil {
		d := r.device
		if device > 0 {
			d = r.others[device-1]
		}
		q := d.Queue()
		r.queues = append(r.queues, q)
		x.UseDevice(q)
		if r.execDevices == nil {
			r.execDevices = map[*cpu.Exec]int{}
		}
		r.execDevices[x] = device
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
