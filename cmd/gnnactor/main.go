// Gnnactor samples, trains and evaluates graph neural networks.
//
// With no further flags,
//
//	gnnactor train
//
// trains on a small built-in graph. Every command explains itself with --help.
//
// Settings come from flags, from environment variables (GNNACTOR_BATCH_SIZE for
// --batch-size), from the YAML file that --config names, and from defaults, in
// this order of precedence. The names are the same everywhere.
//
// Results go to the standard output, progress and messages to the standard
// error. With --output json the last line of the standard output is one JSON
// object. The table of exit codes is in exitcodes.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/graph"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signal.Ignore(syscall.SIGXFSZ) // a file at its limit is an error of the write
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		fmt.Fprintln(os.Stderr, "\ngnnactor: stopping cleanly; interrupt again to stop at once")
		cancel()
		<-signals
		os.Exit(exitInterrupted)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code. Cancelling ctx stops
// a long command cleanly.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root, a := newRoot(stdout, stderr)
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		completeValues(root) // cobra keeps them, and all commands with them, as long as the process lives
	}
	err := graph.Guard(func() error { return root.ExecuteContext(ctx) })
	if err != nil && !a.started {
		// cobra refused the command line before any command ran.
		err = &usageError{err}
	}
	return report(ctx, stderr, a.command, err)
}

// usageError marks an error that the caller's command line, environment or
// config file is to blame for.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// report prints err as one line and returns the exit code that belongs to it.
func report(ctx context.Context, stderr io.Writer, command string, err error) int {
	if err == nil {
		return exitDone
	}
	code, text := exitCode(ctx, err), oneLine(err.Error())+remedy(err)
	var usage *usageError
	switch {
	case errors.As(err, &usage), errors.Is(err, cluster.ErrOptions):
		if command == "" {
			command = "gnnactor"
		}
		text += fmt.Sprintf(" (see %s --help)", command)
	case code == exitInterrupted:
		text = "interrupted: " + text
	}
	fmt.Fprintf(stderr, "gnnactor: %s\n", text)
	return code
}

// oneLine joins the lines of text, as cobra and errors.Join write them, to one.
func oneLine(text string) string {
	var b strings.Builder
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimSpace(line)
		switch {
		case b.Len() == 0 || line == "":
		case strings.HasSuffix(b.String(), "?"), strings.HasSuffix(b.String(), ":"):
			b.WriteByte(' ')
		default:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// remedy says what to do about a full or forbidden disk, where the error does
// not say so itself.
func remedy(err error) string {
	text := err.Error()
	switch {
	case (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && !strings.Contains(text, "free some space"):
		return "; free some space there, or write to another file system"
	case errors.Is(err, syscall.EFBIG):
		return "; raise the limit on the size of files (ulimit -f), or write to another file system"
	case errors.Is(err, fs.ErrPermission) && strings.HasSuffix(text, syscall.EACCES.Error()):
		return "; change its permissions, or choose another place"
	}
	return ""
}
