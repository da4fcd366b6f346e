package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/gnnactor/gnnactor/runtime"
)

// --help of train has every flag once, by topic, the common ones first.
func TestHelpByTopic(t *testing.T) {
	out, _ := mustInvoke(t, "train", "--help")
	_, flags, ok := strings.Cut(out, "Common flags:\n")
	if !ok {
		t.Fatal("there are no common flags")
	}
	common, _, _ := strings.Cut(flags, "\n\n")
	for _, name := range commonFlags {
		if !strings.Contains(common, "--"+name+" ") {
			t.Errorf("--%s is not among the common flags", name)
		}
	}
	at := 0
	for _, title := range []string{"\nModel:", "\nBatches and samplers:", "\nTraining:", "\nCheckpoints:", "\nCluster:", "\nResults and others:"} {
		k := strings.Index(flags, title)
		if k < at {
			t.Errorf("%q is at %d, after %d", title, k, at)
		}
		at = k
	}
	root, _ := newRoot(nil, nil)
	train, _, err := root.Find([]string{"train"})
	if err != nil {
		t.Fatal(err)
	}
	train.Flags().VisitAll(func(f *pflag.Flag) {
		if n := strings.Count("\n"+flags, " --"+f.Name+" "); n < 1 {
			t.Errorf("--%s is not listed", f.Name)
		}
	})
	for _, name := range slices.Concat(commonFlags, clusterFlagNames) {
		if train.Flags().Lookup(name) == nil {
			t.Errorf("there is no --%s", name)
		}
	}
	if out, _ := mustInvoke(t, "export", "--help"); !strings.Contains(out, "\nFlags:\n") {
		t.Error("few flags are by topic, too")
	}
}

// Shells complete values: words where there are few, directories for data. What is offered is accepted.
func TestCompletion(t *testing.T) {
	for want, args := range map[string][]string{
		"gatv2\n": {"train", "--model", "ga"}, "ladies\n": {"train", "--sampler", "la"}, ":16": {"train", "--data", ""},
		"safetensors\n": {"eval", "--params", ""}, "plateau\n": {"train", "--schedule", ""}, "graphbolt\n": {"import", "--format", ""},
	} {
		if out, _ := mustInvoke(t, append([]string{"__complete"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("%v completes to %q, want %q among it", args, out, want)
		}
	}
	for name, values := range flagValues {
		if name == "device" || name == "split" || name == "format" || name == "blas" || name == "sample-on" || name == "precision" { // what this machine has, or other commands
			continue
		}
		for _, v := range values {
			c := runtime.DefaultConfig()
			if err := field(&c, name).Set(v); err != nil {
				t.Errorf("--%s %s: %v", name, v, err)
			}
			if err := c.Validate(); err != nil && strings.Contains(err.Error(), "is not one of") {
				t.Errorf("--%s %s is offered, and refused: %v", name, v, err)
			}
		}
	}
}
