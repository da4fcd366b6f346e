package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/cluster/shard"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Features is a node's part in the features of a run that are shared out, or in its partition set.
type Features struct {
	keeper *shard.Keeper
	store  *store.Store // the map lies in it
	all    features.Store
	parts  *parts.Parts // of a partition set; else nil
}

// ErrNoPartition: the store has not the partition that the run's shards are.
var ErrNoPartition = errors.New("cluster: no such partition")

// Shards says how a run's features are cut up.
type Shards struct {
	Method   string // a method of package partition; hash and contiguous are computed, others are saved with the store
	Parts    int
	Replicas int
	ReadOnly bool // this node holds none
}

// Deal returns which shard each node of the graph is in, and the SHA-256 of it.
func (o *Shards) Deal(ctx context.Context, ds *graph.Dataset) (part []uint32, sum string, err error) {
	switch o.Method {
	case "hash", "contiguous":
		if part, err = partition.Compute(ctx, ds.Graph, o.Method, o.Parts, 1); err != nil {
			return nil, "", err
		}
	default:
		p := ds.Partition(o.Method, o.Parts)
		if p == nil {
			return nil, "", fmt.Errorf("%w: %s has none by %s of %d parts; make it with 'gnnactor partition --method %s --parts %d', or share by hash:%d",
				ErrNoPartition, ds.Name, o.Method, o.Parts, o.Method, o.Parts, o.Parts)
		}
		part = p.Cluster
	}
	h, b := sha256.New(), make([]byte, 0, 4096)
	for v, s := range part {
		if b = binary.LittleEndian.AppendUint32(b, s); len(b) == cap(b) || v == len(part)-1 {
			h.Write(b) // it cannot fail
			b = b[:0]
		}
	}
	return part, hex.EncodeToString(h.Sum(nil)), nil
}

// HoldShards makes this node hold a part of the features of the store in dir, of
// which it reads those, if they are there, and no edges. Leave ends that.
func (n *Node) HoldShards(ctx context.Context, r *Run, dir string, o Shards) (_ *Features, err error) {
	f := new(Features)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.store, err = openData(dir, 0); err != nil {
		return nil, err
	}
	ds := f.store.Dataset()
	part, sum, err := o.Deal(ctx, ds)
	if err != nil {
		return nil, err
	}
	if sum != r.Map {
		return nil, fmt.Errorf("%w: %w: its %d shards by %s are others than those of %s here; copy the partition of node %s, or share by hash:%d",
			ErrOtherRun, ErrNoPartition, o.Parts, o.Method, dir, r.Node, o.Parts)
	}
	if ds.NodeFeatures == nil {
		return nil, fmt.Errorf("cluster: %s has no node features to share out", dir)
	}
	m, err := shard.NewMap(part, o.Parts)
	if err != nil {
		return nil, err
	}
	if f.store.Has(store.NodeValues) {
		f.all = features.InMemory(ds.NodeFeatures)
	}
	f.keeper, err = shard.Keep(ctx, shard.Options{
		Member: n.Member, Plane: n.Plane, Map: m, Layout: features.LayoutOf(ds.NodeFeatures), Replicas: o.Replicas, All: f.all, ReadOnly: o.ReadOnly, Logger: n.log,
	})
	if err != nil {
		return nil, err
	}
	n.features.Store(f)
	return f, nil
}

// Store reads the rows of all shards, wherever they are, until Leave.
func (f *Features) Store() *shard.Store { return f.keeper.Store() }

// Ready waits until every shard lies somewhere, and those that belong here are
// here: training should not have to share the network and the cores with them.
func (f *Features) Ready(ctx context.Context) error {
	if err := f.keeper.Ready(ctx); err != nil {
		return err
	}
	return f.keeper.Settled(ctx)
}

func (f *Features) close() error {
	var errs []error
	if f.parts != nil {
		f.parts.Interrupt()
	}
	if f.keeper != nil {
		errs = append(errs, f.keeper.Close())
	}
	if f.all != nil {
		errs = append(errs, f.all.Close())
	}
	if f.store != nil {
		errs = append(errs, f.store.Close())
	}
	return errors.Join(errs...)
}
