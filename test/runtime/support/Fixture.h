//===- Fixture.h - packages, plans and models for tests -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_FIXTURE_H
#define STEPC_TEST_SUPPORT_FIXTURE_H

#include "support/Arrays.h"
#include "support/PackageWriter.h"
#include "support/Reference.h"

#include "stepc/describe.h"

#include "gtest/gtest.h"

#include <memory>
#include <string>
#include <vector>

namespace stepc_test {

struct PackageDeleter {
  void operator()(StepcPackage *package) const { stepcPackageDestroy(package); }
};
struct PlanDeleter {
  void operator()(StepcPlan *plan) const { stepcPlanDestroy(plan); }
};
struct InterfaceDeleter {
  void operator()(StepcInterface *interface) const {
    stepcInterfaceDestroy(interface);
  }
};
struct DescriptionDeleter {
  void operator()(const StepcDescription *description) const {
    stepcDescriptionDestroy(description);
  }
};
using PackagePtr = std::unique_ptr<StepcPackage, PackageDeleter>;
using PlanPtr = std::unique_ptr<StepcPlan, PlanDeleter>;
using InterfacePtr = std::unique_ptr<StepcInterface, InterfaceDeleter>;
using DescriptionPtr =
    std::unique_ptr<const StepcDescription, DescriptionDeleter>;

/// Checks a status, and shows the message when it is another.
#define EXPECT_STATUS(expected, call)                                          \
  do {                                                                         \
    StepcStatus status_ = (call);                                              \
    EXPECT_EQ(stepcStatusString(expected), stepcStatusString(status_))         \
        << "message: " << stepcLastErrorMessage();                             \
  } while (0)
#define ASSERT_OK(call)                                                        \
  do {                                                                         \
    StepcStatus status_ = (call);                                              \
    ASSERT_EQ(STEPC_OK, status_) << stepcLastErrorMessage();                   \
  } while (0)
/// Checks a refusal and all of its message.
#define EXPECT_REFUSED(expected, message, call)                                \
  do {                                                                         \
    EXPECT_STATUS(expected, call);                                             \
    EXPECT_STREQ(message, stepcLastErrorMessage());                            \
  } while (0)

/// Loads bytes that must be good.
PackagePtr loadPackage(const std::string &bytes);
/// A package of the test kernels with a manifest that must be good.
PackagePtr loadManifest(const nlohmann::json &manifest);
/// An interface, or a manifest, that must be good.
InterfacePtr loadInterface(const std::string &text);
/// A whole tensor, of which no variant is asked for.
StepcTensorQuery makeQuery(const char *name, const std::vector<int64_t> &shape,
                           const int64_t *options);
/// The answer to queries that must be good.
DescriptionPtr describe(const StepcInterface *interface,
                        const std::vector<StepcTensorQuery> &queries);
/// The toy optimizer, loaded once.
StepcPackage *getToy();
PlanPtr makePlan(StepcPackage *package, StepcPlanConfig config = {});
StepcPlanConfig makeConfig(int numThreads, int64_t chunkElements = 0);
StepcBinding makeBinding(const char *name, const DLTensor *param,
                         const DLTensor *grad, int64_t group = 0);
StepcPlanInfo getInfo(StepcPlan *plan);
/// The state's values in row-major order.
std::vector<double> readState(StepcPlan *plan, int64_t id, const char *name);

struct TensorSpec {
  Type type = Type::F32;
  std::vector<int64_t> shape;
  Layout param = Layout::RowMajor;
  Layout grad = Layout::RowMajor;
  Layout state = Layout::RowMajor;
  int64_t misalignment = 0;
  int64_t group = 0;
};

struct GroupSpec {
  Hypers hypers;
  bool maximize = false;
};

/// Tensors bound to a plan of the toy optimizer beside their reference.
class Model {
public:
  Model(std::vector<TensorSpec> specs, StepcPlanConfig config = {},
        std::vector<GroupSpec> groups = {{}}, bool ownStates = true,
        bool special = false);

  /// New gradient values, in new memory when `move`.
  void makeGrads(bool move = false);
  /// Tells the plan where the gradients are; `missing` ones have none.
  void setGrads(const std::vector<bool> &missing = {});
  void setHypers(int64_t group, Hypers hypers);
  /// One step of the reference for the tensors that have a gradient.
  void stepReference(const std::vector<bool> &missing = {});
  /// makeGrads, setGrads, stepcStep, stepReference.
  void step(const std::vector<bool> &missing = {}, bool move = true);
  /// Compares every bit.
  void check() const;
  /// All bits of all parameters and states.
  std::string bits() const;

  std::vector<TensorSpec> specs;
  std::vector<GroupSpec> groups;
  std::vector<Array> params;
  std::vector<std::unique_ptr<Array>> grads;
  std::vector<ToyTensor> references;
  std::vector<int64_t> ids;
  PlanPtr plan;

private:
  std::vector<double> getGrad(size_t i) const;

  /// The caller's states, where it brings its own.
  std::vector<std::vector<Array>> states;
  bool special;
  uint32_t seed = 1;
};

} // namespace stepc_test

#endif // STEPC_TEST_SUPPORT_FIXTURE_H
