// Rows that come from the host enter a table of slots as they are.
#include "device.h"

template <class T> DEVICE void copy_word(const T *from, T *to) { *to = *from; }
DEVICE void copy_word(const float4 *from, float4 *to) { store4((float *)to, load4((const float *)from)); }

// Row i of from, rows of so many words one after the other, goes to row to[i] of dst, whose
// rows are as long. Each thread copies every blocks·threads-th word.
#define SCATTER_ROWS(name, T) \
  KERNEL(256) name(const T *from, const u32 *to, T *dst, int rows, int words) { \
    i64 n = (i64)rows * words, step = (i64)blocks_x() * threads(); \
    for (i64 k = (i64)block_x() * threads() + thread(); k < n; k += step) \
      copy_word(from + k, dst + (i64)to[k / words] * words + k % words); \
  } \
  EXPORT(name)

SCATTER_ROWS(scatter_rows_16, float4)
SCATTER_ROWS(scatter_rows_4, u32)
SCATTER_ROWS(scatter_rows_1, unsigned char)
