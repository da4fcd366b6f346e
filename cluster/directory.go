package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/internal/dirlock"
)

// ErrInUse: another process has the node's directory.
var ErrInUse = errors.New("cluster: the directory is in use")

// hold keeps other processes out of a node's directory, which it makes if need be: two
// of one home would take each other's place in the cluster again and again.
func hold(dir, node string) (release func() error, err error) {
	lock := filepath.Join(dir, "in-use")
	if err := os.MkdirAll(lock, 0o700); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	by := filepath.Join(lock, "by")
	release, err = dirlock.Try(lock)
	switch {
	case errors.Is(err, dirlock.ErrNone):
		return func() error { return nil }, nil
	case errors.Is(err, dirlock.ErrHeld):
		who, err := os.ReadFile(by)
		if err != nil || len(who) == 0 { // it has only begun
			who = []byte("another process")
		}
		return nil, fmt.Errorf("%w: %s belongs to %s; give this node a directory of its own, or stop that one", ErrInUse, dir, strings.TrimSpace(string(who)))
	case err != nil:
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if err := os.WriteFile(by, fmt.Appendf(nil, "node %s, process %d\n", node, os.Getpid()), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: %w", err), release())
	}
	return release, nil
}

// A node's directory names the run that the node takes part in until it has come to
// the end of it: a node that died knows by it, when it is back, that a run that has
// ended was its own.
const partFile = "run.json"

func (n *Node) rememberRun(r *Run) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	err = atomicfile.Write(filepath.Join(n.dir, partFile), 0o600, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

func (n *Node) forgetRun() error {
	if err := os.Remove(filepath.Join(n.dir, partFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// remembers reports whether the directory names a run. What is not readable names none.
func (n *Node) remembers(r *Run) bool {
	var was Run
	b, err := os.ReadFile(filepath.Join(n.dir, partFile))
	return err == nil && json.Unmarshal(b, &was) == nil && was.Node == r.Node && was.Epoch == r.Epoch && was.same(r)
}
