// Dropout and losses of numbers, to the bit as on the processor, and losses of classes, which differ from
// compute/cpu's in the last bits of exponentials and of sums over a row.
#include "random.h"

// DropoutRows is dropoutRows of loss.go: a thread has four columns, which share a draw.
struct DropoutRows {
  const float *src;
  i64 src_stride;
  float *dst;
  i64 dst_stride;
  Dropped drop;
  int rows, cols;
};

KERNEL(256) dropout(DropoutRows p) {
  int groups = (p.cols + 3) / 4;
  i64 n = (i64)p.rows * groups, step = (i64)blocks_x() * threads();
  for (i64 k = (i64)block_x() * threads() + thread(); k < n; k += step) {
    i64 i = k / groups;
    int g = (int)(k % groups), end = g * 4 + 4 < p.cols ? g * 4 + 4 : p.cols;
    u64 draw = key_draw(drop_row(p.drop, i), g);
    for (int j = g * 4; j < end; j++) p.dst[i * p.dst_stride + j] = drop_value(p.drop, draw, j, p.src[i * p.src_stride + j]);
  }
}
EXPORT(dropout)

DEVICE double double_of(u64 b) { return __builtin_bit_cast(double, b); }
DEVICE u64 bits_of(double v) { return __builtin_bit_cast(u64, v); }

// double_exp returns eˣ for x <= 0, by fdlibm's method: x = k·ln 2 + r, and a rational
// function of r.
DEVICE double double_exp(double x) {
  if (x != x) return x;
  if (x < -745.2) return 0;
  double k = x * 1.44269504088896338700 + 0x1.8p52 - 0x1.8p52; // to the nearest integer
  double hi = x - k * 6.93147180369123816490e-01, lo = k * 1.90821492927058770002e-10;
  double r = hi - lo, t = r * r;
  double c = r - t * (1.66666666666666657415e-01 + t * (-2.77777777770155933842e-03 + t * (6.61375632143793436117e-05 +
    t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))));
  double y = 1 - ((lo - (r * c) / (2 - c)) - hi);
  int n = (int)k;
  if (n < -1000) return y * double_of((u64)(n + 1000 + 1023) << 52) * 0x1p-1000;
  return y * double_of((u64)(n + 1023) << 52);
}

// double_log returns ln x for normal x > 0, infinity and NaN, by fdlibm's method:
// x = 2ᵏ(1+f), and 2·artanh(f/(2+f)).
DEVICE double double_log(double x) {
  if (!(x < double_of(0x7ff0000000000000ull))) return x;
  u64 b = bits_of(x);
  int k = (int)(b >> 52) - 1023;
  double m = double_of((b & 0xfffffffffffffull) | 1023ull << 52);
  if (m > 1.41421356237309504880) m = m * 0.5, k++;
  double f = m - 1, s = f / (2 + f), z = s * s, w = z * z;
  double t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  double t2 = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  double half = 0.5 * f * f;
  return k * 6.93147180369123816490e-01 - ((half - (s * (half + (t1 + t2)) + k * 1.90821492927058770002e-10)) - f);
}

// double_log1p returns ln(1+e) for e in [0, 1], and NaN of that: what was lost in 1+e is
// given back.
DEVICE double double_log1p(double e) {
  double u = 1 + e;
  return double_log(u) - ((u - 1) - e) / u;
}

// double_expm1 returns eˣ-1 for x <= 0, by Kahan's method: what rounding eˣ changes is divided out.
DEVICE double double_expm1(double x) {
  double u = double_exp(x);
  if (u == 1) return x;
  if (x < -38) return u - 1;
  return (u - 1) * (x / double_log(u));
}

DEVICE double double_xor(double v, int mask) {
  u64 b = bits_of(v);
  u32 lo = (u32)shuffle_xor((int)(u32)b, mask), hi = (u32)shuffle_xor((int)(u32)(b >> 32), mask);
  return double_of((u64)hi << 32 | lo);
}
DEVICE double warp_sum(double v) {
  UNROLL for (int d = 16; d; d /= 2) v = v + double_xor(v, d);
  return v;
}
DEVICE int warp_sum(int v) {
  UNROLL for (int d = 16; d; d /= 2) v = v + shuffle_xor(v, d);
  return v;
}

// RowLoss is what a row of logits adds: its loss, and what it counts.
struct RowLoss { double loss; i64 counts[4]; };

// Losses is losses of loss.go.
struct Losses {
  const float *logits;
  i64 logits_stride;
  const int *labels;             // of each row its class, or of each row its row of targets or values; negative: skipped
  const unsigned char *targets;  // of sigmoid: as wide as logits, 0 or 1
  const float *values;           // of regression
  const float *weights;          // per row; null: 1
  float *dlogits;                // null: not wanted; may be logits
  i64 dlogits_stride;
  RowLoss *row_losses;
  RowLoss *result;               // of loss_sum
  const double *class_weights;   // with smoothing and gamma cpu.LossOptions; null: all 1
  double smoothing, gamma;
  int rows, cols;
  i64 regression;                // a cpu.RegressionLoss
};

