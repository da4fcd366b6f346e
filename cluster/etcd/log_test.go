package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// A listener that etcd closed itself is no error; one that failed is.
func TestLogOfAStop(t *testing.T) {
	var said bytes.Buffer
	log := newLogger(slog.New(slog.NewTextHandler(&said, nil)), &ended{done: make(chan struct{})})
	log.Error(notServing, zap.Error(fmt.Errorf("accept: %w", net.ErrClosed)))
	if said.Len() != 0 {
		t.Errorf("said %q of a stop", said.String())
	}
	log.Error(notServing, zap.Error(errors.New("accept: too many open files")))
	if !strings.Contains(said.String(), "too many open files") {
		t.Errorf("said %q of a listener that failed", said.String())
	}
}
