package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// etcd does not survive a disk that has no room for what it writes. So a part of the
// disk is kept for it, in a file. When what is free beside that runs short, the alarm
// NOSPACE is raised: the store refuses writes, and answers reads. What it must write all
// the same (its members come to that, and leases that end) it has room for by the
// file, which gives way. When there is room again, the file takes it, and then the alarm
// is over.
const (
	reserveSize = 256 << 20 // or a quarter of a small disk
	checking    = 250 * time.Millisecond
)

type reserve struct {
	file         *os.File
	dir          string
	size, margin int64 // of the file when all is well; of what is free beside it
	has          int64
	short        bool
	blocks       int64 // of the database, that are there
}

// segment is the size of a file of etcd's log. Two are there at a time; it has to find
// room for the next.
const segment = 16 << 20

func init() { wal.SegmentSizeBytes = segment }

func openReserve(dir string) (*reserve, error) {
	_, total, err := diskSpace(dir)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "reserve"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	i, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("etcd: %w", err), f.Close())
	}
	r := &reserve{file: f, dir: dir, size: min(reserveSize, total/4), has: i.Size()}
	if r.size > 0 {
		r.margin = max(r.size/4, 2*segment)
	}
	return r, nil
}

// keep gives room to etcd, or takes it back, and reports what is free beside the file.
// Whether that is enough is in short.
func (r *reserve) keep() (free int64, err error) {
	free, _, err = diskSpace(r.dir)
	if err != nil {
		return 0, fmt.Errorf("etcd: %w", err)
	}
	switch lacks := r.size - r.has; {
	case free < segment*5/4 && r.has > 0:
		r.has = max(0, r.has-segment)
		err = r.file.Truncate(r.has)
	case lacks > 0 && free >= lacks+r.margin:
		if err = fileutil.Preallocate(r.file, r.size, true); err == nil {
			r.has = r.size
			free -= lacks
		} else if errors.Is(err, syscall.ENOSPC) { // somebody was quicker
			err = r.file.Truncate(r.has)
		}
	}
	need := r.margin
	if r.short {
		need += r.margin / 2 // it does not come and go
	}
	r.short = r.has < r.size || free < need
	if err != nil {
		return free, fmt.Errorf("etcd: reserve: %w", err)
	}
	return free, nil
}

// fillDatabase gives the database's file the blocks that it lacks: it grows by holes, and
// would fail where etcd writes to them first.
func (r *reserve) fillDatabase() error {
	f, err := os.OpenFile(filepath.Join(r.dir, "member", "snap", "db"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	i, err := f.Stat()
	if err == nil && i.Size() > r.blocks {
		if err = fileutil.Preallocate(f, i.Size(), false); err == nil {
			r.blocks = i.Size()
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	return nil
}

// guard raises the alarm when room runs short, and ends it when there is room again.
func (s *Server) guard(ctx context.Context) {
	tick := time.NewTicker(checking)
	defer tick.Stop()
	failed := ""
	for {
		free, err := s.room.keep()
		if err == nil {
			err = errors.Join(s.room.fillDatabase(), s.alarm(ctx, free))
		}
		if err != nil && ctx.Err() == nil && err.Error() != failed { // not four times a second
			failed = err.Error()
			s.log.Error("the room that is kept for the store on its disk", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// alarm brings this server's alarm up to what the disk is like.
func (s *Server) alarm(ctx context.Context, free int64) error {
	e, short := s.etcd.Server, s.room.short
	id := uint64(e.MemberID())
	up := slices.ContainsFunc(e.Alarms(), func(m *pb.AlarmMember) bool { return m.MemberID == id && m.Alarm == pb.AlarmType_NOSPACE })
	if up == short || up && e.Backend().Size() >= quota {
		return nil
	}
	if short {
		s.log.Error("the disk of the store is full: writes are refused until there is room; free space there", "directory", s.room.dir,
			"free_mib", free>>20, "needed_mib", (s.room.size-s.room.has+s.room.margin*3/2)>>20)
	}
	ctx, cancel := context.WithTimeout(ctx, calling)
	defer cancel()
	action := pb.AlarmRequest_DEACTIVATE
	if short {
		action = pb.AlarmRequest_ACTIVATE
	}
	if _, err := e.Alarm(ctx, &pb.AlarmRequest{Action: action, MemberID: id, Alarm: pb.AlarmType_NOSPACE}); err != nil {
		return fmt.Errorf("etcd: alarm: %w", err)
	}
	if !short {
		s.log.Info("there is room again on the disk of the store: writes go on", "directory", s.room.dir, "free_mib", free>>20)
	}
	return nil
}
