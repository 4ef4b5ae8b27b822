//===- TileReference.cpp - what support/statistics.c means --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/TileReference.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace stepc_test;

/// By halving at the largest power of two below the size: the same tree as
/// neighbours pairwise, an odd last one passed on.
static double sumPairs(const Values &leaves, size_t begin, size_t end) {
  if (begin == end)
    return 0.0;
  if (end - begin == 1)
    return leaves[begin];
  size_t half = 1;
  while (2 * half < end - begin)
    half *= 2;
  return sumPairs(leaves, begin, begin + half) +
         sumPairs(leaves, begin + half, end);
}

double stepc_test::sumLanes(const Values &values) {
  Values leaves;
  for (size_t begin = 0; begin < values.size(); begin += 1024) {
    size_t end = std::min(values.size(), begin + 1024);
    double lane[16] = {};
    for (size_t i = begin; i < end; ++i)
      lane[i % 16] += values[i];
    for (int width : {8, 4, 2, 1})
      for (int k = 0; k < width; ++k)
        lane[k] = lane[k] + lane[k + width];
    leaves.push_back(lane[0]);
  }
  return sumPairs(leaves, 0, leaves.size());
}

double stepc_test::sumSequence(const Values &values) {
  Values leaves;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 64 == 0)
      leaves.push_back(0.0);
    leaves.back() += values[i];
  }
  return sumPairs(leaves, 0, leaves.size());
}

static double sumSquares(const Floats &values) {
  Values squares;
  for (float value : values)
    squares.push_back(double(value) * double(value));
  return sumLanes(squares);
}

void LambTensor::step(const Floats &grad, double lr, double decay) {
  Floats update;
  for (size_t i = 0; i < param.size(); ++i) {
    float kept = 0.9f * moment[i];
    float added = 0.1f * grad[i];
    moment[i] = kept + added;
    float decayed = float(decay) * param[i];
    update.push_back(moment[i] + decayed);
  }
  double weight = std::sqrt(sumSquares(param));
  double norm = std::sqrt(sumSquares(update));
  if (norm == 0.0)
    return;
  float rate = float(lr * ((weight == 0.0 ? 1.0 : weight) / norm));
  for (size_t i = 0; i < param.size(); ++i) {
    float scaled = rate * update[i];
    param[i] -= scaled;
  }
}

void FactorTensor::step(const Floats &grad, double lr) {
  auto square = [&](int64_t k, int64_t y, int64_t x) {
    double value = grad[size_t((k * n + y) * m + x)];
    return value * value;
  };
  auto keep = [](float &state, double mean) {
    float half = 0.5f * float(mean);
    float kept = 0.5f * state;
    state = kept + half;
  };
  for (int64_t k = 0; k < b; ++k) {
    for (int64_t y = 0; y < n; ++y) {
      Values line;
      for (int64_t x = 0; x < m; ++x)
        line.push_back(square(k, y, x));
      keep(rows[size_t(k * n + y)], sumLanes(line) / double(m));
    }
    for (int64_t x = 0; x < m; ++x) {
      Values line;
      for (int64_t y = 0; y < n; ++y)
        line.push_back(square(k, y, x));
      keep(columns[size_t(k * m + x)], sumSequence(line) / double(n));
    }
  }
  for (int64_t k = 0; k < b; ++k)
    for (int64_t y = 0; y < n; ++y)
      for (int64_t x = 0; x < m; ++x) {
        float second = rows[size_t(k * n + y)] * columns[size_t(k * m + x)];
        float denominator = std::sqrt(second + 0.001f);
        float update = grad[size_t((k * n + y) * m + x)] / denominator;
        update = float(lr) * update;
        param[size_t((k * n + y) * m + x)] -= update;
      }
}

bool ClipModel::step(const std::vector<Floats> &grads,
                     const std::vector<bool> &missing, const Values &lr,
                     double maxNorm) {
  Values norms, moved;
  std::vector<Values> totals(d.size());
  std::vector<bool> active(d.size());
  double largest = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < tensors.size(); ++i) {
    size_t group = size_t(tensors[i].group);
    Values absolute;
    for (float g : missing[i] ? Floats() : grads[i]) {
      absolute.push_back(d[group] * std::fabs(double(g)));
      if (std::fabs(double(g)) > largest || std::isnan(g))
        largest = std::fabs(double(g));
    }
    norms.push_back(missing[i] ? 0.0 : sumSquares(grads[i]));
    totals[group].push_back(sumLanes(absolute));
    active[group] = active[group] || !missing[i];
  }
  bool skip = !std::isfinite(largest);
  scale = skip ? 0.5 * scale : scale + 1.0;
  double norm = std::sqrt(sumSequence(norms));
  double coefficient = maxNorm / norm < 1.0 ? maxNorm / norm : 1.0;
  results = {coefficient, norm};
  if (skip)
    return true;
  steps += 1.0;
  for (size_t g = 0; g < d.size(); ++g)
    if (active[g])
      d[g] = d[g] + 0.5 * sumSequence(totals[g]) + 0.125;
  std::vector<Floats> updates(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!missing[i])
      for (float g : grads[i])
        updates[i].push_back(float(coefficient * d[size_t(tensors[i].group)]) *
                             g);
    moved.push_back(sumSquares(updates[i]));
  }
  double factor = 1.0 / (1.0 + sumSequence(moved));
  for (size_t i = 0; i < tensors.size(); ++i)
    for (size_t k = 0; k < updates[i].size(); ++k) {
      float step = float(lr[size_t(tensors[i].group)] * factor) * updates[i][k];
      tensors[i].param[k] -= step;
    }
  return false;
}
