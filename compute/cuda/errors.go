//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"unsafe"
)

// Error is what a call of the driver's answered.
type Error struct {
	Call   string // the function of the driver
	What   string // what it was called for; may be empty
	Device int    // its number; below 0: none
	Code   int    // CUresult
	Name   string // of the code, such as CUDA_ERROR_OUT_OF_MEMORY
	Words  string // the driver's
}

// Failure tells graph.Guard that a panic with e is an error.
func (e *Error) Failure() {}

func (e *Error) Error() string {
	at := ""
	if e.Device >= 0 {
		at = fmt.Sprintf("cuda:%d: ", e.Device)
	}
	what := e.What
	if what != "" {
		what += ": "
	}
	return fmt.Sprintf("cuda: %s%s%s (%s: %s, %d)%s", at, what, e.Words, e.Call, e.Name, e.Code, e.remedy())
}

// The codes that a remedy is known for.
const (
	outOfMemory    = 2
	noDevice       = 100
	invalidPTX     = 218
	unsupportedPTX = 222
	notSupported   = 801
	systemNotReady = 802
	driverMismatch = 803
)

// lost reports whether a context is of no use after a code: an uncorrectable error of its
// memory, an illegal address, a launch that took too long, an assertion, a hardware
// stack, an illegal instruction, a misaligned address, an address space, a program
// counter, or an unspecified failure.
func lost(code int) bool {
	switch code {
	case 214, 700, 702, 710, 714, 715, 716, 717, 718, 719:
		return true
	}
	return false
}

func (e *Error) remedy() string {
	switch e.Code {
	case outOfMemory:
		return "; take smaller batches or a smaller model, or end what else uses the device"
	case noDevice:
		return "; there is no device that this driver knows, or CUDA_VISIBLE_DEVICES hides it: use --device cpu"
	case invalidPTX, unsupportedPTX:
		return fmt.Sprintf("; devices need compute capability %d.%d and a driver for CUDA %d.%d at least", leastCapability/10, leastCapability%10, leastVersion/1000, leastVersion%1000/10)
	case driverMismatch, systemNotReady:
		return "; the driver's library and its kernel module do not fit each other: load the module anew, or restart"
	}
	if lost(e.Code) {
		return "; the device's context is lost: start again from the last checkpoint"
	}
	return ""
}

// failure describes the code that a call answered.
func (d *driver) failure(e entry, what string, device, code int) *Error {
	said := func(e entry) string {
		var s *byte
		if d.raw(e, uintptr(code), uintptr(unsafe.Pointer(&s))) != 0 || s == nil {
			return "unknown error"
		}
		return text(unsafe.Pointer(s))
	}
	return &Error{Call: names[e], What: what, Device: device, Code: code, Name: said(cuGetErrorName), Words: said(cuGetErrorString)}
}

// text is the string that C has at s.
func text(s unsafe.Pointer) string {
	n := 0
	for *(*byte)(unsafe.Add(s, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(s), n))
}
