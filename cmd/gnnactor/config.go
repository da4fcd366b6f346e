package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/runtime"
)

// reservedEnv are variables of the prefix that are no settings: these choose the kernel
// set and the library that drives devices.
var reservedEnv = []string{"GNNACTOR_SIMD", "GNNACTOR_LIBCUDA"}

const configEnv = envPrefix + "CONFIG"

// configFlags are the settings that a subcommand takes, before the layers below
// the flags are known.
type configFlags struct {
	flags runtime.Config // the flags write here
	file  string
	given map[string]string // after load: setting → where it was set

	command *pflag.FlagSet // all flags of the command; nil: there is none
}

// addConfigFlags gives cmd --config and a flag for each setting of the groups
// and of the further names.
func addConfigFlags(cmd *cobra.Command, groups []group, names ...string) *configFlags {
	c := &configFlags{flags: runtime.DefaultConfig(), command: cmd.Flags()}
	addFlags(cmd.Flags(), &c.flags, groups, names...)
	cmd.Flags().StringVar(&c.file, "config", "", "YAML `FILE` with settings, named like the flags")
	return c
}

// addInferenceFlags is addConfigFlags for those who infer with saved parameters.
func addInferenceFlags(cmd *cobra.Command) *configFlags {
	return addConfigFlags(cmd, []group{dataGroup}, append(settingNames(modelGroup, learningOnly...), "threads", "device", "eval-chunk", "verify-data")...)
}

// load lays defaults, file, environment and flags over each other, takes the
// model's shape from --params, and settles --layers against --fanouts.
func (c *configFlags) load(cmd *cobra.Command, a *app) (runtime.Config, error) {
	cfg := runtime.DefaultConfig()
	c.given = map[string]string{}
	env := map[string]string{}
	for _, kv := range a.environ() {
		if k, v, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(k, envPrefix) && v != "" {
			env[k] = v
		}
	}
	file := c.file
	if file == "" {
		file = env[configEnv]
	}
	delete(env, configEnv)
	if file != "" {
		if err := c.readFile(file, &cfg); err != nil {
			return cfg, &usageError{err}
		}
	}
	for _, s := range settings {
		v, ok := env[s.env()]
		if !ok {
			continue
		}
		delete(env, s.env())
		if err := field(&cfg, s.name).Set(v); err != nil {
			return cfg, usagef("environment variable %s=%q: %w", s.env(), v, err)
		}
		c.given[s.name] = s.env()
	}
	for k := range env {
		if !slices.Contains(reservedEnv, k) {
			flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(k, envPrefix), "_", "-"))
			a.logf("ignoring environment variable %s: %s", k, c.noSetting(flag))
		}
	}
	for _, s := range settings {
		if f := cmd.Flags().Lookup(s.name); f != nil && f.Changed {
			field(&cfg, s.name).Value().Set(field(&c.flags, s.name).Value())
			c.given[s.name] = "--" + s.name
		}
	}
	if cfg.Data.Format != "" && !slices.Contains(importer.Formats(), cfg.Data.Format) {
		return cfg, usagef("format: %q is not one of %s", cfg.Data.Format, strings.Join(importer.Formats(), ", "))
	}
	if cfg.Model.Params != "" {
		if err := c.takeShape(cmd.Context(), &cfg, a); err != nil {
			return cfg, err
		}
	}
	c.settleLayers(&cfg, a)
	return cfg, nil
}

// unread refuses settings that were given and that nothing reads with the others, together with what else is wrong. In a cluster
// settings that are not given are the run's that is there, which are not known yet.
func (c *configFlags) unread(cmd *cobra.Command, cfg *runtime.Config) error {
	if f := cmd.Flags().Lookup("cluster"); f != nil && f.Changed {
		return nil
	}
	var bad []string
	for _, s := range c.unreadSettings(cfg) {
		bad = append(bad, fmt.Sprintf("%s (%s): %s, or leave it out", s.name, c.given[s.name], s.why))
	}
	if bad == nil {
		return nil
	}
	if err := cfg.Validate(); err != nil {
		bad = append(bad, err.Error())
	}
	return usagef("%s", strings.Join(bad, "; "))
}