DEVICE double class_weight(const Losses &p, int j) { return p.class_weights ? p.class_weights[j] : 1; }

struct Cost { double cost, slope; };

// focus is cpu's, of lp, the logarithm of the probability of what is right, and q, which is 1 less that, and its logarithm.
DEVICE Cost focus(double gamma, double lp, double q, double log_q) {
  double power = q > 0 ? double_exp(gamma * log_q) : q;
  return {-(power * lp), gamma * power * double_exp(lp) * lp - power * q};
}

// A warp makes a row. counts: right, and labels that are out of range.
template <bool OPTIONS> DEVICE void softmax_rows(const Losses &p) {
  int lane = thread() % 32;
  i64 i = (i64)block_x() * (threads() / 32) + thread() / 32;
  bool given = i < p.rows;
  int label = given ? p.labels[i] : -1;
  bool used = label >= 0 && label < p.cols;
  int cols = given ? p.cols : 0; // dlogits may be logits: no other row is read
  const float *z = p.logits + i * p.logits_stride;
  float best = given ? z[0] : 0, target = used ? z[label] : best;
  for (int j = lane; j < cols; j += 32) best = larger(best, z[j]);
  UNROLL for (int d = 16; d; d /= 2) best = larger(best, shuffle_xor(best, d));
  int at = p.cols;
  double sum = 0;
  for (int j = cols - 1 - lane; j >= 0; j -= 32) {
    if (z[j] == best) at = j;
    sum = sum + double_exp((double)(z[j] - best));
  }
  UNROLL for (int d = 16; d; d /= 2) {
    int other = shuffle_xor(at, d);
    at = other < at ? other : at;
  }
  sum = warp_sum(sum);
  bool focal = OPTIONS && p.gamma > 0, smoothed = OPTIONS && !focal;
  double even = p.smoothing / p.cols, total = 0, dot = 0; // of smoothed targets
  if (smoothed) {
    for (int j = lane; j < cols; j += 32) {
      double t = (j == label ? even + (1 - p.smoothing) : even) * class_weight(p, j);
      total = total + t;
      dot = dot + t * (double)(z[j] - best);
    }
    total = warp_sum(total);
    dot = warp_sum(dot);
  }
  if (!given) return;
  float f = p.weights ? p.weights[i] : 1;
  double log = double_log(sum), inverse = 1 / sum, cost = log - (double)(target - best), by = 0, q = 0;
  if (smoothed) cost = total * log - dot;
  if (focal && used) {
    double lp = (double)(target - best) - log;
    q = -double_expm1(lp);
    Cost c = focus(p.gamma, lp, q, double_log(q));
    double w = class_weight(p, label);
    cost = w * c.cost;
    if (q > 0) by = w * (c.slope / q);
  }
  if (lane == 0) {
    RowLoss r = {0, {0, 0, 0, 0}};
    if (used) r.loss = (double)f * cost;
    r.counts[0] = used && at == label;
    r.counts[1] = label >= p.cols;
    p.row_losses[i] = r;
  }
  if (!p.dlogits) return;
  for (int j = lane; j < p.cols; j += 32) {
    float g = 0;
    if (used && focal) {
      g = (float)-((double)f * by * (j == label ? -q : double_exp((double)(z[j] - best)) * inverse));
    } else if (used && smoothed) {
      double t = (j == label ? even + (1 - p.smoothing) : even) * class_weight(p, j);
      g = (float)((double)f * (total * (double_exp((double)(z[j] - best)) * inverse) - t));
    } else if (used) {
      g = (float)(double_exp((double)(z[j] - best)) * inverse);
      if (j == label) g = g - 1;
      g = f * g;
    }
    p.dlogits[i * p.dlogits_stride + j] = g;
  }
}
KERNEL(256) softmax_loss(Losses p) { softmax_rows<false>(p); }
EXPORT(softmax_loss)
KERNEL(256) softmax_loss_options(Losses p) { softmax_rows<true>(p); }
EXPORT(softmax_loss_options)

// sigmoid_cost is LossOptions.sigmoid of cpu's: of label j, set or not, at a logit z, with softplus log(1 + e^z).
DEVICE Cost sigmoid_cost(const Losses &p, double z, double softplus, bool set, int j) {
  double w = class_weight(p, j);
  if (p.gamma > 0) {
    double lp = set ? z - softplus : -softplus, log_q = set ? lp - z : lp + z;
    Cost c = focus(p.gamma, lp, double_exp(log_q), log_q);
    return set ? Cost{w * c.cost, w * c.slope} : Cost{c.cost, -c.slope};
  }
  double t = (set ? 1 - p.smoothing : 0) + p.smoothing / 2, yes = w * t;
  return {yes * (softplus - z) + (1 - t) * softplus, (yes + 1 - t) * double_exp(z - softplus) - yes};
}

