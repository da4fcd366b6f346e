//go:build !linux

package netlab

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Available returns why no lab can be made here.
func Available() error { return ErrUnsupported }

// Limits returns why no host can be bounded here.
func Limits() error { return ErrUnsupported }

// A Lab is a switch with hosts on it; there is none on this system.
type Lab struct{}

// New returns ErrUnsupported.
func New(context.Context, int) (*Lab, error) { return nil, ErrUnsupported }

func (l *Lab) Host(int) *Host { return nil }
func (l *Lab) Hosts() []*Host { return nil }
func (l *Lab) Close() error   { return ErrUnsupported }

// A Host is one machine of a lab; there is none on this system.
type Host struct{}

func (h *Host) Name() string                    { return "" }
func (h *Host) Addr() netip.Addr                { return netip.Addr{} }
func (h *Host) Do(func() error) error           { return ErrUnsupported }
func (h *Host) Listening() ([]Port, error)      { return nil, ErrUnsupported }
func (h *Host) Traffic() (Traffic, error)       { return Traffic{}, ErrUnsupported }
func (h *Host) Start(Command) (*Process, error) { return nil, ErrUnsupported }
func (h *Host) Cut(...*Host) error              { return ErrUnsupported }
func (h *Host) Mend() error                     { return ErrUnsupported }
func (h *Host) Loss(float64) error              { return ErrUnsupported }
func (h *Host) Bandwidth(int64) error           { return ErrUnsupported }
func (h *Host) Latency(time.Duration) error     { return ErrUnsupported }
func (h *Host) SetCPU(float64) error            { return ErrUnsupported }
func (h *Host) SetMemory(int64) error           { return ErrUnsupported }
func (h *Host) Listen(context.Context, string, string) (net.Listener, error) {
	return nil, ErrUnsupported
}
func (h *Host) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, ErrUnsupported
}

// A Process is a program on a host; there is none on this system.
type Process struct{}

func (p *Process) PID() int                                       { return 0 }
func (p *Process) Starts() int                                    { return 0 }
func (p *Process) Signal(syscall.Signal) error                    { return ErrUnsupported }
func (p *Process) End()                                           {}
func (p *Process) Kill() error                                    { return ErrUnsupported }
func (p *Process) Await(context.Context, int) error               { return ErrUnsupported }
func (p *Process) Wait(context.Context) (*os.ProcessState, error) { return nil, ErrUnsupported }
func (p *Process) Stop(context.Context) (*os.ProcessState, error) { return nil, ErrUnsupported }
