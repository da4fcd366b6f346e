package machinelimits

//go:generate go run ../asm/limits -out kernels_amd64.s -stubs kernels_amd64.go -pkg limits
