// Package devices knows what else than the processor can run kernels. Packages that
// drive a kind of device, such as compute/cuda, register it when they are linked: a
// program that imports none of them computes on the processor alone.
package devices

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
)

// Device is a device that runs kernels. Its methods may be called by any goroutines.
type Device interface {
	// Sampler returns a sampler of a graph, whose rows it copies to the device. A graph of which
	// that would take more than a quarter of the device's memory is an error that wraps ErrRoom.
	Sampler(g *graph.Graph, s Sampling) (Sampler, error)
	// Kernels names the kernel set, with the device's kind: runs with the same name and
	// settings have the same bits.
	Kernels() string
	// UseBLAS has dense products made by OwnBLAS, as at first, or CuBLAS, which Kernels then names with
	// its version, of factors that are rounded to p, and returns how much memory each queue needs for
	// that. CuBLAS has no cpu.BFloat16. It is called before there is a queue.
	UseBLAS(name string, p cpu.Precision) (workspace int64, err error)
	// Describe is a line about the device for people.
	Describe() string
	// Queue returns a queue of kernels for one goroutine at a time.
	Queue() Queue
	// Rows returns a table in the device's memory for rows of a store, which stays its
	// owner's.
	Rows(from features.Store, o RowsOptions) (Rows, error)
	// Bytes is how much memory the device has.
	Bytes() int64
	// Moved returns how many bytes were copied to the device, and back.
	Moved() (toDevice, toHost int64)
	// Peak returns the most bytes of it that were taken at one time.
	Peak() int64
	// Close gives the device back, after all queues are closed.
	Close() error
}

// Rows is a table in a device's memory that rows of a store are brought to. As a store it
// reads them from there into slots of Table alone, which kernels read and the host does not.
// What is read for a batch goes over while others are computed. Close, when no kernel
// reads the table any more, gives the memory back and leaves the store open.
type Rows interface {
	features.Store
	Table() *graph.Features
	// Moved returns how many bytes of rows went to the device, and how many of them it read
	// from the host's memory itself.
	Moved() (all, mapped int64)
	// Way says how rows go over, and why.
	Way() string
}

// Gather is who gathers rows that lie in the host's memory.
type Gather int

const (
	Measured Gather = iota // who is faster at some rows of the table
	ByHost                 // the host, which reads them from the store to pinned memory
	ByDevice               // the device, which reads them where they lie
)

// RowsOptions says what a table of rows is like.
type RowsOptions struct {
	Rows   int // of the table
	Pinned int // bytes of the host's memory that are pinned to copy through: DefaultPinned, say
	// Host, unless nil, is the store's table where it lies in the host's memory: it may be registered
	// with the driver, all of it pinned, so that the device can gather rows from there. Where that
	// fails the host does. The table stays where it is until Close.
	Host   *graph.Features
	Gather Gather // of Host's rows
	// Copied, unless nil, is told of each copy once it is over, in Close at the latest: its rows,
	// and when the device began and ended it. It is called by several goroutines.
	Copied func(rows int, begin, end time.Time)
}

// DefaultPinned is how many bytes of pinned memory rows go through.
const DefaultPinned = 8 << 20

// What may make a device's dense products.
const (
	OwnBLAS = "own"
	CuBLAS  = "cublas"
)

// Queue runs kernels one after the other, in memory of its own on the device.
type Queue interface {
	cpu.Device[float32]
	// Close waits for what runs and gives the memory back.
	Close() error
}

// The names that Parse knows besides those of kinds.
const (
	CPU  = "cpu"  // the processor
	Auto = "auto" // a device if there is one, else the processor
)

var (
	mu    sync.Mutex
	kinds = map[string]func(number int) (Device, error){}
)

// Register tells how to open device number of a kind. It is called by init functions.
func Register(kind string, open func(number int) (Device, error)) {
	mu.Lock()
	kinds[kind] = open
	mu.Unlock()
}

// Choice is what a name says: what Parse makes of it.
type Choice struct {
	every bool // device of the kind; else those of all
	all   []one
}

type one struct {
	kind   string // "" and CPU: the processor
	number int
}

// Parse reads a name: cpu (also if empty), auto, a kind of device, kind:number, kind:all, or several kind:number
// with commas between them, each once. Kinds that are not linked are known too, so that Open says what
// is missing.
func Parse(name string) (c Choice, err error) {
	names := strings.Split(name, ",")
	for _, n := range names {
		o, err := parse(n)
		switch {
		case err != nil:
			return Choice{}, err
		case len(names) > 1 && (o.kind == "" || o.kind == CPU || o.kind == Auto || n == all):
			return Choice{}, fmt.Errorf("%q names several; each must be a cuda:N", name)
		case slices.Contains(c.all, o):
			return Choice{}, fmt.Errorf("%q names %s twice", name, n)
		}
		c.all = append(c.all, o)
	}
	c.every = name == all
	return c, nil
}

// all names every device of a kind.
const all = "cuda:all"

func parse(name string) (o one, err error) {
	switch name {
	case "", CPU, Auto:
		return one{kind: name}, nil
	case all:
		return one{kind: "cuda"}, nil
	}
	kind, digits, numbered := strings.Cut(name, ":")
	if numbered {
		o.number, err = strconv.Atoi(digits)
	}
	if o.kind = kind; kind != "cuda" || err != nil || o.number < 0 {
		return o, fmt.Errorf("%q is not one of cpu, cuda, cuda:N with N from 0, several of those like cuda:0,cuda:1, cuda:all, auto", name)
	}
	return o, nil
}

// ErrNumber is wrapped by a kind that has fewer devices than the number says.
var ErrNumber = errors.New("no such device")

// ErrNone is wrapped where a device was asked for and there is none.
var ErrNone = errors.New("no device")

// Open opens the devices of the choice, in its order; none is the processor. With auto there is no error
// but the processor where there is no device, and why says why. The caller must Close them.
func (c Choice) Open() (opened []Device, why, err error) {
	for i := 0; c.every || i < len(c.all); i++ {
		o := one{kind: "cuda", number: i}
		if !c.every {
			o = c.all[i]
		}
		var d Device
		if d, why, err = o.open(); err != nil {
			if c.every && errors.Is(err, ErrNumber) {
				return opened, nil, nil
			}
			for _, o := range opened {
				err = errors.Join(err, o.Close())
			}
			return nil, nil, err
		}
		if d != nil {
			opened = append(opened, d)
		}
	}
	return opened, why, nil
}

// Open opens the one device called name; nil is the processor. See Parse and Choice.Open.
func Open(name string) (d Device, why, err error) {
	o, err := parse(name)
	if err != nil {
		return nil, nil, err
	}
	return o.open()
}

func (o one) open() (d Device, why, err error) {
	if o.kind == "" || o.kind == CPU {
		return nil, nil, nil
	}
	mu.Lock()
	linked := maps.Clone(kinds)
	mu.Unlock()
	if o.kind != Auto {
		open := linked[o.kind]
		if open == nil {
			return nil, nil, fmt.Errorf("%w: this program was built without %s: build it without -tags nogpu, on Linux, or use --device cpu", ErrNone, o.kind)
		}
		if d, err = open(o.number); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrNone, err)
		}
		return d, nil, nil
	}
	why = fmt.Errorf("this program was built without kinds of devices")
	for _, k := range slices.Sorted(maps.Keys(linked)) {
		if d, why = linked[k](0); why == nil {
			return d, nil, nil
		}
	}
	return nil, why, nil
}
