package main

import (
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
)

// commonFlags come first in --help of commands with many.
var commonFlags = []string{"data", "model", "task", "hidden", "sampler", "fanouts", "epochs", "lr", "params", "save"}

// clusterFlagNames are flags of those who train together.
var clusterFlagNames = []string{
	"cluster", "wait-for", "shards", "replicas", "cluster-name", "node-dir", "listen", "advertise", "control", "lease", "outage",
	"drain-timeout", "roles", "capacity", "node", "certs", "insecure", "audit", "shared-checkpoint",
}

// manyFlags is how many a command has whose --help groups them.
const manyFlags = 25

// flagGroups are the topics of --help, in order; what is of none is the last.
var flagGroups = []struct {
	title string
	has   func(name string) bool
}{
	{"Common flags", func(name string) bool { return slices.Contains(commonFlags, name) }},
	{"Cluster", func(name string) bool { return slices.Contains(clusterFlagNames, name) }},
	{"Data", ofGroup(dataGroup)},
	{"Model", ofGroup(modelGroup)},
	{"Batches and samplers", ofGroup(samplingGroup)},
	{"Training", ofGroup(trainingGroup)},
	{"Machine, memory and devices", ofGroup(executionGroup)},
	{"Checkpoints", ofGroup(checkpointGroup)},
	{"Results and others", func(string) bool { return true }},
}

func ofGroup(g group) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(settings, func(s setting) bool { return s.name == name && s.group == g })
	}
}

// flagUsages lists the flags of a command, by topic where there are many.
func flagUsages(flags *pflag.FlagSet) string {
	count := 0
	flags.VisitAll(func(*pflag.Flag) { count++ })
	if count < manyFlags {
		return "Flags:\n" + flags.FlagUsages()
	}
	sets := make([]*pflag.FlagSet, len(flagGroups))
	for i := range sets {
		sets[i] = pflag.NewFlagSet("", pflag.ContinueOnError)
		sets[i].SortFlags = false
	}
	flags.VisitAll(func(f *pflag.Flag) {
		for i, g := range flagGroups {
			if g.has(f.Name) {
				sets[i].AddFlag(f)
				return
			}
		}
	})
	order := []int{0} // the cluster's, which few need, before the last
	for i := 2; i < len(sets)-1; i++ {
		order = append(order, i)
	}
	var b strings.Builder
	for _, i := range append(order, 1, len(sets)-1) {
		if sets[i].HasAvailableFlags() {
			b.WriteString(flagGroups[i].title + ":\n" + sets[i].FlagUsages() + "\n")
		}
	}
	return b.String()
}

// addFlagUsages is done once: cobra has one table of functions for all commands, without a lock.
var addFlagUsages = sync.OnceFunc(func() { cobra.AddTemplateFunc("flagUsages", flagUsages) })

// groupHelp has cmd and its children list flags by flagUsages.
func groupHelp(cmd *cobra.Command) {
	addFlagUsages()
	const plain = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), plain, "{{flagUsages .LocalFlags | trimTrailingWhitespaces}}", 1))
}

// flagValues are what completion offers for flags that take one of a few words.
var flagValues = map[string][]string{
	"model": runtime.Models(), "sampler": runtime.Samplers(), "format": importer.Formats(),
	"task": {"node", "link", "regression"}, "combine": {"add", "concat"}, "aggregation": {"mean", "max", "sum"}, "gcn-norm": {"graph", "block"},
	"activation": {"relu", "leaky-relu", "elu"}, "norm": {"layer", "batch", "none"}, "jumping-knowledge": {"cat", "max", "last"},
	"link-decoder": {"dot", "mlp"}, "precision": {"float32", "bf16"}, "optimizer": {"adam", "adamw", "sgd"},
	"schedule": {"constant", "step", "cosine", "plateau"}, "keep": {"best", "last"}, "device": {"cpu", "cuda", "auto"}, "blas": {"own", "cublas"},
	"sample-on": {"cpu", "device"}, "match": {"on", "off"}, "gather": {"fused", "copied"},
	"loss": {"cross-entropy", "focal", "mse", "l1", "huber"}, "feature-type": {"float32", "float16", "bfloat16", "int8", "int8:column"}, "features": {"ram", "mmap", "disk"},
	"names": compute.NameStyles(), "method": pieces.Methods(), "output": {string(outputText), string(outputJSON)},
	"reorder-method": {"exact", "sketch"}, "split": {"train", "valid", "test"},
}

// flagEndings are those of the files that flags name.
var flagEndings = map[string][]string{"params": {"safetensors"}, "save": {"safetensors"}, "config": {"yaml", "yml"}, "plot": {"svg", "png", "csv"}}

// completeValues has shells complete the values of cmd's flags and of its children's: words, directories, files by their endings.
func completeValues(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		values, endings := flagValues[f.Name], flagEndings[f.Name]
		switch {
		case f.Value.Type() == "bool":
		case f.Name == "split" && cmd.Name() == "import": // a share of the nodes
		case values != nil:
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // each flag once
		case endings != nil:
			_ = cmd.MarkFlagFilename(f.Name, endings...)
		case strings.Contains(f.Usage, "`DIR`"):
			_ = cmd.MarkFlagDirname(f.Name)
		}
	})
	for _, child := range cmd.Commands() {
		completeValues(child)
	}
}
