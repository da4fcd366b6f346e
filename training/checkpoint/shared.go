package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// In a directory that several nodes write to, files carry the number of the writer's group, too.

// SharedPath is where the first of a group writes the state after a step.
func SharedPath(dir string, step, group int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%012d-g%012d%s", Prefix, step, group, Suffix))
}

// Sweep removes what writers of groups before left half written.
func Sweep(dir string, group int64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	for _, e := range entries {
		var step, g int64
		n, _ := fmt.Sscanf(e.Name(), "."+Prefix+"%d-g%d", &step, &g)
		if n == 2 && g < group {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("checkpoint directory: %w", err)
			}
		}
	}
	return nil
}

// SHA256 returns the hash of a file, in hex.
func SHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
