package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// TestBFloat16Learns trains with bfloat16 products, beside float32 ones, in the
// portable kernels, which define them. The precision is part of the identity.
func TestBFloat16Learns(t *testing.T) {
	t.Setenv(cpu.SetVariable, "go")
	c := config()
	c.Training.Epochs = 10
	c.Checkpoint.Dir = t.TempDir()
	accuracy, bits := map[string]float64{}, map[string]bool{}
	for _, precision := range []string{"float32", "bf16"} {
		want := ""
		for threads := 1; threads <= 2; threads++ {
			v := c
			v.Model.Precision, v.Execution.Threads = precision, threads
			if precision == "bf16" || threads == 2 {
				v.Checkpoint.Dir = ""
			}
			r := started(t, v)
			accuracy[precision] = trained(t, r).TestAccuracy
			if got := r.identity.Precision; got != precision {
				t.Errorf("the identity says %q", got)
			}
			if got := sumOf(t, r); want == "" {
				want = got
			} else if got != want {
				t.Errorf("%s: other bits with 2 threads", precision)
			}
			bits[want] = true
		}
	}
	t.Logf("test accuracy: %v", accuracy)
	if d := accuracy["bf16"] - accuracy["float32"]; d < -0.05 || d > 0.05 { // 180 test nodes
		t.Errorf("test accuracies %v differ by more than 0.05", accuracy)
	}
	if len(bits) != 2 {
		t.Errorf("bf16 changed nothing")
	}
	c.Model.Precision, c.Checkpoint.Resume, c.Training.Epochs = "bf16", true, 12
	if err := run(context.Background(), started(t, c), nil); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "precision") {
		t.Errorf("resumed with another precision: %v", err)
	}
}

// TestBFloat16Unavailable checks that a machine without the instructions says so,
// and what to do.
func TestBFloat16Unavailable(t *testing.T) {
	if !cpu.AVX2.Supported() {
		t.Skip("no AVX2 here")
	}
	t.Setenv(cpu.SetVariable, "avx2")
	cfg := config()
	cfg.Model.Precision = "bf16"
	_, err := Start(context.Background(), cfg)
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), cpu.SetVariable) {
		t.Fatalf("error %v", err)
	}
	if !cpu.AVX512.Has(cpu.BFloat16) && !strings.Contains(err.Error(), "--precision float32") {
		t.Errorf("%v: names no remedy", err)
	}
	cfg.Model.Precision = "half"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "precision") {
		t.Errorf("precision half: %v", err)
	}
}
