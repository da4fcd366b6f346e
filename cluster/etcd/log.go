package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// etcd says what is wrong by zap, and ends the process by it: what its logger calls
// fatal ends in os.Exit. logger hands warnings and errors to slog, and leaves the end
// of the process to whoever runs the server.
type logger struct {
	zapcore.LevelEnabler
	log   *slog.Logger
	ended *ended
}

func newLogger(log *slog.Logger, e *ended) *zap.Logger {
	return zap.New(&logger{zapcore.WarnLevel, log.With("by", "etcd"), e}, zap.WithFatalHook(e), zap.WithPanicHook(e))
}

// With implements zapcore.Core.
func (l *logger) With(fields []zapcore.Field) zapcore.Core {
	return &logger{l.LevelEnabler, l.log.With(attributes(fields)...), l.ended}
}

// idle are warnings of every start: about what this module does not use, and of a new
// store, whose version etcd looks for before it is there.
var idle = []string{
	"Running http and grpc server on single port. This is not recommended for production.",
	"simple token is not cryptographically signed",
	"Failed to detect schema version",
	"failed to update storage version",
}

// notServing is what etcd says of a listener that ended, also of one that it closed
// itself because it is stopped; then the error is net.ErrClosed, and all is well.
const notServing = "setting up serving from embedded etcd failed."

func closed(f zapcore.Field) bool {
	err, ok := f.Interface.(error)
	return ok && errors.Is(err, net.ErrClosed)
}

// Check implements zapcore.Core.
func (l *logger) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(e.Level) && !slices.Contains(idle, e.Message) {
		return c.AddCore(e, l)
	}
	return c
}

// Write implements zapcore.Core.
func (l *logger) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if e.Message == notServing && slices.ContainsFunc(fields, closed) {
		return nil
	}
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, e.Message, attributes(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (l *logger) Sync() error { return nil }

func attributes(fields []zapcore.Field) (all []any) {
	for _, f := range fields {
		if f.Type == zapcore.SkipType {
			continue
		}
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		for k, v := range m.Fields {
			all = append(all, k, v)
		}
	}
	return all
}

// ended is how etcd ended itself.
type ended struct {
	once sync.Once
	done chan struct{}
	err  error // set before done is closed
}

// OnWrite implements zapcore.CheckWriteHook, for what was to end the process. It does
// not return: etcd does not expect to go on.
func (e *ended) OnWrite(c *zapcore.CheckedEntry, fields []zapcore.Field) {
	e.once.Do(func() {
		e.err = errors.New(c.Message)
		for _, f := range fields {
			if cause, ok := f.Interface.(error); ok {
				e.err = fmt.Errorf("%s: %w", c.Message, cause)
			}
		}
		close(e.done)
	})
	select {}
}
