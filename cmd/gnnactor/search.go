package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/internal/dirlock"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/scheduler"
)

// searchCommand is one search. Its directory has search.json, which says what is searched, trials/0001.json and so on, a record of
// each trial, checkpoints/0001 and so on, of those that may go on and of the best, and search.svg.
type searchCommand struct {
	*app
	config             *configFlags
	dir                string
	trials, eta, least int

	space  searchSpace
	base   runtime.Config
	given  map[string]string // settings of base that somebody gave
	figure splitFigure
	all    []*trial
}

// trial is one, and its record.
type trial struct {
	Trial    int               `json:"trial"` // from 1
	Settings map[string]string `json:"settings"`
	Rungs    []rungResult      `json:"rungs"`
	Refused  string            `json:"refused,omitempty"`  // why its settings cannot be trained with
	Diverged string            `json:"diverged,omitempty"` // how its training ended, if its loss was no number any more
}

// rungResult is what a trial had come to at the end of a rung.
type rungResult struct {
	Epochs    int      `json:"epochs"` // that it may have trained
	Valid     *float64 `json:"valid"`  // null: the parameters had diverged
	BestEpoch int      `json:"best_epoch,omitempty"`
	Seconds   float64  `json:"seconds"` // of this rung, since it was begun or gone on with
}

// failed says in a word what became of a trial that does not go on; empty: nothing.
func (t *trial) failed() string {
	switch {
	case t.Refused != "":
		return "refused"
	case t.Diverged != "":
		return "diverged"
	}
	return ""
}

// valid is the figure at the end of the last rung that it came to; NaN if there is none.
func (t *trial) valid() float64 {
	if n := len(t.Rungs); n > 0 && t.Rungs[n-1].Valid != nil {
		return *t.Rungs[n-1].Valid
	}
	return math.NaN()
}

func newSearch(a *app) *cobra.Command {
	c := &searchCommand{app: a}
	cmd := &cobra.Command{
		Use:   "search RANGES.yaml --out DIR",
		Short: "Find good settings of a training, by validation",
		Long: `Find good settings of a training: train with settings that are drawn from the ranges of
a file, and name those that are best by validation. The test nodes are never asked.

RANGES.yaml has a line for each setting of the model, the sampler or the training that varies, named
like its flag, with a list of values or a range of numbers, both ends included:

  lr: {from: 0.0001, to: 0.1, log: true}     # its logarithm is uniform
  dropout: {from: 0, to: 0.6}
  layers: {from: 1, to: 3}                   # a whole number
  hidden: [32, 64, 128]
  fanouts: [[10, 10], [15, 10, 5]]
  model: [sage, gcn]

Other settings are those of the flags, as of 'gnnactor train', and the same for all trials. What a
trial's other settings do not read is left out of it (momentum where the optimizer is adam).

Without --halving each of --trials is trained for --epochs. With --halving N all are trained for
few epochs, the best 1/N of them go on for N times as many, and so on until --epochs: synchronous
successive halving.

Trials, and what is drawn for them, are functions of --seed: the same search gives the same result,
also one that was killed and is started again with the same command line, which does not train again
what --out DIR has records or checkpoints of. More --trials, without --halving, add to those that
are there.

A trial whose loss is no number any more has diverged, one whose settings cannot be trained with is refused:
both come last, and the search goes on.

It ends with a table of the trials, the best first, DIR/search.svg, which shows the figure over each
setting, and the command line that trains the best. DIR/checkpoints has its parameters. Data that is
not a store is imported by each start of the search: import it first.`,
		Example: `  gnnactor search ranges.yaml --out search --data DIR --trials 30 --epochs 20
  gnnactor search ranges.yaml --out search --data DIR --trials 81 --halving 3 --epochs 81`,
		Args: a.args(cobra.ExactArgs(1)),
		RunE: c.run,
	}
	cmd.Flags().StringVar(&c.dir, "out", "", "`DIR` for the records of the trials, to go on from where they are there")
	cmd.Flags().IntVar(&c.trials, "trials", 20, "how many settings to draw")
	cmd.Flags().IntVar(&c.eta, "halving", 0, "keep the best 1 of so many trials from rung to rung; 0: train all to the end")
	cmd.Flags().IntVar(&c.least, "min-epochs", 1, "with --halving: epochs of the first rung, at least")
	c.config = addConfigFlags(cmd, append([]group{dataGroup}, searchedGroups...), settingNames(executionGroup, "trace", "audit")...)
	a.addOutputFlag(cmd)
	return cmd
}

