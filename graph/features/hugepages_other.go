//go:build !linux

package features

func adviseHuge([]byte) {}