// A warp makes a row. counts: true and false positives, false negatives, and rows with every label right.
template <bool OPTIONS> DEVICE void sigmoid_rows(const Losses &p) {
  int lane = thread() % 32;
  i64 i = (i64)block_x() * (threads() / 32) + thread() / 32;
  bool given = i < p.rows;
  int row = given ? p.labels[i] : -1;
  bool used = row >= 0;
  double f = 1 / (double)p.cols, sum = 0;
  if (used && p.weights) f = f * (double)p.weights[i];
  int counts[3] = {0, 0, 0};
  for (int j = lane; given && j < p.cols; j += 32) {
    float g = 0;
    if (used) {
      double z = p.logits[i * p.logits_stride + j];
      bool y = p.targets[(i64)row * p.cols + j] != 0;
      double t = p.targets[(i64)row * p.cols + j], e = double_exp(z < 0 ? z : -z);
      double above = z > 0 ? z : z == z ? 0 : z, log = double_log1p(e);
      Cost c;
      if (OPTIONS) c = sigmoid_cost(p, z, above + log, y, j);
      else c = {above - z * t + log, (z < 0 ? e / (1 + e) : 1 / (1 + e)) - t};
      sum = sum + c.cost;
      counts[0] += z > 0 && y;
      counts[1] += z > 0 && !y;
      counts[2] += !(z > 0) && y;
      g = (float)(f * c.slope);
    }
    if (p.dlogits) p.dlogits[i * p.dlogits_stride + j] = g;
  }
  sum = warp_sum(sum);
  UNROLL for (int c = 0; c < 3; c++) counts[c] = warp_sum(counts[c]);
  if (given && lane == 0) {
    RowLoss r = {used ? f * sum : 0, {counts[0], counts[1], counts[2], used && counts[1] + counts[2] == 0}};
    p.row_losses[i] = r;
  }
}
KERNEL(256) sigmoid_loss(Losses p) { sigmoid_rows<false>(p); }
EXPORT(sigmoid_loss)
KERNEL(256) sigmoid_loss_options(Losses p) { sigmoid_rows<true>(p); }
EXPORT(sigmoid_loss_options)

// regression_loss is cpu's Regression, to the bit: a thread makes a row.
KERNEL(256) regression_loss(Losses p) {
  i64 i = (i64)block_x() * threads() + thread();
  if (i >= p.rows) return;
  Cost c = {0, 0};
  if (int row = p.labels[i]; row >= 0) {
    const int squared = 0, huber = 2;
    double d = (double)p.logits[i * p.logits_stride] - (double)p.values[row], a = d < 0 ? -d : d, sign = d < 0 ? -1 : 1;
    if (p.regression == squared) c = {d * d, 2 * d};
    else if (p.regression == huber && a < 1) c = {d * d / 2, d};
    else if (!(a > 0)) c = {a, d};
    else c = {p.regression == huber ? a - 0.5 : a, sign};
    double w = p.weights ? (double)p.weights[i] : 1;
    c = {w * c.cost, w * c.slope};
  }
  RowLoss r = {c.cost, {0, 0, 0, 0}};
  p.row_losses[i] = r;
  if (p.dlogits) p.dlogits[i * p.dlogits_stride] = (float)c.slope;
}
EXPORT(regression_loss)

// loss_sum adds rows up as the processor does: 64 at a time, and then those sums, in order.
KERNEL(256) loss_sum(Losses p) {
  SHARED RowLoss sums[256];
  const int loss_rows = 64;
  RowLoss all = {0, {0, 0, 0, 0}};
  for (i64 first = 0; first < p.rows; first += 256 * loss_rows) {
    RowLoss s = {0, {0, 0, 0, 0}};
    i64 i0 = first + thread() * loss_rows, i1 = i0 + loss_rows < p.rows ? i0 + loss_rows : p.rows;
#pragma unroll 8
    for (i64 i = i0; i < i1; i++) {
      s.loss = s.loss + p.row_losses[i].loss;
      UNROLL for (int c = 0; c < 4; c++) s.counts[c] += p.row_losses[i].counts[c];
    }
    sums[thread()] = s;
    barrier();
    for (int k = 0; thread() == 0 && k < 256 && first + k * loss_rows < p.rows; k++) {
      all.loss = all.loss + sums[k].loss;
      UNROLL for (int c = 0; c < 4; c++) all.counts[c] += sums[k].counts[c];
    }
    barrier();
  }
  if (thread() == 0) *p.result = all;
}
EXPORT(loss_sum)
