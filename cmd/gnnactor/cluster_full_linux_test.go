package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/membership"
)

// A store that cannot write at all, because what it keeps of the disk is gone as well,
// says so and ends with a code of its own.
func TestStoreEndsOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=240m"); err != nil {
		t.Skipf("a small file system cannot be mounted here (it takes root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	log := newTranscript()
	store := exec.CommandContext(ctx, os.Args[0], "cluster", "start", "--node", "s", "--dir", filepath.Join(dir, "s"), "--listen", "127.0.0.1:0", "--peers", "127.0.0.1:0")
	store.Env, store.Stderr = append(os.Environ(), asCommand+"=1"), log
	if err := store.Start(); err != nil {
		t.Fatal(err)
	}
	_, at, _ := strings.Cut(log.await(t, ctx, "train with --cluster"), "serves at ")
	at, _, _ = strings.Cut(at, ";")
	c, err := etcd.Dial(ctx, []string{at}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// What is left is written full, and when the alarm is up the log of what is asked,
	// refused or not, as well.
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	alive, end := context.WithCancel(ctx)
	go func() {
		_ = store.Wait() // the code says how
		end()
	}()
	big, value := make([]byte, 1<<20), []byte("x")
	for {
		for err == nil {
			_, err = f.Write(big)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
		_, _, err = c.Commit(alive, nil, []membership.Change{{Key: "x", Value: value}})
		if errors.Is(err, etcd.ErrFull) {
			value = big
		}
		err = nil
		if alive.Err() != nil {
			break
		}
	}
	if code := store.ProcessState.ExitCode(); code != exitDiskFull {
		t.Errorf("exit %d\n%s", code, log)
	}
	for _, want := range []string{"the disk of the store is full", "the store has ended: ", "no space left on device", "free some space there"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q\n%s", want, log)
		}
	}
	// What a node hears then is not that the network is slow.
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := c.Renew(short, 1); err == nil || !strings.Contains(err.Error(), "the last that the store said is that its disk is full: free space on 127.0.0.1 (store s)") {
		t.Errorf("of a store that has ended: %v", err)
	}
}
