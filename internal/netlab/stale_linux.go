package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// netnsFolder is where ip netns keeps its names.
const netnsFolder = "/run/netns"

// owner is a process for as long as it lives and no longer: ids are used again,
// start times tell apart, and both mean nothing outside their pid namespace.
type owner struct {
	pidNS uint64 // inode
	pid   int
	start uint64 // clock ticks since boot
}

func identify(pid int) (owner, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return owner{}, fmt.Errorf("netlab: /proc/self/ns/pid: %w", err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return owner{}, fmt.Errorf("netlab: %w", err)
	}
	// proc_pid_stat(5): the second field, in parentheses, may hold anything; the
	// start time is field 22.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return owner{}, fmt.Errorf("netlab: /proc/%d/stat has %d fields after the name; want at least 20", pid, len(fields))
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return owner{}, fmt.Errorf("netlab: /proc/%d/stat: start time: %w", pid, err)
	}
	return owner{st.Ino, pid, start}, nil
}

// names are those of a lab's namespaces.
type names struct {
	owner
	lab uint32
}

const prefix = "gnnlab-"

func (n names) String() string {
	return fmt.Sprintf("%s%x-%d-%x-%d", prefix, n.pidNS, n.pid, n.start, n.lab)
}
func (n names) hub() string       { return n.String() + "-sw" }
func (n names) host(i int) string { return fmt.Sprintf("%s-h%d", n, i+1) }

// parseName reads a namespace's name; false: it is not a lab's.
func parseName(name string) (names, bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 6 || parts[0]+"-" != prefix {
		return names{}, false
	}
	ns, err1 := strconv.ParseUint(parts[1], 16, 64)
	pid, err2 := strconv.Atoi(parts[2])
	start, err3 := strconv.ParseUint(parts[3], 16, 64)
	lab, err4 := strconv.ParseUint(parts[4], 10, 32)
	if errors.Join(err1, err2, err3, err4) != nil {
		return names{}, false
	}
	return names{owner{ns, pid, start}, uint32(lab)}, true
}

// removeStale removes what killed runs left behind.
func removeStale(ctx context.Context) error {
	self, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(netnsFolder)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("netlab: %w", err)
	}
	var stale []string
	for _, e := range entries {
		n, ok := parseName(e.Name())
		if !ok || n.pidNS != self.pidNS {
			continue // not ours to judge
		}
		if now, err := identify(n.pid); err == nil && now == n.owner {
			continue // alive
		}
		stale = append(stale, e.Name())
	}
	return removeNamespaces(ctx, stale)
}

// removeNamespaces kills what runs in the named namespaces and removes them.
// Namespaces that are gone already are no error: two runs may clean up at once.
func removeNamespaces(ctx context.Context, list []string) error {
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := killInside(ctx, list); err != nil {
		return err
	}
	// Before the names by which they would be found.
	if err := removeGroups(ctx, list); err != nil {
		return err
	}
	var errs []error
	for _, name := range list {
		if _, err := os.Lstat(filepath.Join(netnsFolder, name)); errors.Is(err, os.ErrNotExist) {
			continue
		}
		err := tool(ctx, "", "ip", "netns", "del", name)
		if _, gone := os.Lstat(filepath.Join(netnsFolder, name)); err != nil && !errors.Is(gone, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// killInside kills every process in the named namespaces and returns when they
// have ended. It looks again until it finds none: they may have forked.
func killInside(ctx context.Context, list []string) error {
	within := map[[2]uint64]bool{}
	for _, name := range list {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(netnsFolder, name), &st) == nil {
			within[[2]uint64{st.Dev, st.Ino}] = true
		}
	}
	for {
		found, err := killOnce(ctx, within)
		if err != nil || found == 0 {
			return err
		}
	}
}

func killOnce(ctx context.Context, within map[[2]uint64]bool) (found int, err error) {
	members, err := membersOf(within)
	defer closeAll(members)
	if err != nil {
		return 0, err
	}
	var dying []unix.PollFd
	for _, m := range members {
		dying = append(dying, unix.PollFd{Fd: int32(m.fd), Events: unix.POLLIN})
		if err := unix.PidfdSendSignal(m.fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return 0, fmt.Errorf("netlab: cannot kill process %d: %w", m.pid, err)
		}
	}
	for i := range dying {
		for dying[i].Revents == 0 {
			deadline, _ := ctx.Deadline()
			left := time.Until(deadline)
			if left <= 0 || ctx.Err() != nil {
				return 0, fmt.Errorf("netlab: %d processes of a lab do not end", len(dying)-i)
			}
			_, err := unix.Poll(dying[i:i+1], int(min(left, time.Second).Milliseconds())+1)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return 0, fmt.Errorf("netlab: waiting for processes to end: %w", err)
			}
		}
	}
	return len(dying), nil
}

// member is a process in a namespace; its descriptor stays its own when the id is
// used again.
type member struct{ pid, fd int }

// membersOf returns the processes in some namespaces, without this one; the caller
// closes them, after an error too.
func membersOf(within map[[2]uint64]bool) (found []member, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("netlab: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+e.Name()+"/ns/net", &st) != nil || !within[[2]uint64{st.Dev, st.Ino}] {
			unix.Close(fd)
			continue
		}
		found = append(found, member{pid, fd})
	}
	return found, nil
}

func closeAll(members []member) {
	for _, m := range members {
		unix.Close(m.fd)
	}
}
