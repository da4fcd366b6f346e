package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// app is what the subcommands of one command line share.
type app struct {
	stdout, stderr io.Writer
	output         outputFormat
	environ        func() []string
	started        bool           // a command's own code began: later errors are not cobra's
	command        string         // the command's path, for hints
	exit           func(code int) // ends the process that does not end by itself
}

func newRoot(stdout, stderr io.Writer) (*cobra.Command, *app) {
	a := &app{stdout: stdout, stderr: stderr, output: outputText, environ: os.Environ, exit: os.Exit}
	root := &cobra.Command{
		Use:     "gnnactor",
		Version: buildVersion(),
		Short:   "Sample, train and evaluate graph neural networks on giant graphs",
		Long: `Gnnactor samples, trains and evaluates graph neural networks on giant graphs.

  gnnactor train                 trains on a small built-in graph
  gnnactor train --data DIR      trains on yours: a store, or any directory that
                                 'gnnactor import' understands

Settings come from flags, from the environment (GNNACTOR_BATCH_SIZE for
--batch-size), from the YAML file that --config names, and from defaults, in
this order of precedence.

Exit codes:
` + exitTable(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.started = true
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		a.command = cmd.CommandPath()
		return err
	})
	root.AddGroup(
		&cobra.Group{ID: "model", Title: "Models:"},
		&cobra.Group{ID: "data", Title: "Data:"},
	)
	add := func(group string, c *cobra.Command) {
		c.GroupID = group
		c.Flags().SortFlags = false
		root.AddCommand(c)
	}
	add("model", newTrain(a))
	add("model", newEval(a))
	add("model", newEmbed(a))
	add("model", newPredict(a))
	add("model", newExport(a))
	add("model", newSearch(a))
	add("model", newPlan(a))
	add("data", newImport(a))
	add("data", newGenerate(a))
	add("data", newInspect(a))
	add("data", newPartition(a))
	add("data", newSample(a))
	add("", newCluster(a))
	add("", newBench(a))
	add("", newVersion(a))
	groupHelp(root)
	return root, a
}

// args is check, noting the command for hints and saying how it is used.
func (a *app) args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		a.command = cmd.CommandPath()
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("arguments given: %q; it is %q", args, cmd.UseLine())
		}
		return emptyFlags(cmd)
	}
}

// emptyFlags refuses flags that were given and are empty, as of a shell's variable that is not set: what stands for them then is
// another file than was meant, or none. Beside a file of settings they are what undoes a setting there.
func emptyFlags(cmd *cobra.Command) (err error) {
	file := cmd.Flags().Lookup("config")
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if file != nil && file.Changed && slices.ContainsFunc(settings, func(s setting) bool { return s.name == f.Name }) {
			return
		}
		what, _ := pflag.UnquoteUsage(f)
		if f.Value.String() == "" && (f.Value.Type() == "string" || what == "FILE" || what == "DIR") && err == nil {
			err = fmt.Errorf("--%s is empty; give it a value, or leave it out", f.Name)
		}
	})
	return err
}

// terminal returns the width of the terminal behind w, and false when w is
// something else: a file, a pipe, a test's buffer.
func terminal(w io.Writer) (width int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	return width, true
}
