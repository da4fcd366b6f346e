//go:build linux && amd64 && !nogpu

package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/graph"
)

// hubData has n nodes of 16 features, each with up to 5 neighbours, and one with 600.
func hubData(n int) *graph.Dataset {
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	x := make([]float32, 16*n)
	labels := make([]int32, n)
	for v := range n {
		degree := v % 6
		if v == n/2 {
			degree = 600
		}
		for i := range degree {
			g.Indices = append(g.Indices, uint32((7*v+31*i+1)%n))
		}
		g.Indptr[v+1] = int64(len(g.Indices))
		labels[v] = int32(v % 4)
		for j := range 16 {
			x[16*v+j] = float32((v*(j+3))%23)/23 - 0.5
		}
	}
	ds := &graph.Dataset{Name: "hub", Graph: g, NodeFeatures: graph.NewFeatures(n, 16, x), Labels: &graph.Labels{NumClasses: 4, Class: labels}}
	for v := range uint32(60) {
		ds.Train = append(ds.Train, v)
	}
	return ds
}

// On a device whose memory holds neither a layer's outputs nor the edges' inputs all nodes are inferred in chunks, as
// large as the plan finds room for: within it, by the driver's count, with the processor's values, and the bits of
// any other chunks. Chunks that do not fit are refused, with by how much, before they take any.
func TestDeviceInfersInChunks(t *testing.T) {
	if fakecuda.Real() {
		t.Skip("only an emulated device has so little memory")
	}
	const n, hidden, memory = 6400, 256, 6 << 20
	if 4*n*hidden <= memory {
		t.Fatal("a layer's outputs fit")
	}
	file := filepath.Join(t.TempDir(), "params.safetensors")
	for _, model := range []string{"sage", "gat"} {
		t.Run(model, func(t *testing.T) {
			d := fakecuda.Use(t)
			c := DefaultConfig()
			c.Data.Dataset, c.Model.Name, c.Model.Hidden, c.Training.Epochs = hubData(n), model, hidden, 0
			c.Execution.SampleOn, c.Sampling.Fanouts = onProcessor, []int{4, 4}
			embed := func(device string, chunk int) ([]float32, *Runtime, error) {
				t.Helper()
				c := c
				c.Memory.EvalChunk, c.Execution.Device = chunk, device
				d = fakecuda.Use(t) // so that it counts anew
				d.Set("memory", memory)
				r := started(t, c)
				out, err := r.Embed(context.Background(), nil)
				if err != nil {
					return nil, r, err
				}
				return out.Data, r, nil
			}
			must := func(device string, chunk int) []float32 {
				t.Helper()
				out, r, err := embed(device, chunk)
				if err != nil {
					t.Fatalf("in chunks of %d rows: %v; plan %v", chunk, err, r.Plan())
				}
				if p := r.Plan(); device != "cpu" {
					most := d.Count("bytes at most")
					if most > memory || int64(most) > p.DevicePeak {
						t.Errorf("in chunks of %d rows the device had %d bytes of %d, the plan %d", p.EvalChunk, most, memory, p.DevicePeak)
					}
				}
				stopped(t, r)
				return out
			}
			c.Model.Params = ""
			r := started(t, c)
			if err := r.Save(context.Background(), file); err != nil {
				t.Fatal(err)
			}
			stopped(t, r)
			c.Model.Params = file
			want := must("cpu", 0)
			small := must("cuda", 0)
			for i, w := range want {
				if g := small[i]; !(math.Abs(float64(g-w)) <= 1e-4*math.Max(1, math.Abs(float64(w)))) {
					t.Fatalf("value %d is %v on the device, %v on the processor", i, g, w)
				}
			}
			if got := must("cuda", 37); !slices.Equal(got, small) {
				t.Error("chunks of 37 rows have other bits")
			}
			_, r, err := embed("cuda", n)
			over := fmt.Sprintf("which is %.1f MiB more than its %.1f MiB", float64(r.Plan().DevicePeak-memory)/(1<<20), float64(memory)/(1<<20))
			if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), over) || !strings.Contains(err.Error(), "--eval-chunk") || d.Count("allocations") != 0 {
				t.Errorf("%v; %d allocations", err, d.Count("allocations"))
			}
			stopped(t, r)
		})
	}
}
