package main

import (
	"os"
	"path/filepath"

	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// checkWritable refuses, before any work is done, a result file that cannot be written; its directory is made if there is none, as stores'
// are. An empty name is not asked for and is fine.
func checkWritable(flag, name string) error {
	if name == "" {
		return nil
	}
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return usagef("%s %s: its directory cannot be made: %w; name another", flag, name, err)
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return usagef("%s %s: that is a directory; name a file", flag, name)
	}
	if format, err := importer.DetectFormat(dir); err == nil && format == "store" {
		return usagef("%s %s: %s is a store, whose files are nobody else's; name another directory", flag, name, dir)
	}
	return nil
}

// checkReplaceable is checkWritable for a file that is put in its place when it is whole:
// none can be where a device or a pipe is, or where nothing may be written.
func checkReplaceable(flag, name string) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return usagef("%s %s: that is a device or a pipe; name a file", flag, name)
	}
	if err := checkWritable(flag, name); name == "" || err != nil {
		return err
	}
	f, err := atomicfile.Create(name, 0o644)
	if err == nil {
		err = f.Abort()
	}
	if err != nil {
		return usagef("%s %s: %w", flag, name, err)
	}
	return nil
}

// outputFile is one that a command is to write, and the flag that names it.
type outputFile struct{ flag, name string }

// checkDistinct refuses outputs that are one file, of which each would take another's place.
func checkDistinct(outputs ...outputFile) error {
	flags := map[string]string{}
	for _, o := range outputs {
		if info, err := os.Stat(o.name); o.name == "" || err == nil && !info.Mode().IsRegular() { // a device takes all
			continue
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(o.name))
		if err == nil {
			dir, err = filepath.Abs(dir)
		}
		if err != nil {
			return usagef("%s %s: %w", o.flag, o.name, err)
		}
		path := filepath.Join(dir, filepath.Base(o.name))
		if was := flags[path]; was != "" {
			return usagef("%s and %s are both %s; name a file for each", was, o.flag, o.name)
		}
		flags[path] = o.flag
	}
	return nil
}
