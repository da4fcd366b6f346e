//go:build linux && (amd64 || arm64) && !nogpu

// Package fakecuda gives tests devices where there are none: it makes a libcuda.so.1 of
// compute/cuda's kernels and their emulator, which counts what is not given back, and
// fails where a test wants it to.
package fakecuda

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/klauspost/cpuid/v2"

	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/kernels"
)

// Driver is the emulated driver of this process.
type Driver struct {
	t                               testing.TB
	fail, set, count, record, watch uintptr
}

// RealVariable is the environment variable with which tests run on the devices that are
// there: those that ask something of the emulated driver are skipped.
const RealVariable = "GNNACTOR_REAL_CUDA"

// Real reports whether tests run on real devices.
func Real() bool { return os.Getenv(RealVariable) != "" }

// Use has the test's calls of the driver go to the emulated one, as it is at first, with
// one device. When the test ends everything must have been given back. Without a C++
// compiler the test is skipped.
func Use(t testing.TB) *Driver {
	t.Helper()
	if Real() {
		return &Driver{t: t}
	}
	path := Build(t)
	t.Setenv(cuda.LibraryVariable, path)
	t.Setenv(cuda.BLASVariable, path)
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{t: t}
	for name, f := range map[string]*uintptr{"fake_fail": &d.fail, "fake_set": &d.set, "fake_count": &d.count, "fake_record": &d.record, "fake_watch": &d.watch} {
		if *f, err = purego.Dlsym(handle, name); err != nil {
			t.Fatal(err)
		}
	}
	d.Set("reset", 0)
	t.Cleanup(func() {
		for _, what := range []string{"contexts", "allocations", "pinned", "streams", "events", "modules", "handles"} {
			if n := d.Count(what); n != 0 {
				t.Errorf("%d %s were not given back", n, what)
			}
		}
	})
	return d
}

