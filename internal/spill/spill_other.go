//go:build !linux

package spill

import "errors"

// Make is not there on this system.
func Make(string, int) ([]byte, error) {
	return nil, errors.New("spill: values are kept in files on Linux alone; leave the scratch directory out")
}

// Free has nothing to give back.
func Free([]byte) {}
