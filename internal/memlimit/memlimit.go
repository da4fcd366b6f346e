// Package memlimit finds the limits on the memory that this process may use:
// those of its control groups, v1 and v2, and of the groups that they lie in,
// and the Go runtime's own, GOMEMLIMIT. Processors need no such package: the Go
// runtime heeds a group's quota by itself.
package memlimit

import (
	"cmp"
	"io/fs"
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
	for _, m := range mounts(root) {
		rel, ok := within(m.root, groups(root)[m.v2])
		if !ok {
			continue
		}
		file := "memory.limit_in_bytes"
		if m.v2 {
			file = "memory.max"
		}
		for ; ; rel = path.Dir(rel) { // a group is bound by those that it lies in, too
			name := path.Join(m.point, rel, file)
			if n, ok := number(root, name); ok {
				limits = append(limits, Limit{n, name})
			}
			if rel == "/" {
				break
			}
		}
	}
	limits = slices.DeleteFunc(limits, func(l Limit) bool { return l.Bytes >= none })
	slices.SortStableFunc(limits, func(a, b Limit) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return limits
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
// v1's memory controller (false).
func groups(root fs.FS) map[bool]string {
	all := map[bool]string{}
	for _, line := range read(root, "/proc/self/cgroup") { // number:controllers:group
		f := strings.SplitN(line, ":", 3)
		switch {
		case len(f) < 3:
		case f[0] == "0" && f[1] == "":
			all[true] = f[2]
		case slices.Contains(strings.Split(f[1], ","), "memory"):
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

// mounts returns where control groups that limit memory are mounted.
func mounts(root fs.FS) (all []mount) {
	for _, line := range read(root, "/proc/self/mountinfo") {
		// id parent device root point options [optional…] - type source options
		first, last, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(first), strings.Fields(last)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		m := mount{unescape(f[3]), unescape(f[4]), g[0] == "cgroup2"}
		if m.v2 || g[0] == "cgroup" && slices.Contains(strings.Split(g[2], ","), "memory") {
			all = append(all, m)
		}
	}
	return all
}

var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescape(s string) string { return escapes.Replace(s) }

// within returns where a group lies below the mounted one. In a container that
// sees no more than its own group the names do not fit together: it is the
// mounted one then.
func within(mounted, group string) (rel string, ok bool) {
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