// unreadSetting is one that was given and that nothing reads with the others.
type unreadSetting struct{ name, why string }

func (c *configFlags) unreadSettings(cfg *runtime.Config) (unread []unreadSetting) {
	falls := slices.Contains([]string{"step", "plateau"}, cfg.Training.Schedule)
	flat := "the " + cfg.Training.Schedule + " schedule does not fall by steps; set schedule to step or plateau"
	for _, s := range []struct {
		name string
		read bool
		why  string
	}{
		{"momentum", cfg.Training.Optimizer == "sgd", cfg.Training.Optimizer + " has none of its own; set optimizer to sgd"},
		{"schedule-epochs", falls, flat},
		{"schedule-factor", falls, flat},
		{"fanouts", cfg.UsesFanouts() || !slices.Contains(runtime.Samplers(), cfg.Sampling.Sampler), "the sampler " + cfg.Sampling.Sampler + " has none; --layers says how many layers there are"},
		{"map", cfg.Model.Params != "", "it is of the names in --params, and there are none; name a file of them"},
		{"audit", false, "there is no other node to sample again; give --cluster"},
	} {
		if c.given[s.name] != "" && !s.read {
			unread = append(unread, unreadSetting{s.name, s.why})
		}
	}
	return unread
}

// readFile lays the settings of a YAML file over cfg. Keys that are no setting
// are refused.
func (c *configFlags) readFile(name string, cfg *runtime.Config) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(cfg); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("config file %s: %s", name, c.yamlProblem(err))
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("config file %s: more than one YAML document; keep one", name)
	}
	var keys map[string]any
	if err := yaml.Unmarshal(text, &keys); err != nil {
		return fmt.Errorf("config file %s: %s", name, c.yamlProblem(err))
	}
	for k, v := range keys {
		c.given[k] = name
		switch field(cfg, k).Value().Interface().(type) {
		case int, uint64, []int: // the decoder cuts what lies behind a point
			if list, ok := v.([]any); !ok && broken(v) || slices.ContainsFunc(list, broken) {
				return fmt.Errorf("config file %s: %s: %v: must be %s", name, k, v, yamlWants["int"])
			}
		}
	}
	return nil
}

// broken reports whether v is a number and not a whole one.
func broken(v any) bool {
	x, ok := v.(float64)
	return ok && x != math.Trunc(x)
}

// yamlWants says what a setting of a type is, in a file.
var yamlWants = map[string]string{
	"int": "a whole number", "uint64": "a whole number, 0 or more", "float64": "a number", "bool": "true or false",
	"[]int": "a list of whole numbers, like [15, 10, 5]", "map[string]string": "names with values, like {budget: 8000}", "string": "text",
}

var yamlMisfit = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("cannot unmarshal !!(\\S+(?: `.*`)?) into (\\S+)$") })

// yamlProblem puts what the YAML package says into the words of settings.
func (c *configFlags) yamlProblem(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if te, ok := errors.AsType[*yaml.TypeError](err); ok {
		said := slices.Clone(te.Errors)
		for i, s := range said {
			if m := yamlMisfit().FindStringSubmatchIndex(s); m != nil && yamlWants[s[m[4]:m[5]]] != "" {
				said[i] = s[:m[0]] + s[m[2]:m[3]] + ": must be " + yamlWants[s[m[4]:m[5]]]
			}
		}
		text = strings.Join(said, "; ")
	}
	return yamlUnknown().ReplaceAllStringFunc(text, func(s string) string {
		name := yamlUnknown().FindStringSubmatch(s)[1]
		return name + ": " + c.noSetting(name)
	})
}

var yamlUnknown = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`field (\S+) not found in type ` + regexp.QuoteMeta(reflect.TypeFor[runtime.Config]().String()))
})