func (c *searchCommand) run(cmd *cobra.Command, args []string) (err error) {
	if err := c.read(cmd, args[0]); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(c.dir, "trials"), 0o755); err != nil {
		return usagef("--out: %w", err)
	}
	unlock, err := dirlock.Try(c.dir)
	if errors.Is(err, dirlock.ErrHeld) {
		return usagef("--out %s: another search writes there; wait until it ends, or name another directory", c.dir)
	} else if err == nil {
		defer func() { err = errors.Join(err, unlock()) }()
	}
	closeData, err := c.openData(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeData()) }()
	if err := c.readRecords(); err != nil {
		return err
	}
	if err := c.search(cmd.Context()); err != nil {
		if cmd.Context().Err() != nil {
			err = fmt.Errorf("%w; the same command line goes on from --out %s", err, c.dir)
		}
		return err
	}
	return c.report()
}

// read takes what the command line and the files that it names say.
func (c *searchCommand) read(cmd *cobra.Command, ranges string) (err error) {
	if c.base, err = c.config.load(cmd, c.app); err != nil {
		return err
	}
	c.given = c.config.given
	if c.space, err = readSpace(ranges); err != nil {
		return &usageError{err}
	}
	varies := func(name string) bool {
		return slices.ContainsFunc(c.space, func(r searchRange) bool { return r.name == name })
	}
	at := slices.IndexFunc(c.space, func(r searchRange) bool { return slices.Contains(r.values, "cosine") })
	switch {
	case c.dir == "":
		return usagef("there is no place for the records of trials; name one with --out DIR")
	case c.trials < 1 || c.trials > 1<<20:
		return usagef("--trials: %d is not in [1, %d]", c.trials, 1<<20)
	case c.eta < 0 || c.eta == 1:
		return usagef("--halving: %d; must be 2 or more, of which one trial goes on, or 0", c.eta)
	case c.least < 1:
		return usagef("--min-epochs: %d must be 1 or more", c.least)
	case c.eta == 0:
	case varies("epochs"):
		return usagef("%s: with --halving epochs are what trials get more of; say --epochs, or leave --halving out", ranges)
	case c.base.Training.Schedule == "cosine" || at >= 0 && c.space[at].name == "schedule":
		return usagef("the cosine schedule spans all epochs, of which --halving trains some trials fewer; take another --schedule, or leave --halving out")
	}
	for _, r := range c.space {
		if where, given := c.given[r.name]; given {
			return usagef("%s is in %s and given by %s; leave one out", r.name, ranges, where)
		}
	}
	return nil
}

// openData finds out what the trials' figure is, and imports data that is no store once for all of them.
func (c *searchCommand) openData(ctx context.Context) (closeData func() error, err error) {
	cfg := runtime.DefaultConfig()
	cfg.Data, cfg.Model.Task, cfg.Memory.Limit = c.base.Data, c.base.Model.Task, "none"
	cfg.Data.NormalizeFeatures, cfg.Data.Verify = false, false
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c.figure = figureOf(cfg, rt)
	ds := rt.Dataset()
	if c.figure == aucFigure && rt.NumLinks(runtime.ValidLinks) == 0 || c.figure != aucFigure && len(ds.Valid) == 0 {
		return nil, errors.Join(usagef("the data has no validation nodes, by which settings are chosen; import it with --split random:60/20/20"), rt.Stop())
	}
	if err := c.agree(ds.Fingerprint); err != nil {
		return nil, errors.Join(err, rt.Stop())
	}
	if format, err := importer.DetectFormat(c.base.Data.Path); c.base.Data.Format == "" && (err == nil && format == "store" || pieces.IsSet(c.base.Data.Path)) {
		return func() error { return nil }, rt.Stop() // each trial opens it
	}
	c.base.Data.Dataset = ds
	return rt.Stop, nil
}

