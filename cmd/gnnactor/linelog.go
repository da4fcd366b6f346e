package main

import (
	"errors"
	"fmt"
	"os"
)

// lineLog appends lines to a file as a run makes them, so that a process that is killed leaves them, and one that goes on adds its own.
type lineLog struct {
	flag string
	file *os.File
	err  error // why lines are missing
}

// openLines opens a file to append to, and finds out by it whether that can be done. Nil: it is not asked for.
func openLines(flag, name string) (*lineLog, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, usagef("%s: %w", flag, err)
	}
	return &lineLog{flag: flag, file: f}, nil
}

// empty reports whether the file has no lines yet.
func (l *lineLog) empty() bool {
	st, err := l.file.Stat()
	return err == nil && st.Size() == 0
}

// write appends all of a line, or nothing, unless an earlier one could not be.
func (l *lineLog) write(line []byte) {
	if l.err != nil {
		return
	}
	n, err := l.file.Write(line)
	if err != nil && n > 0 {
		st, serr := l.file.Stat()
		if serr == nil {
			serr = l.file.Truncate(st.Size() - int64(n))
		}
		err = errors.Join(err, serr)
	}
	l.err = err
}

// close returns why lines are missing.
func (l *lineLog) close() error {
	if l == nil {
		return nil
	}
	err := l.file.Close()
	if l.err != nil {
		err = l.err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.flag, err)
	}
	return nil
}
