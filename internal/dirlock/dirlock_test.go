//go:build unix

package dirlock

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestLocks(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Try(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(dir); !errors.Is(err, ErrHeld) {
		t.Errorf("a lock was had twice: %v", err)
	}
	had := make(chan func() error)
	go func() {
		unlock, err := Wait(t.Context(), dir)
		if err != nil {
			t.Error(err)
		}
		had <- unlock
	}()
	select {
	case <-had:
		t.Fatal("a lock that is held was had")
	default:
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
	if unlock = <-had; unlock == nil {
		t.Fatal("no lock")
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
	if _, err := Try(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}
