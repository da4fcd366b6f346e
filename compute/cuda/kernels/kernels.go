// Package kernels holds the kernels of compute/cuda: CUDA C++ in .cu files, and beside
// each the PTX that clang makes of it, which the driver translates for the device that
// is there. One PTX for compute capability 8.0 serves all devices since.
//
// device.h says what kernels are written in. The same files compile as C++ over
// emulator.h: package compute/cuda/fakecuda makes a libcuda.so.1 of them for tests where
// there is no device.
package kernels

import (
	"bytes"
	"embed"
	"io/fs"
	"strings"
)

// Names returns the modules' names, those of their sources without ".cu", in order.
func Names() []string {
	names, _ := fs.Glob(ptx, "*.ptx")
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, ".ptx")
	}
	return names
}

// PTX returns the module of that name; the caller owns it.
func PTX(name string) ([]byte, error) { return ptx.ReadFile(name + ".ptx") }

// Entries returns the names of a module's kernels.
func Entries(ptx []byte) (names []string) {
	for _, text := range bytes.Split(ptx, []byte("\n.visible .entry "))[1:] {
		name, _, _ := bytes.Cut(text, []byte("("))
		names = append(names, string(name))
	}
	return names
}

//go:embed *.ptx
var ptx embed.FS

// Sources are the .cu files, their headers, and the driver for tests in fake.
//
//go:embed *.cu *.h fake
var Sources embed.FS
