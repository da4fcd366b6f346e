// The activations, in the order of cpu.Activation.
#pragma once
#include "device.h"
enum { LINEAR, RECTIFIED, LEAKY_RECTIFIED, EXPONENTIAL_LINEAR };

DEVICE float exponential_linear(float v) {
  if (!(v <= 0)) return v;
  Exponential e = exponential_parts(v < -87.33654f ? -87.33654f : v);
  return e.s * e.q + (e.s - 1);
}
DEVICE float activate(int act, float v) {
  switch (act) {
  case RECTIFIED: return v <= 0 ? 0 : v;
  case LEAKY_RECTIFIED: return v <= 0 ? v * 0.01f : v;
  case EXPONENTIAL_LINEAR: return exponential_linear(v);
  }
  return v;
}
