package memlimit

import (
	"math"
	"reflect"
	"testing"
	"testing/fstest"
)

// Fixtures are of what machines and containers show: the limits that hold are
// those of the group and of all that it lies in, as far as they can be seen.
func TestOf(t *testing.T) {
	const v1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	const v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	for name, x := range map[string]struct {
		goLimit int64
		files   map[string]string
		want    []Limit
	}{
		"nothing": {math.MaxInt64, nil, nil},
		"go":      {1 << 30, nil, []Limit{{1 << 30, "GOMEMLIMIT"}}},
		"v2, parents": {2 << 30, map[string]string{
			"proc/self/cgroup": "0::/user.slice/run/leaf\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/user.slice/memory.max":          "1073741824\n",
			"sys/fs/cgroup/user.slice/run/memory.max":      "max\n",
			"sys/fs/cgroup/user.slice/run/leaf/memory.max": "3221225472\n",
			"sys/fs/cgroup/other/memory.max":               "1\n",
		}, []Limit{{1 << 30, "/sys/fs/cgroup/user.slice/memory.max"}, {2 << 30, "GOMEMLIMIT"}, {3 << 30, "/sys/fs/cgroup/user.slice/run/leaf/memory.max"}}},
		"v2, container with a name space": {math.MaxInt64, map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/memory.max": "536870912\n",
		}, []Limit{{512 << 20, "/sys/fs/cgroup/memory.max"}}},
		"v2, a group outside of the name space": {math.MaxInt64, map[string]string{
			"proc/self/cgroup": "0::/../../x\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/memory.max": "536870912\n",
		}, []Limit{{512 << 20, "/sys/fs/cgroup/memory.max"}}},
		"v1": {math.MaxInt64, map[string]string{
			"proc/self/cgroup": "9:name=systemd:/x\n4:memory,hugetlb:/a/b\n0::/\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "100000000\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "200000000\n",
		}, []Limit{{100000000, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"}, {200000000, "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"}}},
		"v1, container without a name space": {math.MaxInt64, map[string]string{
			"proc/self/cgroup":                                "4:memory:/docker/abc/job\n",
			"proc/self/mountinfo":                             "35 31 0:32 /docker/abc /sys/fs/cgroup/me\\040mory ro - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/me mory/memory.limit_in_bytes":     "300000000\n",
			"sys/fs/cgroup/me mory/job/memory.limit_in_bytes": "200000000\n",
		}, []Limit{{200000000, "/sys/fs/cgroup/me mory/job/memory.limit_in_bytes"}, {300000000, "/sys/fs/cgroup/me mory/memory.limit_in_bytes"}}},
		"both, and rubbish": {math.MaxInt64, map[string]string{
			"proc/self/cgroup": "4:memory:/a\n0::/b\nx\n:::\n", "proc/self/mountinfo": v1 + "x - y\n\n - cgroup2\n" + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "400\n",
			"sys/fs/cgroup/unified/b/memory.max":           "-3\n",
			"sys/fs/cgroup/unified/memory.max":             "18446744073709551615\n",
		}, []Limit{{400, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"}}},
	} {
		root := fstest.MapFS{}
		for file, text := range x.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := Of(root, x.goLimit); len(got) != len(x.want) || len(got) > 0 && !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}

// The least quota of the group and of all that it lies in holds.
func TestCores(t *testing.T) {
	const v1 = "36 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
	const v2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for name, x := range map[string]struct {
		files map[string]string
		want  float64
	}{
		"nothing": {nil, math.Inf(1)},
		"v2": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/cpu.max": "50000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/c/cpu.max": "1 100000\n"}, 0.5},
		"v1": {map[string]string{"proc/self/cgroup": "4:memory:/x\n1:cpuacct,cpu:/a/b\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "300000\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "2500\n", "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "20000\n"}, 0.125},
		"rubbish": {map[string]string{"proc/self/cgroup": "0::/a\n1:cpu:/a\n", "proc/self/mountinfo": v1 + v2,
			"sys/fs/cgroup/cpu.max": "1\n", "sys/fs/cgroup/a/cpu.max": "5 0\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "x\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "7\n"}, math.Inf(1)},
	} {
		root := fstest.MapFS{}
		for file, text := range x.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := cores(root); got != x.want {
			t.Errorf("%s: %v cores, want %v", name, got, x.want)
		}
	}
}

// Whatever proc says, the limits are found and bound something.
func FuzzOf(f *testing.F) {
	f.Add("0::/a/b\n4:memory:/c", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n35 31 0:32 / /m rw - cgroup c memory", "12")
	f.Add("0::/../x", "1 2 3 /.. /a rw - cgroup2 x x", "max")
	f.Add("0::/a\n1:cpu:/", "35 31 0:32 / /m rw - cgroup c cpu\n30 23 0:26 / /sys/fs/cgroup rw - cgroup2 c rw", "1 2")
	f.Add("0::x", "1 2 3 a b rw - cgroup2 x x", "1")
	f.Fuzz(func(t *testing.T, cgroup, mountinfo, limit string) {
		file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
		if c := cores(fstest.MapFS{
			"proc/self/cgroup": file(cgroup), "proc/self/mountinfo": file(mountinfo),
			"sys/fs/cgroup/cpu.max": file(limit), "m/cpu.cfs_quota_us": file(limit), "m/cpu.cfs_period_us": file(limit),
		}); !(c > 0) {
			t.Fatalf("%v cores", c)
		}
		for _, l := range Of(fstest.MapFS{
			"proc/self/cgroup": file(cgroup), "proc/self/mountinfo": file(mountinfo),
			"sys/fs/cgroup/memory.max": file(limit), "sys/fs/cgroup/a/memory.max": file(limit), "m/memory.limit_in_bytes": file(limit),
		}, math.MaxInt64) {
			if l.Bytes < 0 || l.Bytes >= none || l.From == "" {
				t.Fatalf("%+v", l)
			}
		}
	})
}

func TestMachine(t *testing.T) {
	info := fstest.MapFS{"proc/meminfo": {Data: []byte("MemFree:  1 kB\nMemTotal:       24605436 kB\n")}}
	if l, ok := machine(info); !ok || l.Bytes != 24605436<<10 {
		t.Errorf("%+v, %v", l, ok)
	}
	if l, ok := machine(fstest.MapFS{}); ok {
		t.Errorf("without proc: %+v", l)
	}
}