// searchIdentity is what makes the result of a search; it is in search.json.
type searchIdentity struct {
	Data     string            `json:"data"` // fingerprint
	Ranges   map[string]string `json:"ranges"`
	Settings map[string]string `json:"settings"`          // of all trials, those that are not the defaults
	Trials   int               `json:"trials,omitempty"`  // with halving; without, more may be added
	Halving  int               `json:"halving,omitempty"` // 1/halving of the trials go on
	Least    int               `json:"min_epochs,omitempty"`
}

// agree refuses a directory of another search, and makes a new one this search's.
func (c *searchCommand) agree(fingerprint string) error {
	id := searchIdentity{Data: fingerprint, Ranges: c.space.text(), Settings: map[string]string{}}
	if c.eta > 0 {
		id.Trials, id.Halving, id.Least = c.trials, c.eta, c.least
	}
	unlike := runtime.DefaultConfig()
	for _, s := range settings {
		x := field(&c.base, s.name).String()
		if (slices.Contains(searchedGroups, s.group) || s.name == "normalize-features") && x != field(&unlike, s.name).String() {
			id.Settings[s.name] = x
		}
	}
	name := filepath.Join(c.dir, "search.json")
	var was searchIdentity
	if err := readJSON(name, &was); errors.Is(err, fs.ErrNotExist) {
		return writeJSON(name, id)
	} else if err != nil {
		return err
	}
	var diff []string
	differs := func(what string, was, is any) {
		if was != is {
			diff = append(diff, fmt.Sprintf("%s was %v and is %v", what, was, is))
		}
	}
	differs("the data's fingerprint", was.Data, id.Data)
	differs("--trials", was.Trials, id.Trials)
	differs("--halving", was.Halving, id.Halving)
	differs("--min-epochs", was.Least, id.Least)
	for _, kind := range []struct{ was, is map[string]string }{{was.Ranges, id.Ranges}, {was.Settings, id.Settings}} {
		both := maps.Clone(kind.is)
		maps.Copy(both, kind.was)
		for _, k := range slices.Sorted(maps.Keys(both)) {
			x, y := kind.was[k], kind.is[k]
			differs(k, cmp.Or(x, "not given"), cmp.Or(y, "not given"))
		}
	}
	if diff == nil {
		return nil
	}
	return usagef("--out %s has another search: %s; name another directory, or search the same", c.dir, strings.Join(diff, ", "))
}

func readJSON(name string, v any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s is no record of a search: %w; remove it, to have it made again", name, err)
	}
	return nil
}

func writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(name, 0o644, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

func (c *searchCommand) record(t *trial) string {
	return filepath.Join(c.dir, "trials", fmt.Sprintf("%04d.json", t.Trial))
}

func (c *searchCommand) checkpoints(t *trial) string {
	return filepath.Join(c.dir, "checkpoints", fmt.Sprintf("%04d", t.Trial))
}

// readRecords draws the trials, and takes what is known of them.
func (c *searchCommand) readRecords() error {
	drawn := c.space.draw(c.base.Training.Seed, c.trials)
	if len(drawn) < c.trials {
		c.logf("%s: no other settings are in the ranges", countOf(len(drawn), "trial"))
	}
	for i, s := range drawn {
		t := &trial{Trial: i + 1, Settings: s}
		was := *t
		if err := readJSON(c.record(t), &was); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !maps.Equal(was.Settings, t.Settings) || was.Trial != t.Trial {
			return fmt.Errorf("%s is of other settings than this search draws; remove it, to have it made again, or name another --out", c.record(t))
		}
		c.all = append(c.all, &was)
	}
	return nil
}

// better orders trials: those that failed come last, the others as further does.
func (c *searchCommand) better(a, b *trial) int {
	return cmp.Or(cmp.Compare(a.failed(), b.failed()), c.further(a, b))
}

// further orders trials: those that trained longer first, then those of the better figure, then those that were drawn first.
func (c *searchCommand) further(a, b *trial) int {
	x, y := a.valid(), b.valid()
	if c.figure == rmseFigure {
		x, y = -x, -y
	}
	return cmp.Or(cmp.Compare(len(b.Rungs), len(a.Rungs)), cmp.Compare(y, x), cmp.Compare(a.Trial, b.Trial)) // NaN is least
}

// search trains all trials, rung by rung.
func (c *searchCommand) search(ctx context.Context) error {
	alive := slices.Clone(c.all)
	list := rungs(len(c.all), c.base.Training.Epochs, c.eta, c.least)
	for r, rung := range list {
		alive = alive[:min(rung.trials, len(alive))]
		if len(list) > 1 {
			c.logf("rung %d of %d: %s until epoch %d", r+1, len(list), countOf(len(alive), "trial"), rung.epochs)
		}
		for i, t := range alive {
			if len(t.Rungs) <= r && t.failed() == "" {
				if err := c.train(ctx, t, rung.epochs, c.eta > 0); err != nil {
					return fmt.Errorf("trial %d: %w", t.Trial, err)
				}
				if err := writeJSON(c.record(t), t); err != nil {
					return err
				}
				c.logf("trial %d (%d of %d): %s; %s", t.Trial, i+1, len(alive), t.said(), t.came(c.figure))
			}
			if r == len(list)-1 {
				if err := c.sweep(alive[i+1:]); err != nil {
					return err
				}
			}
		}
		// One that failed in a later rung, before this search was started again, was promoted, and so it is now.
		alive = slices.DeleteFunc(alive, func(t *trial) bool { return t.failed() != "" && len(t.Rungs) <= r })
		slices.SortFunc(alive, c.further)
	}
	if best := slices.MinFunc(c.all, c.better); best.failed() != "" {
		return usagef("no trial could be trained; the first: %s", c.all[0].Refused+c.all[0].Diverged)
	}
	return nil
}

// sweep removes the checkpoints of all but the best and those that are yet to be trained, which may all fail.
func (c *searchCommand) sweep(yet []*trial) error {
	done := slices.DeleteFunc(slices.Clone(c.all), func(t *trial) bool { return slices.Contains(yet, t) })
	best := slices.MinFunc(done, c.better)
	var err error
	for _, t := range done {
		if t != best {
			err = errors.Join(err, os.RemoveAll(c.checkpoints(t)))
		}
	}
	return err
}

// said are the settings of a trial, as flags without dashes.
func (t *trial) said() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(t.Settings)) {
		parts = append(parts, k+" "+t.Settings[k])
	}
	return strings.Join(parts, ", ")
}

// came is what a trial has come to.
func (t *trial) came(f splitFigure) string {
	if failed := t.failed(); failed != "" {
		return failed + ": " + t.Refused + t.Diverged
	}
	last := t.Rungs[len(t.Rungs)-1]
	return fmt.Sprintf("valid %s%s in %.3g s", f.prefix(), f.format(t.valid()), last.Seconds)
}

// settle returns the settings that a trial trains with, and which of them somebody gave or it drew.
func (c *searchCommand) settle(t *trial) (cfg runtime.Config, given map[string]string, err error) {
	cfg, given = c.base, maps.Clone(c.given)
	for name, value := range t.Settings {
		if err := field(&cfg, name).Set(value); err != nil {
			return cfg, nil, fmt.Errorf("%s: %w", name, err)
		}
		given[name] = "trial"
	}
	flags := &configFlags{given: given}
	flags.settleLayers(&cfg, &app{stderr: io.Discard})
	unlike := runtime.DefaultConfig()
	for _, s := range flags.unreadSettings(&cfg) {
		field(&cfg, s.name).Value().Set(field(&unlike, s.name).Value())
		delete(given, s.name)
	}
	return cfg, given, nil
}

