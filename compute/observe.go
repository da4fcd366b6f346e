package compute

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// statistics are one batch norm's places in the flat vector.
type statistics struct{ tracked, mean, variance Tensor }

// findStatistics returns those of every batch norm of l.
func findStatistics(l *Layout) []statistics {
	var found []statistics
	for _, t := range l.tensors {
		if prefix, ok := strings.CutSuffix(t.Name, trackedName); ok && t.Statistic {
			s := statistics{tracked: t}
			s.mean, _ = l.Lookup(prefix + meanName)
			s.variance, _ = l.Lookup(prefix + varName)
			found = append(found, s)
		}
	}
	return found
}

// Observe updates the running statistics of batch norms, which lie in params,
// by those of the micro-batch whose gradient Engine.Gradient wrote to grad, as
// PyTorch does with momentum 0.1, and takes them out of grad. It must be called
// for every micro-batch's gradient, in the order of the micro-batches, before
// the gradients are added up. Without batch norms it does nothing. Both vectors lie where x's
// kernels write.
func (m *Model) Observe(params, grad []float32, x *cpu.Exec) {
	for _, s := range m.statistics {
		if d := cpu.DeviceOf[float32](x); d != nil {
			d.Observe(params, grad, s.tracked.Offset, s.mean.Offset, s.variance.Offset, s.mean.Len)
			continue
		}
		if grad[s.tracked.Offset] > 0 {
			params[s.tracked.Offset]++ // as float32 it stays at 2²⁴; nothing is computed from it
			for _, t := range []Tensor{s.mean, s.variance} {
				for j := t.Offset; j < t.Offset+t.Len; j++ {
					params[j] = follow(params[j], grad[j])
				}
			}
		}
		s.clear(grad)
	}
}

// follow moves a running statistic towards what a micro-batch saw.
func follow(running, seen float32) float32 {
	return float32(float64((1-batchMomentum)*float64(running)) + float64(batchMomentum*float64(seen)))
}

func (s *statistics) clear(grad []float32) {
	for _, t := range []Tensor{s.tracked, s.mean, s.variance} {
		clear(grad[t.Offset : t.Offset+t.Len])
	}
}

// TakeStatistics is the first half of Observe, for gradients that are added up
// elsewhere: it takes out of grad what batch norms saw and appends it to b, in
// bytes for ObserveStatistics: per batch norm one that is 1 if there is anything,
// and then the means and variances as little-endian float32.
func (m *Model) TakeStatistics(b []byte, grad []float32) []byte {
	for _, s := range m.statistics {
		if grad[s.tracked.Offset] > 0 {
			b = append(b, 1)
			for _, t := range []Tensor{s.mean, s.variance} {
				for _, v := range grad[t.Offset : t.Offset+t.Len] {
					b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
				}
			}
		} else {
			b = append(b, 0)
		}
		s.clear(grad)
	}
	return b
}

// ObserveStatistics is the other half: it updates the running statistics in
// params by what TakeStatistics took from a micro-batch's gradient. Like
// Observe it must be called in the order of the micro-batches. Bytes that do not
// fit the model are an error, and params are then unchanged.
func (m *Model) ObserveStatistics(params []float32, b []byte) error {
	rest := b
	for _, s := range m.statistics {
		size := 1
		if len(rest) > 0 && rest[0] == 1 {
			size += 4 * (s.mean.Len + s.variance.Len)
		}
		if len(rest) < size || rest[0] > 1 {
			return fmt.Errorf("compute: statistics of %d bytes do not fit the model's %d batch norms", len(b), len(m.statistics))
		}
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("compute: statistics of %d bytes, %d more than the model's %d batch norms have", len(b), len(rest), len(m.statistics))
	}
	for _, s := range m.statistics {
		seen := b[0] == 1
		b = b[1:]
		if !seen {
			continue
		}
		params[s.tracked.Offset]++
		for _, t := range []Tensor{s.mean, s.variance} {
			for j := t.Offset; j < t.Offset+t.Len; j++ {
				params[j] = follow(params[j], math.Float32frombits(binary.LittleEndian.Uint32(b)))
				b = b[4:]
			}
		}
	}
	return nil
}
