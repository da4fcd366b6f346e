package trainers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/training"
)

// maxTold bounds what one trainer tells at once.
const maxTold = 1 << 30

// Gather gives mine to the other trainers, which all call it with rising numbers, and returns what each gave, by
// trainer. It may be called beside AllReduce, and fails when one of them goes; the group is ended then, once a step that
// is being made has been made, or has failed.
func (g *reduceGroup) Gather(ctx context.Context, number int64, mine []byte) ([][]byte, error) {
	if len(mine) > maxTold {
		return nil, fmt.Errorf("trainers: %d bytes to tell; at most %d", len(mine), maxTold)
	}
	g.mu.Lock()
	if _, twice := g.told[number]; twice || number < g.oldest {
		g.mu.Unlock()
		return nil, fmt.Errorf("trainers: number %d was told already", number)
	}
	g.told[number] = mine
	close(g.tells)
	g.tells = make(chan struct{})
	g.mu.Unlock()
	within, end := training.Until(ctx, g.closed, ErrRegroup)
	defer end()
	asks, cancel := context.WithCancelCause(within)
	defer cancel(nil)
	var wg sync.WaitGroup
	all := make([][]byte, len(g.members))
	all[g.self] = mine
	body := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, g.id), uint64(number))
	for t, node := range g.members {
		if t == g.self {
			continue
		}
		wg.Go(func() {
			b, err := g.s.plane.Ask(asks, dataplane.Call{Node: node, Method: dataplane.MethodInputs, Body: [][]byte{body}, Max: maxTold})
			if all[t] = b; err != nil {
				cancel(fmt.Errorf("trainers: node %s: %w", node, err))
			}
		})
	}
	wg.Wait()
	err := context.Cause(asks)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, ErrRegroup):
		return nil, err
	case err != nil:
		g.sums.Lock()
		defer g.sums.Unlock()
		g.end(fmt.Errorf("%w: number %d was not told: %w", ErrRegroup, number, err)) // others may lack some of the last step
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for old := range g.told { // all have told this, and so have what was told before
		if old < number {
			delete(g.told, old)
		}
	}
	g.oldest = number
	return all, nil
}

// serveGather answers with what this trainer tells under a number, when it does.
func (s *reducer) serveGather(ctx context.Context, r *dataplane.Request) (dataplane.Reply, error) {
	if len(r.Body) != 16 {
		return dataplane.Reply{}, fmt.Errorf("trainers: a request of %d bytes", len(r.Body))
	}
	id, number := binary.LittleEndian.Uint64(r.Body), int64(binary.LittleEndian.Uint64(r.Body[8:]))
	g, err := s.group(ctx, id)
	if err != nil {
		return dataplane.Reply{}, err
	}
	if !slices.Contains(g.members, r.Peer) {
		return dataplane.Reply{}, fmt.Errorf("trainers: node %s is not in group %d", r.Peer, id)
	}
	for {
		g.mu.Lock()
		data, told := g.told[number]
		oldest, tells := g.oldest, g.tells
		g.mu.Unlock()
		switch {
		case told:
			return dataplane.Reply{Data: [][]byte{data}}, nil
		case number < oldest:
			return dataplane.Reply{}, fmt.Errorf("trainers: number %d was told to all", number)
		}
		select {
		case <-tells:
		case <-g.closed:
			return dataplane.Reply{}, ErrRegroup
		case <-ctx.Done():
			return dataplane.Reply{}, ctx.Err()
		}
	}
}
