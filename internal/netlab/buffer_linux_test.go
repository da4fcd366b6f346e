package netlab_test

import (
	"net"

	"golang.org/x/sys/unix"
)

// forceReadBuffer makes room for bytes beyond what the system grants everyone,
// so that a burst of datagrams is lost on the network or nowhere.
func forceReadBuffer(conn *net.UDPConn, bytes int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes)
	}); err != nil {
		return err
	}
	return set
}
