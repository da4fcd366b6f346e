// What kernels are written in: the few parts of CUDA that they use, for clang without
// a CUDA SDK, or for any C++ compiler on a host (emulator.h). A kernel is
//
//	KERNEL(256) name(const float *a, float *dst, int n) { ... }
//	EXPORT(name)
//
// in a .cu file: 256 is the most threads that a block may have, all blocks are
// one-dimensional and whole warps, grids have two dimensions. Parameters are
// pointers, int, u32, u64, i64 and float, or one struct of such and of double, whose size is
// a multiple of 8.
//
// The rules that make a kernel the same to the bit on the device and in the emulator:
// no thread returns before a barrier or a shuffle of its block; floats are added in an
// order that shapes alone decide, by no atomics; a fused multiply-add is fma(), and
// nothing else is fused (-ffp-contract=off); exponentials are exponential(), square
// roots square_root(): no approximate instructions.
#pragma once
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifdef __CUDA__
#define KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads))) void
#define MEMBER __attribute__((device, always_inline))
#define LOOP _Pragma("unroll 1")
#define EXPORT(name)
#define DEVICE static inline __attribute__((device, always_inline))
#define SHARED static __attribute__((shared))
#define UNROLL _Pragma("unroll")

DEVICE int thread() { return __nvvm_read_ptx_sreg_tid_x(); }      // within the block
DEVICE int threads() { return __nvvm_read_ptx_sreg_ntid_x(); }    // of a block
DEVICE int block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }   // within the grid
DEVICE int block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE int blocks_x() { return __nvvm_read_ptx_sreg_nctaid_x(); } // of the grid
DEVICE int blocks_y() { return __nvvm_read_ptx_sreg_nctaid_y(); }
#define barrier() __syncthreads()
DEVICE void warp_barrier() { __nvvm_bar_warp_sync(0xffffffffu); }

struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
typedef float vector4 __attribute__((ext_vector_type(4)));
DEVICE float4 load4(const float *p) { vector4 v = *(const vector4 *)p; return {v.x, v.y, v.z, v.w}; } // p is a multiple of 16
DEVICE void store4(float *p, float4 v) { *(vector4 *)p = vector4{v.x, v.y, v.z, v.w}; }

// Shuffles within a warp: the value of the thread whose lane differs by the bits of
// mask, is down lanes above (its own where there is none), or is lane.
DEVICE float shuffle_xor(float v, int mask) { return __nvvm_shfl_sync_bfly_f32(0xffffffffu, v, mask, 31); }
DEVICE float shuffle_down(float v, int down) { return __nvvm_shfl_sync_down_f32(0xffffffffu, v, down, 31); }
DEVICE float shuffle_from(float v, int lane) { return __nvvm_shfl_sync_idx_f32(0xffffffffu, v, lane, 31); }
DEVICE int shuffle_xor(int v, int mask) { return __nvvm_shfl_sync_bfly_i32(0xffffffffu, v, mask, 31); }
DEVICE int shuffle_down(int v, int down) { return __nvvm_shfl_sync_down_i32(0xffffffffu, v, down, 31); }
DEVICE int shuffle_from(int v, int lane) { return __nvvm_shfl_sync_idx_i32(0xffffffffu, v, lane, 31); }

// The lanes of the warp whose v is true, lane 0 lowest.
DEVICE u32 vote(bool v) { return __nvvm_vote_ballot_sync(0xffffffffu, v); }

// Atomic access to what other blocks of a grid change, too. Each returns what was there.
DEVICE u64 atomic_cas(u64 *p, u64 expected, u64 v) { return (u64)__nvvm_atom_cas_gen_ll((i64 *)p, (i64)expected, (i64)v); }
DEVICE u32 atomic_add(u32 *p, u32 v) { return __nvvm_atom_add_gen_i((int *)p, v); }
DEVICE u64 atomic_load(const u64 *p) { return *(const volatile u64 *)p; }
DEVICE void atomic_store(u64 *p, u64 v) { *(volatile u64 *)p = v; }

// Asynchronous copies of 4 or 16 bytes from global to shared memory: what a thread
// copies is there for itself after copy_wait, for its block after a barrier more.
// copy_wait<N> waits for all but the last N groups that copy_commit ended. If there is
// nothing to copy (given false) zeros are written, and from is not read.
DEVICE void copy_async4(float *to, const float *from, bool given) {
  u32 n = given ? 4 : 0, s = (u32)(u64)(__attribute__((address_space(3))) void *)to;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(s), "l"(from), "r"(n) : "memory");
}
DEVICE void copy_async16(float *to, const float *from, bool given) {
  u32 n = given ? 16 : 0, s = (u32)(u64)(__attribute__((address_space(3))) void *)to;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(s), "l"(from), "r"(n) : "memory");
}
DEVICE void copy_async4(float *to, const float *from) {
  u32 s = (u32)(u64)(__attribute__((address_space(3))) void *)to;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(s), "l"(from) : "memory");
}
DEVICE void copy_async16(float *to, const float *from) {
  u32 s = (u32)(u64)(__attribute__((address_space(3))) void *)to;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(s), "l"(from) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// A warp's multiplication on tensor cores: d becomes d + A·B in float32, for A of 16×8 values in
// TF32, or 16×16 in bfloat16, of which there are two in 32 bits, and B of eight columns. Of
// A's rows lane/4 and lane/4 + 8 a lane has a0, a2 and a1, a3, of B's column lane/4 b0 and b1, and of
// d's rows columns lane%4·2 and the next; a0, a1 and b0 are of terms lane%4, the others of
// four, or of bfloat16 eight, terms further.
DEVICE u32 to_tf32(float v) { u32 r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v)); return r; }                             // to the nearest, half away from 0
DEVICE u32 to_bf16(float v, float next) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(next), "f"(v)); return r; } // half to even
DEVICE void multiply_tf32(float *d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEVICE void multiply_bf16(float *d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE float square_root(float v) { return __nvvm_sqrt_rn_f(v); }
DEVICE double square_root(double v) { return __nvvm_sqrt_rn_d(v); }
DEVICE float from_bits(u32 b) { return __builtin_bit_cast(float, b); }
DEVICE u32 to_bits(float v) { return __builtin_bit_cast(u32, v); }
DEVICE double from_bits(u64 b) { return __builtin_bit_cast(double, b); }
DEVICE u64 to_bits(double v) { return __builtin_bit_cast(u64, v); }
#else
#include "emulator.h"
#endif

// NaN where an operand is, as Go's max and min have it.
DEVICE float larger(float a, float b) { return a != a || a > b ? a : b; }

// exponential is cpu's exp for x <= 0, to the bit: 0 below -87.33654.
struct Exponential { float q, s; }; // s·(1+q)
DEVICE Exponential exponential_parts(float x) {
  float n = x * 1.44269504088896341f + 12582912.0f - 12582912.0f; // to the nearest integer, half to even
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  float q = p * r * r + r;
  if (n != n) return {q, 1};
  return {q, from_bits((u32)((int)n + 127) << 23)};
}
DEVICE float exponential(float x) {
  if (x < -87.33654f) return 0;
  Exponential e = exponential_parts(x);
  return e.s * e.q + e.s;
}
