package main

import (
	"context"
	"errors"

	"github.com/gnnactor/gnnactor/cluster"
)

// keepCopies is a node that keeps copies of checkpoints, and does nothing else,
// until it is interrupted or drained.
func (c *clusterFlags) keepCopies(ctx context.Context, a *app) error {
	o, err := c.options(a)
	if err != nil {
		return err
	}
	n, err := cluster.Enter(ctx, *o)
	if err != nil {
		return err
	}
	a.logf("%s keeps copies of checkpoints in %s", c.node, c.dir)
	select {
	case <-ctx.Done():
	case <-n.Draining():
	case <-n.Member.Lost():
		err = n.Member.Err()
	}
	return errors.Join(err, n.Leave(context.WithoutCancel(ctx)))
}
