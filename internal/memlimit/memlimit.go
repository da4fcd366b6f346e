// Package memlimit finds the limits on the memory that this process may use:
// those of its control groups, v1 and v2, and of the groups that they lie in,
// and the Go runtime's own, GOMEMLIMIT; and those groups' quota of processor time, which
// GOMAXPROCS rounds up.
package memlimit

import (
	"cmp"
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Limit is a bound on the memory of this process.
type Limit struct {
	Bytes int64
	From  string // what says so: a file, or GOMEMLIMIT
}

// none is where control groups and the Go runtime mean no limit at all.
const none = 1 << 60

// Here returns the limits on this process, the smallest first.
func Here() []Limit { return Of(os.DirFS("/"), debug.SetMemoryLimit(-1)) }

// Of returns the limits that a file system with proc and sys tells of, and the Go
// runtime's, the smallest first. What cannot be read limits nothing.
func Of(root fs.FS, goLimit int64) []Limit {
	limits := []Limit{{goLimit, "GOMEMLIMIT"}}
	for group, v2 := range within(root, "memory") {
		file := "memory.limit_in_bytes"
		if v2 {
			file = "memory.max"
		}
		name := path.Join(group, file)
		if n, ok := number(root, name); ok {
			limits = append(limits, Limit{n, name})
		}
	}
	limits = slices.DeleteFunc(limits, func(l Limit) bool { return l.Bytes >= none })
	slices.SortStableFunc(limits, func(a, b Limit) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return limits
}

// Cores returns how many processors' time the control groups of this process let it have, a part of one included;
// +Inf: as much as there is.
func Cores() float64 { return cores(os.DirFS("/")) }

func cores(root fs.FS) float64 {
	least := math.Inf(1)
	for group, v2 := range within(root, "cpu") {
		var quota, period []string // microseconds
		if v2 {
			quota = strings.Fields(strings.Join(read(root, path.Join(group, "cpu.max")), " "))
			quota, period = quota[:min(1, len(quota))], quota[min(1, len(quota)):]
		} else {
			quota, period = read(root, path.Join(group, "cpu.cfs_quota_us")), read(root, path.Join(group, "cpu.cfs_period_us"))
		}
		if len(quota) != 1 || len(period) != 1 {
			continue
		}
		q, err := strconv.ParseUint(quota[0], 10, 32) // "max" and -1 are none
		p, bad := strconv.ParseUint(period[0], 10, 32)
		if err == nil && bad == nil && q > 0 && p > 0 {
			least = min(least, float64(q)/float64(p))
		}
	}
	return least
}

// Machine returns the memory of the machine; false: it cannot be told.
func Machine() (Limit, bool) { return machine(os.DirFS("/")) }

func machine(root fs.FS) (Limit, bool) {
	for _, line := range read(root, "/proc/meminfo") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return Limit{n << 10, "the machine's memory"}, err == nil
		}
	}
	return Limit{}, false
}

// read returns a file's lines.
func read(root fs.FS, name string) []string {
	b, err := fs.ReadFile(root, strings.TrimPrefix(name, "/"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// number reads a file of one number; "max" is none.
func number(root fs.FS, name string) (int64, bool) {
	lines := read(root, name)
	if len(lines) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(lines[0]), 10, 64)
	return int64(min(n, math.MaxInt64)), err == nil
}

// groups returns the process's group in the v2 hierarchy (true) and in that of
// a controller of v1 (false).
func groups(root fs.FS, controller string) map[bool]string {
	all := map[bool]string{}
	for _, line := range read(root, "/proc/self/cgroup") { // number:controllers:group
		f := strings.SplitN(line, ":", 3)
		switch {
		case len(f) < 3:
		case f[0] == "0" && f[1] == "":
			all[true] = f[2]
		case slices.Contains(strings.Split(f[1], ","), controller):
			all[false] = f[2]
		}
	}
	return all
}

type mount struct {
	root  string // the group that is mounted
	point string // where
	v2    bool
}

// mounts returns where control groups of a controller are mounted.
func mounts(root fs.FS, controller string) (all []mount) {
	for _, line := range read(root, "/proc/self/mountinfo") {
		// id parent device root point options [optional…] - type source options
		first, last, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(first), strings.Fields(last)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		m := mount{unescape(f[3]), unescape(f[4]), g[0] == "cgroup2"}
		if m.v2 || g[0] == "cgroup" && slices.Contains(strings.Split(g[2], ","), controller) {
			all = append(all, m)
		}
	}
	return all
}

var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescape(s string) string { return escapes.Replace(s) }

// within returns the folders of the process's groups, and of those that they lie in, by which they are bound, too.
func within(root fs.FS, controller string) iter.Seq2[string, bool] {
	return func(yield func(folder string, v2 bool) bool) {
		in := groups(root, controller)
		for _, m := range mounts(root, controller) {
			rel, ok := below(m.root, in[m.v2])
			for ; ok; rel = path.Dir(rel) {
				if !yield(path.Join(m.point, rel), m.v2) {
					return
				}
				ok = rel != "/"
			}
		}
	}
}

// below returns where a group lies below the mounted one. In a container that
// sees no more than its own group the names do not fit together: it is the
// mounted one then.
func below(mounted, group string) (rel string, ok bool) {
	switch {
	case group == "":
		return "", false
	case mounted == "/" && !strings.HasPrefix(group, "/.."):
		return path.Clean("/" + group), true
	case strings.HasPrefix(group, mounted+"/"):
		return path.Clean(group[len(mounted):]), true
	}
	return "/", true
}
