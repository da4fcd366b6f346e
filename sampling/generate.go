package sampling

//go:generate go run ../internal/asm/sampling -out kernels_amd64.s -stubs kernels_amd64.go -pkg sampling
