// cuBLAS, of which one function computes: columns follow each other, as in Fortran. A part of driver.cc.
namespace {
struct Blas {
  Device *device;
  void *stream = nullptr;
  uint64_t workspace = 0;
  int math = 0, atomics = 1;
};
std::set<Blas *> handles;
Blas *handle(void *h) { auto i = handles.find((Blas *)h); return i == handles.end() ? nullptr : *i; }
long handles_of_blas() { return handles.size(); }
void forget_blas(const Device *d) {
  for (auto i = handles.begin(); i != handles.end();) {
    auto b = *i;
    i = !d || b->device == d ? (delete b, handles.erase(i)) : std::next(i);
  }
}
enum { BLAS_NOT_INITIALIZED = 1, BLAS_INVALID_VALUE = 7, BLAS_EXECUTION_FAILED = 13 };
} // namespace
#define ENTER_BLAS(h) \
  std::lock_guard<std::recursive_mutex> held(mutex); \
  if (int wrong = enter(__func__)) return wrong; \
  Blas *b = handle(h); \
  if (!b || b->device != current) return BLAS_NOT_INITIALIZED;
API cublasCreate_v2(void **h) { ENTER() auto b = new Blas{current}; handles.insert(b); *h = b; return SUCCESS; }
API cublasDestroy_v2(void *h) { ENTER_BLAS(h) handles.erase(b); delete b; return SUCCESS; }
API cublasSetStream_v2(void *h, void *s) { ENTER_BLAS(h) if (!streams.count(s)) return BLAS_INVALID_VALUE; b->stream = s, b->workspace = 0; return SUCCESS; }
API cublasSetWorkspace_v2(void *h, uint64_t p, size_t n) { ENTER_BLAS(h) if (!in(b->device->allocations, p, n) || p % 256) return BLAS_INVALID_VALUE; b->workspace = p; return SUCCESS; }
API cublasSetMathMode(void *h, int mode) { ENTER_BLAS(h) b->math = mode; return SUCCESS; }
API cublasSetAtomicsMode(void *h, int mode) { ENTER_BLAS(h) b->atomics = mode; return SUCCESS; }
API cublasGetProperty(int which, int *v) { *v = which == 0 ? 12 : which == 1 ? 6 : 4; return SUCCESS; }
extern "C" __attribute__((visibility("default"))) const char *cublasGetStatusString(int status) {
  return status == 3 ? "the resource allocation failed" : status == 13 ? "the function failed to launch on the GPU" : "an error of the fake's";
}
API cublasSgemm_v2(void *h, int ta, int tb, int m, int n, int k, const float *alpha, uint64_t pa, int lda, uint64_t pb, int ldb, const float *beta, uint64_t pc, int ldc) {
  ENTER_BLAS(h)
  // Only what is repeatable, in a workspace of the stream's own.
  if (!b->stream || !b->workspace || (b->math != 2 && b->math != 3) || b->atomics != 0) return BLAS_INVALID_VALUE;
  if (m < 1 || n < 1 || k < 1 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m || *alpha != 1) return BLAS_INVALID_VALUE;
  Device *d = current;
  float keep = *beta;
  auto factor = [tf32 = b->math == 3](float v) { return tf32 ? from_bits(to_tf32(v)) : v; };
  return queue(b->stream, [=, stream = b->stream] {
    begins("cublasSgemm_v2", stream);
    auto fits = [&](uint64_t p, i64 rows, i64 columns, i64 stride) { std::lock_guard<std::recursive_mutex> held(mutex); return in(d->allocations, p, 4 * (stride * (columns - 1) + rows)); };
    if (!fits(pa, ta ? k : m, ta ? m : k, lda) || !fits(pb, tb ? n : k, tb ? k : n, ldb) || !fits(pc, m, n, ldc))
      return broken(d, ILLEGAL_ADDRESS, "a matrix of cuBLAS's is not in the device's memory");
    auto a = (const float *)pa, x = (const float *)pb;
    auto c = (float *)pc;
    for (i64 j = 0; j < n; j++)
      for (i64 i = 0; i < m; i++) {
        float sum = 0;
        for (i64 l = 0; l < k; l++) sum = __builtin_fmaf(factor(ta ? a[i * lda + l] : a[l * lda + i]), factor(tb ? x[l * ldb + j] : x[j * ldb + l]), sum);
        c[j * ldc + i] = keep ? sum + keep * c[j * ldc + i] : sum;
      }
    return (int)SUCCESS;
  });
}
