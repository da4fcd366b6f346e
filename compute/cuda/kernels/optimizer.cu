// Steps of optimisers, as compute/cpu has them to the bit: a thread takes every
// blocks·threads-th value.
#include "device.h"

// AdamFactors is AdamFactors of cpu's.
struct AdamFactors { float beta1, rest1, beta2, rest2, step, root, epsilon, scale, decay, keep; };

KERNEL(256) adam(float *p, float *m, float *v, const float *g, i64 n, AdamFactors f) {
  for (i64 i = (i64)block_x() * threads() + thread(); i < n; i += (i64)blocks_x() * threads()) {
    float q = p[i] * f.keep, d = g[i] * f.scale + f.decay * q;
    float first = f.beta1 * m[i] + f.rest1 * d, second = f.beta2 * v[i] + f.rest2 * (d * d);
    m[i] = first;
    v[i] = second;
    p[i] = q - f.step * first / (square_root(second) * f.root + f.epsilon);
  }
}
EXPORT(adam)

// v is null without momentum.
KERNEL(256) sgd(float *p, float *v, const float *g, i64 n, float rate, float momentum, float decay, int nesterov, int first) {
  for (i64 i = (i64)block_x() * threads() + thread(); i < n; i += (i64)blocks_x() * threads()) {
    float d = g[i] + decay * p[i];
    if (v) {
      float now = first ? d : momentum * v[i] + d;
      v[i] = now;
      d = nesterov ? d + momentum * now : now;
    }
    p[i] = p[i] - rate * d;
  }
}
EXPORT(sgd)

// observe has a batch norm's running statistics follow those that a gradient carries, if it
// does, and takes them out of it: one block.
KERNEL(256) observe(float *params, float *grad, i64 tracked, i64 mean, i64 variance, int n) {
  bool seen = grad[tracked] > 0;
  barrier(); // before it is taken out
  for (int j = thread(); j < 2 * n; j += threads()) {
    i64 at = j < n ? mean + j : variance + j - n;
    if (seen) params[at] = (float)(0.9 * (double)params[at] + 0.1 * (double)grad[at]);
    grad[at] = 0;
  }
  if (thread() == 0) {
    if (seen) params[tracked] = params[tracked] + 1;
    grad[tracked] = 0;
  }
}
EXPORT(observe)
