package netlab

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Socket states of include/net/tcp_states.h, as /proc/net shows them.
const (
	stateClose  = 0x07 // a UDP socket without a peer
	stateListen = 0x0A
)

// Listening returns every port of the host that waits for peers, on the loopback
// too, sorted by network and address.
func (h *Host) Listening() ([]Port, error) {
	var ports []Port
	err := h.Do(func() error {
		for _, table := range []struct {
			file, network string
			state         uint64
		}{{"tcp", "tcp", stateListen}, {"tcp6", "tcp", stateListen}, {"udp", "udp", stateClose}, {"udp6", "udp", stateClose}} {
			name := "/proc/thread-self/net/" + table.file
			text, err := os.ReadFile(name)
			if errors.Is(err, os.ErrNotExist) {
				continue // no IPv6
			}
			if err != nil {
				return fmt.Errorf("netlab: %w", err)
			}
			found, err := parseSockets(text, table.state)
			if err != nil {
				return fmt.Errorf("netlab: %s: %w", name, err)
			}
			for _, addr := range found {
				ports = append(ports, Port{table.network, addr})
			}
		}
		return nil
	})
	slices.SortFunc(ports, func(a, b Port) int {
		if c := strings.Compare(a.Network, b.Network); c != 0 {
			return c
		}
		return a.Addr.Compare(b.Addr)
	})
	// Sockets that share a port with SO_REUSEPORT are one.
	return slices.Compact(ports), err
}

// parseSockets returns the local addresses of the sockets in a state from a table
// of /proc/net: proc_net_tcp.rst.
func parseSockets(table []byte, state uint64) ([]netip.AddrPort, error) {
	var found []netip.AddrPort
	lines := bufio.NewScanner(bytes.NewReader(table))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if n == 1 || len(fields) == 0 {
			continue // the heading
		}
		if len(fields) < 4 {
			return nil, fmt.Errorf("line %d: %d fields; want at least 4", n, len(fields))
		}
		st, err := strconv.ParseUint(fields[3], 16, 8)
		if err != nil {
			return nil, fmt.Errorf("line %d: state: %w", n, err)
		}
		addr, err := parseSocketAddr(fields[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if st == state {
			found = append(found, addr)
		}
	}
	return found, lines.Err()
}

// parseSocketAddr reads 0100007F:1F90: the address in words of the machine's
// byte order, the port.
func parseSocketAddr(s string) (netip.AddrPort, error) {
	host, port, ok := strings.Cut(s, ":")
	raw, err1 := hex.DecodeString(host)
	p, err2 := strconv.ParseUint(port, 16, 16)
	if !ok || err1 != nil || err2 != nil || (len(raw) != 4 && len(raw) != 16) {
		return netip.AddrPort{}, fmt.Errorf("address %q; want 8 or 32 hexadecimal digits, a colon and a port", s)
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(p)), nil
}

// Traffic returns what went through the host's eth0 since the lab was made.
func (h *Host) Traffic() (t Traffic, err error) {
	err = h.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			return fmt.Errorf("netlab: %w", err)
		}
		t, err = parseTraffic(text, "eth0")
		return err
	})
	return t, err
}

// parseTraffic reads one device's line of /proc/net/dev: received bytes come
// first, sent bytes ninth.
func parseTraffic(table []byte, device string) (Traffic, error) {
	for line := range strings.Lines(string(table)) {
		name, rest, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) != device {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) < 16 {
			return Traffic{}, fmt.Errorf("netlab: /proc/net/dev: %s has %d fields; want 16", device, len(fields))
		}
		received, err1 := strconv.ParseUint(fields[0], 10, 64)
		sent, err2 := strconv.ParseUint(fields[8], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return Traffic{}, fmt.Errorf("netlab: /proc/net/dev: %s: %w", device, err)
		}
		return Traffic{Sent: sent, Received: received}, nil
	}
	return Traffic{}, fmt.Errorf("netlab: /proc/net/dev has no %s", device)
}
