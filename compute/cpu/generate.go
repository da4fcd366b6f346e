package cpu

//go:generate go run ../../internal/asm/cpu -out kernels_amd64.s -stubs kernels_amd64.go -pkg cpu
