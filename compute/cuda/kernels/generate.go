package kernels

// Without -ffp-contract=off clang fuses a·b+c, or leaves it to the driver to fuse.
//
//go:generate -command ptx clang-19 -x cuda --cuda-device-only -nocudainc -nocudalib -S -O3 -ffp-contract=off --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70
//go:generate ptx element.cu -o element.ptx
//go:generate ptx aggregate.cu -o aggregate.ptx
//go:generate ptx product.cu -o product.ptx
//go:generate ptx tensor.cu -o tensor.ptx
//go:generate ptx sums.cu -o sums.ptx
//go:generate ptx attention.cu -o attention.ptx
//go:generate ptx loss.cu -o loss.ptx
//go:generate ptx norm.cu -o norm.ptx
//go:generate ptx limits.cu -o limits.ptx
//go:generate ptx sample.cu -o sample.ptx
//go:generate ptx slab.cu -o slab.ptx
//go:generate ptx optimizer.cu -o optimizer.ptx
//go:generate ptx transpose.cu -o transpose.ptx