// Queue is Use, and a queue of the device.
func Queue(t testing.TB) *cuda.Queue {
	t.Helper()
	Use(t)
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	q := d.NewQueue()
	t.Cleanup(func() {
		if err := errors.Join(q.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return q
}

// Set sets the number of devices, the version of the driver (1000·major + 10·minor), the
// compute capability (10·major + minor) or the memory of each device in bytes.
func (d *Driver) Set(what string, value int) { d.ask(d.set, what, uintptr(value), 0) }

// Record has launches recorded in a file, for fake/replay.cc; "" ends that.
func (d *Driver) Record(path string) {
	if d.record == 0 {
		d.t.Skip("only the emulated driver does that")
	}
	var text *byte
	if path != "" {
		text = &append([]byte(path), 0)[0]
	}
	purego.SyscallN(d.record, uintptr(unsafe.Pointer(text)))
}

// Work is a kernel, by its name, or a copy "to device" or "to host", and the stream that it is queued on.
type Work struct {
	What   string
	Stream uintptr
	Data   []byte // that goes to the device, while the watcher is called
}

// watcher is what Watch was given; the driver calls one function for all.
var watcher struct {
	sync.Mutex
	f        func(Work)
	callback uintptr
}

// Watch has f called before each kernel and copy is done, until the next Use. While it waits so does the stream,
// and whoever waits for that; other streams go on.
func (d *Driver) Watch(f func(Work)) {
	if d.watch == 0 {
		d.t.Skip("only the emulated driver does that")
	}
	watcher.Lock()
	defer watcher.Unlock()
	watcher.f = f
	if watcher.callback == 0 { // of which a process may have few
		watcher.callback = purego.NewCallback(func(what *byte, stream uintptr, from *byte, bytes uintptr) uintptr {
			watcher.Lock()
			f := watcher.f
			watcher.Unlock()
			n := 0
			for *(*byte)(unsafe.Add(unsafe.Pointer(what), n)) != 0 {
				n++
			}
			w := Work{What: string(unsafe.Slice(what, n)), Stream: stream}
			if w.What == "to device" {
				w.Data = unsafe.Slice(from, bytes)
			}
			f(w)
			return 0
		})
	}
	purego.SyscallN(d.watch, watcher.callback)
}

// Forget has the driver forget what is held, as at the end of a process: after a call
// that gives back has failed.
func (d *Driver) Forget() { d.Set("forget", 0) }

// Fail lets the call of function after as many others return a code.
func (d *Driver) Fail(function string, after, code int) {
	d.ask(d.fail, function, uintptr(after), uintptr(code))
}

// Count returns how many of contexts, allocations, bytes, pinned, streams, events or
// modules there are, how many there were of "bytes at most" and of the host's "pinned at most", how many went "to device" and
// "to host", or how often a function was called.
func (d *Driver) Count(what string) int { return d.ask(d.count, what, 0, 0) }

func (d *Driver) ask(f uintptr, name string, a, b uintptr) int {
	if f == 0 {
		d.t.Skip("only the emulated driver does that")
	}
	text := append([]byte(name), 0)
	r, _, _ := purego.SyscallN(f, uintptr(unsafe.Pointer(&text[0])), a, b)
	return int(r)
}

var build sync.Mutex

// Variable is the environment variable that names another library than that of the
// kernels' sources.
const Variable = "GNNACTOR_FAKE_LIBCUDA"

// A library may have mutants of kernels beside them: a source called F + MutantOf + N + ".cu" has
// those of F.cu as mutant number N, which take their place where MutantVariable is N.
const (
	MutantOf       = "_mutant"
	MutantVariable = "GNNACTOR_FAKE_MUTANT"
)

// Flags are those that the library is compiled with.
func Flags() []string { return []string{"-O2", "-fPIC", "-shared", "-fvisibility=hidden"} }

// Build makes the library, unless it was made of the same sources before, and returns
// its path.
func Build(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(Variable); path != "" {
		return path
	}
	built.Lock()
	defer built.Unlock()
	if built.path == "" {
		built.path = Compile(t, kernels.Sources, "fake/driver.cc", Flags()...)
	}
	return built.path
}

// built is where Build left the library in this process.
var built struct {
	sync.Mutex
	path string
}

// Compile compiles a C++ file of sources with all kernels and returns the path of the
// result, which is kept for later tests in the user's cache.
func Compile(t testing.TB, sources fs.FS, file string, flags ...string) string {
	t.Helper()
	build.Lock()
	defer build.Unlock()
	if runtime.GOARCH != "amd64" {
		t.Skip("the emulator switches fibers on amd64 only")
	}
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("there is no g++, of which the emulated device is made: install Debian's package g++")
	}
	version, err := exec.Command(compiler, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags = append([]string{"-std=gnu++17", "-march=native", "-ffp-contract=off", "-g1", "-Wall", "-Wno-unknown-pragmas", "-pthread"}, flags...)
	sum := sha256.New()
	fmt.Fprintln(sum, cpuid.CPU.BrandName, string(version), file, flags)
	dir := t.TempDir()
	var headers, all strings.Builder
	err = fs.WalkDir(sources, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(sources, path)
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, path, len(text))
		sum.Write(text)
		switch filepath.Ext(path) {
		case ".h":
			fmt.Fprintf(&headers, "#include %q\n", path)
		case ".cu": // in a namespace, as each is a module on a device
			name := strings.TrimSuffix(path, ".cu")
			mutant := "0"
			if _, number, ok := strings.Cut(name, MutantOf); ok {
				mutant = number
			}
			fmt.Fprintf(&all, "#undef MUTANT\n#undef MODULE\n#define MUTANT %s\n#define MODULE %s\nnamespace %[2]s_cu {\n#include %[3]q\n}\n", mutant, name, path)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "gnnactor-test")
	made := filepath.Join(cache, fmt.Sprintf("%s-%x", strings.TrimSuffix(filepath.Base(file), ".cc"), sum.Sum(nil)[:12]))
	if _, err := os.Stat(made); err == nil {
		return made
	}
	if err := os.WriteFile(filepath.Join(dir, "all_kernels.h"), []byte(headers.String()+all.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(dir, "result")
	cmd := exec.Command(compiler, append(flags, "-I"+dir, `-DFAKE_KERNELS="all_kernels.h"`, filepath.Join(dir, file), "-o", result)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	if err := keep(result, made); err != nil {
		t.Fatal(err)
	}
	// What was made a week ago is of other sources, or is made again.
	old, _ := os.ReadDir(cache)
	for _, e := range old {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 7*24*time.Hour {
			os.Remove(filepath.Join(cache, e.Name()))
		}
	}
	return made
}

// keep copies a file to where others find it, at once and whole.
func keep(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), "making-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Chmod(0o755); err == nil {
		err = e
	}
	if e := out.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		os.Remove(out.Name())
	}
	return err
}
