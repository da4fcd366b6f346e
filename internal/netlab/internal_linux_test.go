package netlab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// SetNetem lets a lab delay packets by netem or by its relay, and returns
// whether the kernel has netem.
func SetNetem(l *Lab, on bool) bool {
	has := probe().netem
	l.netem = on && has
	return has
}

// SwitchDevices counts the network devices in a lab's switch.
func SwitchDevices(t *testing.T, l *Lab) (n int) {
	t.Helper()
	if err := inside(l.switchNS, func() error {
		devices, err := net.Interfaces()
		n = len(devices)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// Favour gives a bounded host the processor before all others, up to its bound.
func Favour(t *testing.T, h *Host) {
	t.Helper()
	if err := h.limit("cpu", []setting{{"cpu.shares", "262144"}}, []setting{{"cpu.weight", "10000"}}); err != nil {
		t.Fatal(err)
	}
}

// Throttled returns in how many periods a host has used its quota of processor
// time up.
func Throttled(t *testing.T, h *Host) int {
	t.Helper()
	root, _, err := hierarchy("cpu")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, h.Name(), "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var n int
		if _, err := fmt.Sscanf(line, "nr_throttled %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no nr_throttled in %q", text)
	return 0
}

func TestNames(t *testing.T) {
	want := names{owner{4026531836, 77, 123456789}, 3}
	for _, name := range []string{want.hub(), want.host(0), want.host(249)} {
		if got, ok := parseName(name); !ok || got != want {
			t.Errorf("%s reads as %+v, %v; want %+v", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "blue", "gnnlab-", "gnnlab-1-2-3-4", "gnnlab-x-2-3-4-h1", "gnnlab-1-2-3-4294967296-h1", "docker-1-2-3-4-h1"} {
		if got, ok := parseName(name); ok {
			t.Errorf("%q reads as %+v; want no lab's", name, got)
		}
	}
}

func TestMissingToolNamesRemedy(t *testing.T) {
	_, err := lookTool("no-such-tool")
	if err == nil || !strings.Contains(err.Error(), "apt-get install") || !strings.Contains(err.Error(), "nftables") {
		t.Errorf("%v; want what to install", err)
	}
}

const tcpTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0101000A:1F90 0201000A:D431 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
`

const tcp6Table = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr
   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000
   1: 0000000000000000FFFF00000100007F:0051 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000
`

func TestParseSockets(t *testing.T) {
	for _, test := range []struct {
		table string
		want  string
	}{
		{tcpTable, "[127.0.0.1:80]"},
		{tcp6Table, "[[::1]:8080 [::ffff:127.0.0.1]:81]"},
		{"heading\n", "[]"},
	} {
		if got, err := parseSockets([]byte(test.table), stateListen); err != nil || fmt.Sprint(got) != test.want {
			t.Errorf("%v, %v; want %s", got, err, test.want)
		}
	}
	for _, line := range []string{"0: 0100007F:0050 0:0", "0: 0100007F 0:0 0A", "0: 0100007F:10000 0:0 0A", "0: 01007F:0050 0:0 0A", "0: 0100007F:0050 0:0 xx"} {
		if got, err := parseSockets([]byte("heading\n"+line+"\n"), stateListen); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q reads as %v, %v; want an error that names the line", line, got, err)
		}
	}
}

// FuzzParseSockets shows that no table panics, and that what is read is printed
// back by the kernel's rules as it stood.
func FuzzParseSockets(f *testing.F) {
	f.Add([]byte(tcpTable))
	f.Add([]byte(tcp6Table))
	f.Fuzz(func(t *testing.T, table []byte) {
		found, err := parseSockets(table, stateListen)
		if err != nil {
			return
		}
		for _, addr := range found {
			again, err := parseSocketAddr(kernelForm(addr))
			if err != nil || again != addr {
				t.Errorf("%v reads back as %v, %v", addr, again, err)
			}
		}
	})
}

// kernelForm prints an address as /proc/net does on a little-endian machine.
func kernelForm(addr netip.AddrPort) string {
	var b strings.Builder
	raw := addr.Addr().AsSlice()
	for i := 0; i < len(raw); i += 4 {
		fmt.Fprintf(&b, "%02X%02X%02X%02X", raw[i+3], raw[i+2], raw[i+1], raw[i])
	}
	return fmt.Sprintf("%s:%04X", b.String(), addr.Port())
}

const devTable = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0:    4242      10    0    0    0     0          0         0     1717       9    0    0    0     0       0          0
`

func TestParseTraffic(t *testing.T) {
	want := Traffic{Sent: 1717, Received: 4242}
	if got, err := parseTraffic([]byte(devTable), "eth0"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, table := range []string{"", "eth0: 1 2 3\n", strings.ReplaceAll(devTable, "4242", "many")} {
		if got, err := parseTraffic([]byte(table), "eth0"); err == nil {
			t.Errorf("%q reads as %+v", table, got)
		}
	}
}
