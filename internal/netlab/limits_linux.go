package netlab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	groupsFolder = "/sys/fs/cgroup"
	// cpuPeriod is how long a quota of processor time lasts: a host at half a core
	// stands still for at most 10 ms, where the kernel's default lets it for 50.
	cpuPeriod = 20 * time.Millisecond
	minCores  = 0.05 // the kernel's least quota is 1 ms
	maxCores  = 1024
	minMemory = 1 << 20 // no program starts in less
)

// SetCPU bounds the processor time of the host's processes, all together, to so
// many cores, from now on: a quota for every 20 ms, by a control group. 0 ends it.
func (h *Host) SetCPU(cores float64) error {
	if cores != 0 && !(cores >= minCores && cores <= maxCores) {
		return fmt.Errorf("netlab: %v cores for %s; want %v to %v, or 0 for no bound", cores, h.Name(), minCores, maxCores)
	}
	period, quota := cpuPeriod.Microseconds(), "-1"
	if cores > 0 {
		quota = strconv.FormatInt(int64(math.Round(cores*float64(period))), 10)
	}
	return h.limit("cpu", []setting{{"cpu.cfs_period_us", strconv.FormatInt(period, 10)}, {"cpu.cfs_quota_us", quota}},
		[]setting{{"cpu.max", fmt.Sprint(strings.Replace(quota, "-1", "max", 1), " ", period)}})
}

// SetMemory bounds the memory of the host's processes, all together, the page
// cache of the files they read included, by a control group; where nothing more
// can be given back the kernel kills one. What processes took before the host's
// first bound does not count: set it before they start. 0 ends it.
func (h *Host) SetMemory(bytes int64) error {
	if bytes != 0 && bytes < minMemory {
		return fmt.Errorf("netlab: %d bytes of memory for %s; want %d or more, or 0 for no bound", bytes, h.Name(), minMemory)
	}
	v1, v2 := "-1", "max"
	if bytes > 0 {
		v1 = strconv.FormatInt(bytes, 10)
		v2 = v1
	}
	return h.limit("memory", []setting{{"memory.swappiness", "0"}, {"memory.limit_in_bytes", v1}}, []setting{{"memory.max", v2}})
}

// Limits returns nil if SetCPU and SetMemory work on this machine, else why not
// and what to do about it.
func Limits() error {
	for _, controller := range []string{"cpu", "memory"} {
		if _, _, err := hierarchy(controller); err != nil {
			return err
		}
	}
	return nil
}

// setting is a file of a control group and what is written there.
type setting struct{ file, text string }

// limit applies settings to the host's control group, which it makes and brings
// the host's processes into.
func (h *Host) limit(controller string, v1, v2 []setting) error {
	h.lab.mu.Lock()
	defer h.lab.mu.Unlock()
	if h.lab.closed {
		return fmt.Errorf("netlab: host %s: the lab is closed", h.Name())
	}
	root, unified, err := hierarchy(controller)
	if err != nil {
		return err
	}
	settings := v1
	if unified {
		settings = v2
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	group := filepath.Join(root, h.Name())
	if !slices.Contains(h.groups, group) {
		if err := os.Mkdir(group, 0o755); err != nil {
			return fmt.Errorf("netlab: a control group for %s: %w; run as root", h.Name(), err)
		}
		h.groups = append(h.groups, group)
		if unified {
			_ = write(group, setting{"memory.swap.max", "0"}) // not every kernel has it
		}
	}
	for _, s := range settings {
		if err := write(group, s); err != nil {
			return err
		}
	}
	return h.gather()
}

// hierarchy returns where a controller's groups are made, and whether that is
// cgroup v2's one hierarchy.
func hierarchy(controller string) (root string, unified bool, err error) {
	root = filepath.Join(groupsFolder, controller)
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
		return root, false, nil
	}
	text, err := os.ReadFile(filepath.Join(groupsFolder, "cgroup.controllers"))
	if err != nil || !slices.Contains(strings.Fields(string(text)), controller) {
		return "", false, fmt.Errorf("netlab: there is no control group %s, nor a controller %s in %s; mount cgroups, and run as root", root, controller, groupsFolder)
	}
	if err := write(groupsFolder, setting{"cgroup.subtree_control", "+" + controller}); err != nil {
		return "", false, fmt.Errorf("%w; run as root in the machine's own control group (docker: --cgroupns host)", err)
	}
	return groupsFolder, true, nil
}

func write(group string, s setting) error {
	if err := os.WriteFile(filepath.Join(group, s.file), []byte(s.text), 0); err != nil {
		return fmt.Errorf("netlab: control group: %q: %w", s.text, err)
	}
	return nil
}

// gather brings every process of the host into its control groups. It looks again
// until it finds none outside: they may have forked. The caller holds h.mu.
func (h *Host) gather() error {
	var st unix.Stat_t
	if err := unix.Fstat(h.ns, &st); err != nil {
		return fmt.Errorf("netlab: namespace %s: %w", h.Name(), err)
	}
	within := map[[2]uint64]bool{{st.Dev, st.Ino}: true}
	for _, group := range h.groups {
		for {
			outside, err := gatherOnce(within, group)
			if err != nil {
				return err
			}
			if outside == 0 {
				break
			}
		}
	}
	return nil
}

func gatherOnce(within map[[2]uint64]bool, group string) (outside int, err error) {
	text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return 0, fmt.Errorf("netlab: %w", err)
	}
	have := strings.Fields(string(text))
	members, err := membersOf(within)
	defer closeAll(members)
	if err != nil {
		return 0, err
	}
	for _, m := range members {
		pid := strconv.Itoa(m.pid)
		if slices.Contains(have, pid) {
			continue
		}
		err := write(group, setting{"cgroup.procs", pid})
		if err == nil {
			outside++
		} else if !errors.Is(err, unix.ESRCH) { // it has ended
			return 0, err
		}
	}
	return outside, nil
}

// removeGroups removes the control groups of the named namespaces, in which no
// process lives any more. The last may still be on their way out.
func removeGroups(ctx context.Context, list []string) error {
	for _, name := range list {
		for _, root := range []string{groupsFolder + "/cpu", groupsFolder + "/memory", groupsFolder} {
			for {
				err := unix.Rmdir(filepath.Join(root, name))
				if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
					break
				}
				if !errors.Is(err, unix.EBUSY) || ctx.Err() != nil {
					return fmt.Errorf("netlab: cannot remove control group %s/%s: %w", root, name, err)
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	return nil
}