// train has a trial go on until an epoch, or says in it why it cannot.
func (c *searchCommand) train(ctx context.Context, t *trial, epochs int, more bool) (err error) {
	defer func() {
		switch {
		case errors.Is(err, runtime.ErrConfig), errors.Is(err, scheduler.ErrMemory):
			t.Refused, err = oneLine(err.Error()), nil
		case errors.Is(err, runtime.ErrDiverged):
			t.Diverged, err = oneLine(err.Error()), nil
		}
	}()
	cfg, _, err := c.settle(t)
	if err != nil {
		return err
	}
	if more {
		cfg.Training.Epochs = epochs
	}
	cfg.Checkpoint = runtime.CheckpointConfig{Dir: c.checkpoints(t), Keep: 1, Resume: true}
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	show := newProgress(c.stderr, cfg.Training.Epochs)
	defer show.clear()
	began := time.Now()
	for ev, err := range rt.Train(ctx) {
		if err != nil {
			return err
		}
		if show.width > 0 && (ev.Kind == runtime.EventStep || ev.Kind == runtime.EventEpoch) {
			show.event(ev)
		}
		if ev.Kind == runtime.EventDone {
			result := rungResult{Epochs: cfg.Training.Epochs, BestEpoch: ev.Best, Seconds: time.Since(began).Seconds()}
			if x := ev.ValidAccuracy; x-x == 0 {
				result.Valid = &x
			}
			t.Rungs = append(t.Rungs, result)
		}
	}
	return nil
}

// searchResult is what --output json prints.
type searchResult struct {
	Best        *trial   `json:"best"`
	Figure      string   `json:"figure"` // valid_accuracy, valid_auc or valid_rmse
	Command     string   `json:"command"`
	Checkpoints string   `json:"checkpoints"`
	Plot        string   `json:"plot"`
	Trials      []*trial `json:"trials"` // the best first
}

// report prints the result, and draws it.
func (c *searchCommand) report() error {
	ranked := slices.Clone(c.all)
	slices.SortFunc(ranked, c.better)
	best := ranked[0]
	command, err := c.commandLine(best)
	if err != nil {
		return err
	}
	picture := filepath.Join(c.dir, "search.svg")
	if err := c.draw(picture, ranked); err != nil {
		return err
	}
	if c.output == outputJSON {
		return c.printJSON(searchResult{
			Best: best, Figure: "valid_" + strings.ToLower(c.figure.name()), Command: command, Checkpoints: c.checkpoints(best), Plot: picture, Trials: ranked,
		})
	}
	t := new(table)
	head := []string{"trial", "valid " + c.figure.name(), "epochs", "seconds"}
	for _, r := range c.space {
		head = append(head, r.name)
	}
	t.row(head...)
	for _, one := range ranked {
		epochs, seconds, valid := "–", 0.0, cmp.Or(one.failed(), c.figure.format(one.valid()))
		for _, r := range one.Rungs {
			epochs, seconds = fmt.Sprint(r.Epochs), seconds+r.Seconds
		}
		row := []string{fmt.Sprint(one.Trial), valid, epochs, significant(seconds)}
		for _, r := range c.space {
			row = append(row, one.Settings[r.name])
		}
		t.row(row...)
	}
	if err := t.write(c.stdout); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "\ncurves: %s\nparameters: %s\n\n%s\n", picture, c.checkpoints(best), command)
	return err
}

// commandLine is what trains as a trial did.
func (c *searchCommand) commandLine(t *trial) (string, error) {
	cfg, given, err := c.settle(t)
	if err != nil {
		return "", err
	}
	cfg.Data.Dataset = nil
	unlike, line := runtime.DefaultConfig(), []string{"gnnactor", "train"}
	for _, s := range settings {
		x := field(&cfg, s.name).String()
		if given[s.name] == "" && x == field(&unlike, s.name).String() || s.group == checkpointGroup {
			continue
		}
		if b, is := field(&cfg, s.name).Value().Interface().(bool); is {
			line = append(line, fmt.Sprintf("--%s=%t", s.name, b))
			continue
		}
		line = append(line, "--"+s.name, shellQuoted(x))
	}
	return strings.Join(line, " "), nil
}

// shellQuoted writes a word of a command line.
func shellQuoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./,:=+@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
