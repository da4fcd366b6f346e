package features

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gnnactor/gnnactor/graph"
)

// Kind is where a store keeps its rows.
type Kind string

// The kinds.
const (
	RAM    Kind = "ram"  // in memory of this process
	Mapped Kind = "mmap" // in a mapped file: memory as far as the system has some to spare
	Disk   Kind = "disk" // in a file, from which only the rows that are asked for are read
)

// Spec says where a store keeps its rows and how they are slowed down.
type Spec struct {
	Kind     Kind     // empty: Mapped if the features lie in a file, else RAM
	Throttle Throttle // zero: not at all
}

// Throttle stands in for a slow disk, a remote machine or a bus: a link on which
// one transfer follows another at Bandwidth, each arriving Latency after it was
// sent.
type Throttle struct {
	Bandwidth float64 // bytes per second; 0: no bound
	Latency   time.Duration
}

const specForms = "ram, mmap, disk, or throttled:BANDWIDTH[,LATENCY][,ram|mmap|disk] such as throttled:1GB/s,2ms"

// ParseSpec reads "ram", "mmap", "disk" or "throttled:1GB/s,2ms,disk", the
// latency and the kind being optional. Empty is the zero Spec.
func ParseSpec(text string) (Spec, error) {
	name, rest, throttled := strings.Cut(text, ":")
	if !throttled {
		switch k := Kind(name); k {
		case "", RAM, Mapped, Disk:
			return Spec{Kind: k}, nil
		}
	}
	if name != "throttled" {
		return Spec{}, fmt.Errorf("features %q: want %s", text, specForms)
	}
	var s Spec
	for i, part := range strings.Split(rest, ",") {
		switch k := Kind(part); {
		case i == 0:
			rate, ok := strings.CutSuffix(part, "/s")
			b, err := ParseBytes(rate)
			if !ok || err != nil || b < 1 {
				return Spec{}, fmt.Errorf("features %q: the bandwidth %q is not a positive size per second such as 1GB/s or 200MiB/s", text, part)
			}
			s.Throttle.Bandwidth = b
		case i <= 2 && s.Kind == "" && (k == RAM || k == Mapped || k == Disk):
			s.Kind = k
		case i == 1:
			d, err := time.ParseDuration(part)
			if err != nil || d < 0 {
				return Spec{}, fmt.Errorf("features %q: %q is neither a latency such as 2ms nor one of ram, mmap and disk", text, part)
			}
			s.Throttle.Latency = d
		default:
			return Spec{}, fmt.Errorf("features %q: %q is too much; want %s", text, part, specForms)
		}
	}
	return s, nil
}

// String returns what ParseSpec reads.
func (s Spec) String() string {
	if s.Throttle == (Throttle{}) {
		return string(s.Kind)
	}
	parts := []string{formatBytes(s.Throttle.Bandwidth) + "/s"}
	if s.Throttle.Latency > 0 {
		parts = append(parts, s.Throttle.Latency.String())
	}
	if s.Kind != "" {
		parts = append(parts, string(s.Kind))
	}
	return "throttled:" + strings.Join(parts, ",")
}

// byteUnits from the largest to the smallest; the binary one goes first where
// a number is whole in both.
var byteUnits = []struct {
	name string
	size float64
}{{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1}}

// ParseBytes reads "256MiB", "1.5GB" or "4096".
func ParseBytes(text string) (float64, error) {
	number, unit := text, 1.0
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = n, u.size
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*unit > 1<<62 {
		return 0, fmt.Errorf("%q is not a size such as 256MiB or 1GB", text)
	}
	return v * unit, nil
}

func formatBytes(b float64) string {
	for _, u := range byteUnits {
		if q := b / u.size; q >= 1 && q == math.Trunc(q) {
			return strconv.FormatFloat(q, 'f', -1, 64) + u.name
		}
	}
	return strconv.FormatFloat(b, 'g', -1, 64) + "B"
}

// File is where a table lies on disk: row i is at Offset + i·Stride of Path.
// The zero File is nowhere.
type File struct {
	Path   string
	Offset int64
}

// Options says how a store works. The zero value is the default.
type Options struct {
	// Readers is how many calls to read a disk may be under way where there is
	// no io_uring; 0: 32.
	Readers int

	noRings bool // tests and benchmarks of the readers
}

// Open returns the store that spec describes for the rows of f, which lie in
// file if that is not zero. f and what it lies in must stay as they are until
// the store is closed; the RAM store has a copy of its own of what lies in a
// file, and when ctx ends before it is made, the error wraps the context's cause.
func Open(ctx context.Context, spec Spec, f *graph.Features, file File, o Options) (Store, error) {
	if f == nil {
		return nil, errors.New("features: the data has no node features")
	}
	kind := spec.Kind
	if kind == "" {
		kind = RAM
		if file.Path != "" {
			kind = Mapped
		}
	}
	var s Store
	var err error
	switch {
	case kind == RAM && file.Path != "":
		s, err = load(ctx, f)
	case kind == RAM:
		s = InMemory(f)
	case kind != Mapped && kind != Disk:
		return nil, fmt.Errorf("features %q: want %s", spec.Kind, specForms)
	case file.Path == "":
		return nil, fmt.Errorf("features %s: the features are not in a file: they are the caller's, built in, or normalised in memory; choose ram, or make a store by `gnnactor import`", kind)
	case kind == Mapped:
		s = InMemory(f)
	default:
		s, err = openDisk(f, file, o)
	}
	if err != nil {
		return nil, err
	}
	if spec.Throttle != (Throttle{}) {
		s = Throttled(s, spec.Throttle)
	}
	return s, nil
}