// noSetting says what a name is that is none of a setting: --save and others say what a command does once.
func (c *configFlags) noSetting(name string) string {
	if c.command != nil && c.command.Lookup(name) != nil {
		return "it is no setting, and given as --" + name + " alone"
	}
	return "there is no such setting"
}

// takeShape opens the file of parameters, gives cfg the settings of the model that it
// describes, and refuses those that were given and contradict it. A file that describes
// none, one of PyG's, needs all of it said.
func (c *configFlags) takeShape(ctx context.Context, cfg *runtime.Config, a *app) (err error) {
	if cfg.Model.Saved, err = cfg.Model.Open(ctx); err != nil {
		return err
	}
	if !cfg.Model.Saved.Checked() {
		a.logf("%s has no checksums: nothing tells whether it is what was written; 'gnnactor train --params %[1]s --epochs 0 --save FILE' adds them", cfg.Model.Params)
	}
	about, err := cfg.Model.Saved.Description()
	if err != nil {
		guess, known := cfg.Model.Saved.Guess()
		if !known && (c.given["model"] == "" || c.given["layers"] == "" || c.given["hidden"] == "") {
			return fmt.Errorf("%s does not say which model it belongs to; name --model, --layers and --hidden, and with --map which tensors are its parameters: %w", cfg.Model.Params, err)
		}
		if !known {
			a.logf("%s does not say which model it belongs to: it is taken for that of the settings; 'gnnactor train --epochs 0 --save FILE', with the same settings, makes a file that does", cfg.Model.Params)
			return nil
		}
		guess.Task = cfg.Model.Task
		a.logf("%s does not say which model it belongs to: by its tensors %s, %d layers, %d wide; activation, aggregation and what else tensors do not say are those of the settings. 'gnnactor export' makes a file that says it", cfg.Model.Params, guess.Model.Model, guess.Model.Layers, guess.Model.Hidden)
		about = guess
	}
	said, layers := *cfg, cfg.Model.Layers
	about.Configure(cfg)
	for name := range c.given {
		field(cfg, name).Value().Set(field(&said, name).Value())
	}
	if err != nil {
		err = nil // what contradicts tensors is refused with them
	} else if err := about.Check(cfg); err != nil {
		return usagef("%w; these are %s's: leave them out, or take another file", err, cfg.Model.Params)
	}
	if c.given["layers"] == "" && cfg.Model.Layers != layers {
		c.given["layers"] = cfg.Model.Params
	}
	return nil
}

// settleLayers makes --layers and --fanouts agree when only one was given.
func (c *configFlags) settleLayers(cfg *runtime.Config, a *app) {
	if !cfg.UsesFanouts() || len(cfg.Sampling.Fanouts) == cfg.Blocks() {
		return
	}
	layers, fanouts := c.given["layers"], c.given["fanouts"]
	say := a.logf
	if c.command == nil || c.command.Lookup("fanouts") == nil { // it samples nothing
		say = func(string, ...any) {}
	}
	switch {
	case layers == "" && fanouts != "" && cfg.Model.Name != "mixhop":
		cfg.Model.Layers = len(cfg.Sampling.Fanouts)
		say("layers: %d, one per fan-out (%s)", cfg.Model.Layers, fanouts)
	case fanouts == "" && cfg.Model.Layers > 0 && cfg.Model.Hops >= 0 && cfg.Model.Layers <= runtime.MaxLayers && cfg.Model.Hops <= runtime.MaxLayers: // else Start refuses them
		k := cfg.Sampling.Fanouts[len(cfg.Sampling.Fanouts)-1]
		cfg.Sampling.Fanouts = slices.Repeat([]int{k}, cfg.Blocks())
		why := layers
		if why == "" {
			why = "--model " + cfg.Model.Name
		}
		say("fanouts: %d for each of %d layers (%s); --fanouts chooses others", k, cfg.Blocks(), why)
	}
}
