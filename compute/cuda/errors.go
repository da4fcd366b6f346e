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
	outOfMemory     = 2
	noDevice        = 100
	invalidPTX      = 218
	unsupportedPTX  = 222
	driverMismatch  = 803
	systemNotReady  = 802
	ecc             = 214
	illegalAddress  = 700
	launchTimeout   = 702
	launchFailed    = 719
	illegalInstruct = 715
)

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
	case ecc, illegalAddress, launchTimeout, launchFailed, illegalInstruct:
		return "; the device's context is lost: start again from the last checkpoint"
	}
	return ""
}

// failure describes the code that a call answered.
func (d *driver) failure(e entry, what string, device, code int) *Error {
	text := func(e entry) string {
		var s *byte
		if d.raw(e, uintptr(code), uintptr(unsafe.Pointer(&s))) != 0 || s == nil {
			return "unknown error"
		}
		n := 0
		for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
			n++
		}
		return string(unsafe.Slice(s, n))
	}
	return &Error{Call: names[e], What: what, Device: device, Code: code, Name: text(cuGetErrorName), Words: text(cuGetErrorString)}
}
