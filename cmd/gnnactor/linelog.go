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
	made bool  // there was no such file
	err  error // why lines are missing
}

// openLines opens a file to append to, and finds out by it whether that can be done. Nil: it is not asked for.
func openLines(flag, name string) (*lineLog, error) {
	if name == "" {
		return nil, nil
	}
	const flags = os.O_APPEND | os.O_CREATE | os.O_WRONLY
	f, err := os.OpenFile(name, flags|os.O_EXCL, 0o644)
	made := err == nil
	if errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(name, flags, 0o644)
	}
	if err != nil {
		return nil, usagef("%s: %w", flag, err)
	}
	return &lineLog{flag: flag, file: f, made: made}, nil
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

// close returns why lines are missing. A file that it made, and that nothing was written to, goes: the run was refused.
func (l *lineLog) close() error {
	if l == nil {
		return nil
	}
	gone := l.made && l.empty()
	err := l.file.Close()
	if gone {
		err = errors.Join(err, os.Remove(l.file.Name()))
	}
	if l.err != nil {
		err = l.err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.flag, err)
	}
	return nil
}
