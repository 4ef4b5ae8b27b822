//===- TileModel.h - tensors bound to a plan of several phases ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_TILEMODEL_H
#define STEPC_TEST_SUPPORT_TILEMODEL_H

#include "support/Fixture.h"
#include "support/TileReference.h"

namespace stepc_test {

/// The optimizers of support/statistics.c and support/clip.c, loaded once.
StepcPackage *getLamb();
StepcPackage *getFactor();
StepcPackage *getClip();

/// Tensors with random gradients.
class TileModel {
public:
  TileModel(StepcPackage *package, std::vector<TensorSpec> specs,
            StepcPlanConfig config = {},
            std::vector<std::vector<double>> hypers = {{0.25, 0.5}});

  /// New values, in the same places.
  void fillGrads(uint32_t seed);
  void setGrads(const std::vector<bool> &missing);
  Floats getParam(size_t i) const { return get(params[i]); }
  Floats getGrad(size_t i) const { return get(*grads[i]); }
  std::vector<Floats> getGrads() const;
  Floats getState(size_t i, const char *name) const;
  /// All bits of a parameter and its states of these names.
  std::string bits(size_t i, std::vector<const char *> states = {}) const;

  std::vector<TensorSpec> specs;
  std::vector<Array> params;
  std::vector<std::unique_ptr<Array>> grads;
  std::vector<int64_t> ids;
  PlanPtr plan;

private:
  static Floats get(const Array &array);
};

/// The bits of values, each NaN as the same.
std::string bitsOf(const Floats &values);

/// f32 tensors of these shapes.
std::vector<TensorSpec> makeSpecs(std::vector<std::vector<int64_t>> shapes,
                                  Layout param = Layout::RowMajor,
                                  Layout grad = Layout::RowMajor);

/// Ways to cut the work: no result depends on them.
std::vector<StepcPlanConfig> getCuts();

} // namespace stepc_test

#endif // STEPC_TEST_SUPPORT_TILEMODEL_H
