package dataplane

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// ReplicaKind is what a node that keeps replicas has among membership's kinds.
const ReplicaKind = "copies"

// ReplicaDepth is how many replicas of a run are kept, and runs how many runs, of every
// sender.
const (
	ReplicaDepth = 2
	runs         = 4
)

// MaxReplica bounds one replica.
const MaxReplica = 64 << 30

// RunID names a run: the hash of what its checkpoints say that they are of.
type RunID [sha256.Size]byte

// Replica names one.
type Replica struct {
	Run    RunID
	Step   int64 // batches that were applied
	Size   int64 // bytes, 1 to MaxReplica
	SHA256 [sha256.Size]byte
}

const suffix = ".copy"

func (c *Replica) name() string {
	return fmt.Sprintf("%020d-%s%s", c.Step, hex.EncodeToString(c.SHA256[:]), suffix)
}

// named reads a name; false: it is no replica's.
func named(name string) (c Replica, ok bool) {
	text, ok := strings.CutSuffix(name, suffix)
	step, sum, dash := strings.Cut(text, "-")
	if !ok || !dash {
		return c, false
	}
	if n, err := fmt.Sscanf(step, "%d", &c.Step); n != 1 || err != nil || c.Step < 0 {
		return c, false
	}
	b, err := hex.DecodeString(sum)
	if err != nil || len(b) != len(c.SHA256) {
		return c, false
	}
	copy(c.SHA256[:], b)
	return c, c.name() == name
}

// ReplicaServer is a node's directory of replicas.
type ReplicaServer struct {
	dir string
	mu  sync.Mutex // one change of the directory at a time
}

// ServeReplicas opens dir, which it makes if need be, and lets peers put
// replicas there, list and fetch them.
func ServeReplicas(p *Plane, dir string) (*ReplicaServer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("dataplane: %w", err)
	}
	s := &ReplicaServer{dir: dir}
	receiveRanges(p, MethodPutReplica, s.put)
	p.Handle(MethodListReplicas, s.list)
	ServeRanges(p, MethodGetReplica, ChunkBytes, s.get)
	return s, nil
}

func (s *ReplicaServer) run(peer string, run RunID) string {
	return filepath.Join(s.dir, peer, hex.EncodeToString(run[:]))
}

// dirs returns where replicas of a run may lie, by who sent them.
func (s *ReplicaServer) dirs(run RunID) (all []string, err error) {
	peers, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("dataplane: %w", err)
	}
	for _, peer := range peers {
		if peer.IsDir() {
			all = append(all, s.run(peer.Name(), run))
		}
	}
	return all, nil
}

// List returns the replicas of a run, whoever sent them: the furthest first.
func (s *ReplicaServer) List(run RunID) ([]Replica, error) {
	var all []Replica
	dirs, err := s.dirs(run)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		here, err := listed(dir, run)
		if err != nil {
			return nil, err
		}
		all = append(all, here...)
	}
	slices.SortFunc(all, further)
	return slices.CompactFunc(all, func(a, b Replica) bool { return a == b }), nil
}

// further orders the furthest first.
func further(a, b Replica) int {
	return cmp.Or(cmp.Compare(b.Step, a.Step), bytes.Compare(a.SHA256[:], b.SHA256[:]))
}

func listed(dir string, run RunID) (all []Replica, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("dataplane: %w", err)
	}
	for _, e := range entries {
		c, ok := named(e.Name())
		if !ok {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // it made room meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("dataplane: %w", err)
		}
		if c.Run, c.Size = run, info.Size(); c.Size > 0 {
			all = append(all, c)
		}
	}
	return all, nil
}

// open opens a replica, whoever sent it.
func (s *ReplicaServer) open(c *Replica) (*os.File, error) {
	dirs, err := s.dirs(c.Run)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		f, err := os.Open(filepath.Join(dir, c.name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("dataplane: %w", err)
		}
		return f, nil
	}
	return nil, fmt.Errorf("dataplane: there is none of step %d and %x", c.Step, c.SHA256[:6])
}

