//go:build !linux

package features

import (
	"context"
	"errors"
	"os"

	"github.com/gnnactor/gnnactor/graph"
)

// rings are what only Linux has.
type rings struct{}

func (*rings) start() error { return errors.ErrUnsupported }
func (*rings) close() error { return nil }

func (s *disk) readByRing(context.Context, *plan, *graph.Features) error {
	return errors.ErrUnsupported
}

func adviseRandom(*os.File) {}
