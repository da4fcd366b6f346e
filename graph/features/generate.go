package features

//go:generate go run ../../internal/asm/features -out kernels_amd64.s -stubs kernels_amd64.go -pkg features
