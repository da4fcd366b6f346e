//go:build linux && (amd64 || arm64) && !nogpu

package main

import _ "github.com/gnnactor/gnnactor/compute/cuda" // --device cuda
