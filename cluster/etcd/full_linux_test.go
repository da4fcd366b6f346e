package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/membership"
)

// disk mounts a file system in memory.
func disk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("a small file system cannot be mounted here (it takes root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes until the disk of path is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = io.Copy(f, bytes.NewReader(make([]byte, 1<<20)))
	}
	if closed := f.Close(); !errors.Is(err, syscall.ENOSPC) || closed != nil {
		t.Fatal(err, closed)
	}
}

// record is a log that a test looks into.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// A store whose disk fills up refuses writes and says where, answers reads, keeps the
// leases that are there, and takes writes again by itself when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := disk(t, "size=240m")
	var log record
	s := serve(t, etcd.Options{Node: "one", Dir: filepath.Join(dir, "store"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c := dial(t, nil, s.Endpoint())
	ctx := within(t)
	lease, err := c.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string) error {
		_, _, err := c.Commit(ctx, nil, []membership.Change{{Key: key, Value: []byte("x"), Lease: lease}})
		return err
	}
	until := func(what string, f func() bool) {
		t.Helper()
		for tick := time.NewTicker(20 * time.Millisecond); !f(); {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s: %v\n%s", what, ctx.Err(), log.String())
			}
		}
	}
	for round := range 2 {
		if err := put("before"); err != nil {
			t.Fatalf("with room: %v\n%s", err, log.String())
		}
		big := filepath.Join(dir, "big")
		fill(t, big)
		until("the alarm", func() bool { return errors.Is(put("meanwhile"), etcd.ErrFull) })
		if err := put("meanwhile"); err == nil || !strings.Contains(err.Error(), "free space on 127.0.0.1 (store one)") {
			t.Errorf("round %d: a full disk: %v", round, err)
		}
		if err := c.Renew(ctx, lease); err != nil {
			t.Errorf("round %d: a lease on a full disk: %v", round, err)
		}
		if all, _, err := c.List(ctx, "before"); err != nil || len(all) != 1 {
			t.Errorf("round %d: a full disk has %v, %v", round, all, err)
		}
		if _, err := c.Grant(ctx, time.Minute); !errors.Is(err, etcd.ErrFull) {
			t.Errorf("round %d: a lease more on a full disk: %v", round, err)
		}
		if err := os.Remove(big); err != nil {
			t.Fatal(err)
		}
		until("room", func() bool { return put("after") == nil })
	}
	for _, want := range []string{"the disk of the store is full", "there is room again"} {
		until(want, func() bool { return strings.Count(log.String(), want) >= 2 }) // it is said after it is so
		if got := strings.Count(log.String(), want); got != 2 {
			t.Errorf("%q is said %d times\n%s", want, got, log.String())
		}
	}
	if err := c.Revoke(context.WithoutCancel(ctx), lease); err != nil {
		t.Error(err)
	}
}
