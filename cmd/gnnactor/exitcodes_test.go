package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/runtime"
)

// The help and README show the table that the program goes by.
func TestExitCodesAreTold(t *testing.T) {
	help, _ := mustInvoke(t, "--help")
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(help, exitTable()) {
		t.Errorf("--help lacks\n%s", exitTable())
	}
	if !strings.Contains(string(readme), exitMarkdown()) {
		t.Errorf("README.md lacks\n%s", exitMarkdown())
	}
	for _, c := range exitCodes {
		if !strings.Contains(help, fmt.Sprintf("%3d  %s", c.code, c.means)) {
			t.Errorf("--help does not explain exit code %d", c.code)
		}
	}
}

func TestExitCode(t *testing.T) {
	told, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), nil, exitDone},
		{t.Context(), os.ErrNotExist, exitFailed},
		{t.Context(), usagef("no"), exitUsage},
		{t.Context(), runtime.ErrConfig, exitUsage},
		{t.Context(), syscall.ENOSPC, exitDiskFull},
		{t.Context(), syscall.EDQUOT, exitDiskFull},
		{t.Context(), membership.ErrFenced, exitFenced},
		{t.Context(), context.Canceled, exitFailed},
		{told, nil, exitDone},
		{told, context.Canceled, exitInterrupted},
		{told, cluster.ErrStuck, exitInterrupted},
		{told, membership.ErrFenced, exitInterrupted},
		{told, os.ErrNotExist, exitFailed},
		{told, usagef("no"), exitUsage},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("it: %w", err)
		}
		if got := exitCode(c.ctx, err); got != c.want {
			t.Errorf("%v, told to end %t: exit %d, want %d", c.err, c.ctx.Err() != nil, got, c.want)
		}
	}
}
