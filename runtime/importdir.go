package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/gnnactor/gnnactor/internal/dirlock"
)

// Names of the temporary directories that data is imported to for one run begin with importPrefix once they are locked.
const (
	importPrefix = "gnnactor-import-"
	unheldPrefix = "gnnactor-new-"
)

// importDir makes a temporary directory for one run, and removes those of runs that were killed: a run has its own locked. remove
// gives it back.
func importDir() (dir string, remove func() error, err error) {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), importPrefix+"*")) // the pattern is right
	for _, old := range left {
		if info, err := os.Lstat(old); err != nil || !info.IsDir() {
			continue
		}
		if unlock, err := dirlock.Try(old); err == nil {
			_ = errors.Join(os.RemoveAll(old), unlock()) // else the next run tries again
		}
	}
	made, err := os.MkdirTemp("", unheldPrefix)
	if err != nil {
		return "", nil, err
	}
	unlock, err := dirlock.Try(made)
	if err != nil { // no locks here: no run can remove it but this one
		unlock = func() error { return nil }
	}
	dir = filepath.Join(filepath.Dir(made), importPrefix+strings.TrimPrefix(filepath.Base(made), unheldPrefix))
	if err := os.Rename(made, dir); err != nil {
		return "", nil, errors.Join(err, os.Remove(made), unlock())
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), unlock()) }, nil
}
