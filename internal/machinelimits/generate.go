package machinelimits

//go:generate go run ../asm/machinelimits -out kernels_amd64.s -stubs kernels_amd64.go -pkg machinelimits