// put takes a chunk of a replica, and says how many of its bytes are here.
func (s *ReplicaServer) put(peer string, name []byte, at int64, data []byte) (have int64, err error) {
	c, err := decodeReplica(name)
	if err != nil {
		return 0, err
	}
	if int64(len(data)) > c.Size-at {
		return 0, fmt.Errorf("dataplane: %d bytes at %d of %d", len(data), at, c.Size)
	}
	if err := transport.CheckNode(peer); err != nil {
		return 0, fmt.Errorf("dataplane: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(peer, &c, at, data)
}

// take writes data, which lies at an offset of c, if that is where c goes on. It
// returns how many bytes of c are here.
func (s *ReplicaServer) take(peer string, c *Replica, at int64, data []byte) (have int64, err error) {
	dir := s.run(peer, c.Run)
	path := filepath.Join(dir, c.name())
	if there, err := whole(path, c); there || err != nil {
		return c.Size, err
	}
	if _, err := os.Stat(path + partSuffix); err != nil {
		if err := s.begin(peer, dir); err != nil {
			return 0, err
		}
	}
	f, err := openPartial(path, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if have, err = f.Append(at, data); err != nil || have < c.Size {
		return have, err
	}
	if err := verify(f, c.Size, c.SHA256); err != nil { // nothing of it can be kept
		return 0, errors.Join(err, os.Remove(f.Name()))
	}
	if err := f.Commit(); err != nil {
		return 0, err
	}
	return c.Size, s.prune(dir, c)
}

// begin makes room for one more replica of a peer's run.
func (s *ReplicaServer) begin(peer, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("dataplane: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("dataplane: %w", err)
	}
	for _, e := range entries { // of a replica that nobody goes on with
		if strings.HasSuffix(e.Name(), partSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("dataplane: %w", err)
			}
		}
	}
	home := filepath.Join(s.dir, peer)
	if entries, err = os.ReadDir(home); err != nil {
		return fmt.Errorf("dataplane: %w", err)
	}
	var old []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("dataplane: %w", err)
		}
		if e.Name() != filepath.Base(dir) {
			old = append(old, info)
		}
	}
	slices.SortFunc(old, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, o := range old[min(runs-1, len(old)):] {
		if err := os.RemoveAll(filepath.Join(home, o.Name())); err != nil {
			return fmt.Errorf("dataplane: %w", err)
		}
	}
	return nil
}

// prune leaves c and the furthest of the others, ReplicaDepth in all.
func (s *ReplicaServer) prune(dir string, c *Replica) error {
	all, err := listed(dir, c.Run)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(o Replica) bool { return o == *c })
	slices.SortFunc(all, further)
	for _, o := range all[min(ReplicaDepth-1, len(all)):] {
		if err := os.Remove(filepath.Join(dir, o.name())); err != nil {
			return fmt.Errorf("dataplane: %w", err)
		}
	}
	return nil
}

// whole reports whether path holds c. What is damaged there goes, and makes room
// for c anew.
func whole(path string, c *Replica) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("dataplane: %w", err)
	}
	err = errors.Join(verify(f, c.Size, c.SHA256), f.Close())
	if !errors.Is(err, ErrDamaged) {
		return err == nil, err
	}
	if err := os.Remove(path); err != nil {
		return false, fmt.Errorf("dataplane: %w", err)
	}
	return false, nil
}

// list answers with the replicas of a run.
func (s *ReplicaServer) list(_ context.Context, r *Request) (Reply, error) {
	if len(r.Body) != len(RunID{}) {
		return Reply{}, fmt.Errorf("dataplane: a question of %d bytes", len(r.Body))
	}
	all, err := s.List(RunID(r.Body))
	if err != nil {
		return Reply{}, err
	}
	return Reply{Data: [][]byte{encodeReplicas(all[:min(len(all), maxListed)]...)}}, nil
}

// get finds a part of a replica.
func (s *ReplicaServer) get(_ context.Context, name []byte, at int64, n int) (func([]byte) error, error) {
	c, err := decodeReplica(name)
	if err != nil {
		return nil, err
	}
	if at+int64(n) > c.Size {
		return nil, fmt.Errorf("dataplane: %d bytes at %d of %d", n, at, c.Size)
	}
	f, err := s.open(&c)
	if err != nil {
		return nil, err
	}
	return func(b []byte) error {
		defer f.Close()
		if _, err := f.ReadAt(b, at); err != nil {
			return fmt.Errorf("dataplane: step %d: %w", c.Step, err)
		}
		return nil
	}, nil
}

// maxListed is how many replicas a listing has at most.
const maxListed = 1024

// replicaBytes is how many a Replica has as it is written: its fields one after the other, little-endian.
var replicaBytes = binary.Size(Replica{})

func encodeReplicas(all ...Replica) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, all)
	if err != nil {
		panic(err) // they are of fixed size
	}
	return b
}

// decodeReplicas reads replicas of one run.
func decodeReplicas(b []byte) ([]Replica, error) {
	all := make([]Replica, min(len(b)/replicaBytes, maxListed))
	if len(b) != len(all)*replicaBytes {
		return nil, fmt.Errorf("dataplane: replicas in %d bytes", len(b))
	}
	if _, err := binary.Decode(b, binary.LittleEndian, all); err != nil {
		return nil, fmt.Errorf("dataplane: %w", err)
	}
	for _, c := range all {
		if c.Run != all[0].Run || c.Step < 0 || c.Size < 1 || c.Size > MaxReplica {
			return nil, fmt.Errorf("dataplane: step %d of %d bytes; at most %d, and all of one run", c.Step, c.Size, int64(MaxReplica))
		}
	}
	return all, nil
}

// decodeReplica reads what a transfer calls a replica.
func decodeReplica(b []byte) (c Replica, err error) {
	all, err := decodeReplicas(b)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("dataplane: a name of %d bytes", len(b))
	}
	if err != nil {
		return c, err
	}
	return all[0], nil
}
