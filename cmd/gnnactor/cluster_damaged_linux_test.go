package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// spawn is begin in a process of its own.
func spawn(t *testing.T, ctx context.Context, args ...string) *command {
	t.Helper()
	c := &command{out: newTranscript(), log: newTranscript(), code: make(chan int, 1)}
	p := exec.CommandContext(ctx, os.Args[0], args...)
	p.Env, p.Stdout, p.Stderr = append(os.Environ(), asCommand+"=1"), c.out, c.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Wait() // the code says how
		c.code <- p.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		<-done
	})
	return c
}

// damage makes every neighbour that a store has, but those of the first nodes, another one: the
// files are as long as they were, and all values in their bounds.
func damage(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "indices.bin")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 8 << 10; i < len(b); i += 4 {
		b[i] ^= 1
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// One of the processes that train has a damaged store, and was told not to read it beforehand. Of
// three it is named and put out, and the others end with the bits of one process; of two both stop,
// and both are named.
func TestClusterDamagedProcess(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	mustInvoke(t, "generate", "sbm", data, "--nodes", "3000", "--features", "16")
	run := []string{"--micro-batches", "6", "--batch-size", "60", "--eval-every", "0", "--fanouts", "3,3", "--hidden", "16", "--epochs", "2",
		"--threads", "1", "--output", "json", "--baseline=false"}
	out, _ := mustInvoke(t, slices.Concat([]string{"train", "--data", data}, run)...)
	want := resultSHA(t, out)
	for _, n := range []int{3, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, at := startStore(t, ctx, "--dir", filepath.Join(dir, "s"))
			var all []*command
			names := []string{"a", "b", "c"}[:n]
			liar := n - 1
			for i, name := range names {
				mine := filepath.Join(dir, "data-"+name)
				if err := os.CopyFS(mine, os.DirFS(data)); err != nil {
					t.Fatal(err)
				}
				args := slices.Concat([]string{"train", "--data", mine, "--cluster", at, "--node", name, "--node-dir", filepath.Join(dir, name), "--lease", "60s",
					"--wait-for", fmt.Sprint(n), "--audit", "0.5"}, run)
				if i == liar {
					damage(t, mine)
					args = append(args, "--verify-data=false")
				}
				all = append(all, spawn(t, ctx, args...))
			}
			for i, c := range all {
				code, log := c.ends(t, ctx), c.log.String()
				last := log[strings.LastIndex(strings.TrimSuffix(log, "\n"), "\n")+1:]
				switch {
				case n == 2 && (code != exitFailed || !strings.Contains(last, "audit: nodes a and b sampled train/")):
					t.Errorf("%s: exit %d\n%s", names[i], code, log)
				case n == 2:
				case i == liar && (code != exitFailed || !strings.Contains(last, "audit: node c sampled train/") || !strings.Contains(last, "than nodes a and b, and is put out")):
					t.Errorf("c, whose store is damaged: exit %d\n%s", code, log)
				case i != liar && (code != exitDone || resultSHA(t, c.out.String()) != want):
					t.Errorf("%s: exit %d, and not the bits of one process\n%s", names[i], code, log)
				}
			}
		})
	}
}
