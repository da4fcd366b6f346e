package cpu

//go:generate go run ../../internal/asm/cpu -family gemm -out gemm_kernels_amd64.s -stubs gemm_kernels_amd64.go -pkg cpu
//go:generate go run ../../internal/asm/cpu -family aggregate -out aggregate_kernels_amd64.s -stubs aggregate_kernels_amd64.go -pkg cpu
//go:generate go run ../../internal/asm/cpu -family attention -out attention_kernels_amd64.s -stubs attention_kernels_amd64.go -pkg cpu
//go:generate go run ../../internal/asm/cpu -family bf16 -out bf16_kernels_amd64.s -stubs bf16_kernels_amd64.go -pkg cpu
//go:generate go run ../../internal/asm/cpu -family element -out element_kernels_amd64.s -stubs element_kernels_amd64.go -pkg cpu
//go:generate go run ../../internal/asm/cpu -family norm -out norm_kernels_amd64.s -stubs norm_kernels_amd64.go -pkg cpu
