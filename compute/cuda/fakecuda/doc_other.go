//go:build !(linux && (amd64 || arm64)) || nogpu

// Package fakecuda gives tests devices where there are none; not on this system.
package fakecuda
