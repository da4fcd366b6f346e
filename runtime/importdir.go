package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gnnactor/gnnactor/internal/dirlock"
)

// importPrefix begins the names of the temporary directories that data is imported to for one run.
const importPrefix = "gnnactor-import-"

// importDir makes a temporary directory for one run, and removes those of runs that were killed: a run has its own locked. remove
// gives it back.
func importDir() (dir string, remove func() error, err error) {
	// Of those that are younger nobody knows whether they are about to be locked.
	const young = time.Minute
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), importPrefix+"*")) // the pattern is right
	for _, old := range left {
		info, err := os.Lstat(old)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < young {
			continue
		}
		if unlock, err := dirlock.Try(old); err == nil {
			_ = errors.Join(os.RemoveAll(old), unlock()) // else the next run tries again
		}
	}
	if dir, err = os.MkdirTemp("", importPrefix); err != nil {
		return "", nil, err
	}
	unlock, err := dirlock.Try(dir)
	if err != nil { // no locks here: no run can remove it but this one
		unlock = func() error { return nil }
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), unlock()) }, nil
}
