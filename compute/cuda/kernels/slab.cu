// Rows that come from the host enter a table of slots as they are.
#include "device.h"

template <class T> DEVICE void copy_word(const T *from, T *to) { *to = *from; }
DEVICE void copy_word(const float4 *from, float4 *to) { store4((float *)to, load4((const float *)from)); }

// Row ids[i] of from, or row i without ids, goes to row to[i] of dst: so many words, which in dst
// follow each other, and in from begin every stride words. from may be memory of the host's that
// is registered. Each thread copies every blocks·threads-th word.
#define SCATTER_ROWS(name, T) \
  KERNEL(256) name(const T *from, i64 stride, const u32 *ids, const u32 *to, T *dst, int rows, int words) { \
    i64 n = (i64)rows * words, step = (i64)blocks_x() * threads(); \
    for (i64 k = (i64)block_x() * threads() + thread(); k < n; k += step) { \
      i64 i = k / words, j = k % words; \
      copy_word(from + (ids ? ids[i] : i) * stride + j, dst + (i64)to[i] * words + j); \
    } \
  } \
  EXPORT(name)

SCATTER_ROWS(scatter_rows_16, float4)
SCATTER_ROWS(scatter_rows_4, u32)
SCATTER_ROWS(scatter_rows_1, unsigned char)
