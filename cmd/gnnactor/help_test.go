package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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
	if out, _ := mustInvoke(t, "plan", "--help"); strings.Contains(out, ":\n\n") {
		t.Error("a topic of plan's has no flags")
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
		"huber\n": {"train", "--loss", ""}, "json\n": {"eval", "--output", ""}, "dgl\n": {"export", "m", "f", "--names", ""}, "louvain\n": {"partition", "--method", ""}, "int8:column\n": {"import", "--feature-type", ""},
	} {
		if out, _ := mustInvoke(t, append([]string{"__complete"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("%v completes to %q, want %q among it", args, out, want)
		}
	}
	for name, values := range flagValues {
		if slices.Contains([]string{"device", "split", "format", "blas", "sample-on", "precision", "names", "method", "output", "feature-type"}, name) { // what this machine has, or other commands
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

// --help shows the settings that a command reads: each that is shown changes what the command says, or is refused with the others,
// and none that 'plan' hides changes a plan. The walk is over all commands, so that one that takes settings is known here.
func TestHelpShowsWhatIsRead(t *testing.T) {
	store, model := storeOf(t, twoRings(t)), filepath.Join(t.TempDir(), "m.safetensors")
	mustInvoke(t, "train", "--data", store, "--epochs", "1", "--hidden", "128", "--save", model)
	lines := map[string][]string{ // what is repeatable; nil: what takes settings and trains, samples or serves with them
		"gnnactor plan": {"plan", "--data", store, "--params", model, "--batch-size", "30"}, "gnnactor eval": {"eval", "--data", store, "--params", model},
		"gnnactor embed": {"embed", "--data", store, "--params", model, "--ids", "1,2"}, "gnnactor predict": {"predict", "--data", store, "--params", model, "--top", "2"},
		"gnnactor train": nil, "gnnactor search": nil, "gnnactor sample": nil, "gnnactor cluster join": nil,
	}
	// Results do not show these: how much is done at once, where, and whether it is checked.
	silent := []string{"data", "format", "params", "threads", "device", "eval-chunk", "loaders", "pinned-memory", "verify-data"}
	values := map[string]string{
		"gcn-norm": "block", "norm": "layer", "jumping-knowledge": "cat", "link-decoder": "mlp", "precision": "bf16", "combine": "concat", "aggregation": "max", "model": "gin", "task": "link",
		"map": "none", "sampler": "khop", "fanouts": "1,1", "sampler-options": "temporal=true", "optimizer": "sgd", "loss": "focal", "class-weights": "balanced", "schedule": "step", "keep": "best",
		"sync": "ssp:2", "device": "cpu", "blas": "cublas", "sample-on": "device", "memory-limit": "1MiB", "features": "disk", "match": "on", "cache": "dynamic:1kB", "gather": "copied",
		"trace": filepath.Join(t.TempDir(), "t"), "checkpoint": t.TempDir(), "reorder-method": "exact", "activation": "elu", "layers": "3",
	}
	said := func(args ...string) string {
		code, out, errs := invoke(t, args...)
		return fmt.Sprint(code, out, errs)
	}
	took := regexp.MustCompile(`, computed in .*`)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		line, known := lines[cmd.CommandPath()]
		var base string
		if line != nil {
			base = took.ReplaceAllString(said(line...), "")
		}
		for _, s := range settings {
			f := cmd.Flags().Lookup(s.name)
			switch {
			case f == nil || known && line == nil || slices.Contains(silent, s.name):
				continue
			case !known && ofGroup(s.group)(f.Name) && cmd.Flags().Lookup("config") != nil:
				t.Errorf("%s takes settings; say here which line shows what it reads", cmd.CommandPath())
				return
			case !known:
				continue
			}
			value := values[s.name]
			switch v := field(new(runtime.DefaultConfig()), s.name).Value().Interface().(type) {
			case bool:
				value = strconv.FormatBool(!v)
			case int, uint64:
				value = cmp.Or(value, "3")
			case float64:
				value = cmp.Or(value, "0.25")
			}
			if value == "" {
				t.Fatalf("there is no value to try --%s with", s.name)
			}
			got := took.ReplaceAllString(said(append(line, "--"+s.name+"="+value)...), "")
			refused := strings.Contains(got, "gnnactor: ")
			if got == base && !f.Hidden {
				t.Errorf("%s shows --%s, and %s changes nothing that it says", cmd.CommandPath(), s.name, value)
			} else if got != base && f.Hidden && !refused {
				t.Errorf("%s hides --%s, and %s changes what it says", cmd.CommandPath(), s.name, value)
			}
		}
	}
	root, _ := newRoot(nil, nil)
	walk(root)
}
