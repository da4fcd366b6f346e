package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/runtime"
)

// Exit codes. Those above 2 are there because a supervisor does something else about
// them; 74 and 75 are as in sysexits.h.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDiskFull    = 74
	exitFenced      = 75
	exitInterrupted = 130
)

// exitCodes is the one table of them: the help of the command and README show it.
var exitCodes = []struct {
	code           int
	means, restart string
}{
	{exitDone, "done, or drained: the other nodes have what this one did and held", "no"},
	{exitFailed, "failed; the last line of the standard error says why", "yes"},
	{exitUsage, "bad usage or setting", "no: correct it first"},
	{exitDiskFull, "a disk is full: of a node, or of the cluster's store", "when there is room"},
	{exitFenced, "fenced: the cluster goes on without this node", "yes, at once"},
	{exitInterrupted, "interrupted before all was done or handed over; --resume goes on", "when wanted"},
}

// exitTable is the table as text, for --help.
func exitTable() string {
	var b strings.Builder
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s (start again: %s)\n", c.code, c.means, c.restart)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// exitMarkdown is the table as README has it.
func exitMarkdown() string {
	b := []byte("| exit code | means | to be started again |\n| --- | --- | --- |\n")
	for _, c := range exitCodes {
		b = fmt.Appendf(b, "| %d | %s | %s |\n", c.code, c.means, c.restart)
	}
	return string(b)
}

// exitCode returns what a command that ended with err exits with. ctx ends when it
// was told to.
func exitCode(ctx context.Context, err error) int {
	var usage *usageError
	stopped := errors.Is(err, context.Canceled) || errors.Is(err, cluster.ErrStuck) || errors.Is(err, membership.ErrFenced)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage), errors.Is(err, cluster.ErrOptions), errors.Is(err, runtime.ErrConfig), errors.Is(err, runtime.ErrIdentity):
		return exitUsage
	case ctx.Err() != nil && stopped:
		return exitInterrupted
	case errors.Is(err, membership.ErrFenced):
		return exitFenced
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return exitDiskFull
	}
	return exitFailed
}
