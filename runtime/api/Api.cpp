//===- Api.cpp - the C ABI ------------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "api/StoreHandle.h"
#include "api/Structures.h"
#include "core/EntryBinder.h"
#include "core/Plan.h"
#include "core/Status.h"
#include "cpu/CpuFeatures.h"
#include "cpu/Engine.h"
#include "cpu/TeamLimit.h"
#include "cuda/Engine.h"
#include "stepc/cuda.h"

#include <algorithm>
#include <atomic>
#include <cstring>

using namespace stepc;

// The C ABI knows the engines: a plan begins with that of the processor.

struct StepcPackage {
  /// `name` is what messages call it.
  StepcPackage(const char *name, std::string_view bytes)
      : StepcPackage(name, ZipReader(name, bytes.data(), bytes.size())) {}

  std::shared_ptr<const Package> package;
  std::shared_ptr<const cpu::Code> code;

private:
  StepcPackage(const char *name, const ZipReader &zip)
      : package(std::make_shared<const Package>(name, zip)),
        code(std::make_shared<const cpu::Code>(package, zip)) {}
};

struct StepcPlan {
  StepcPlan(const StepcPackage &package, const StepcPlanConfig &config)
      : plan(package.package, config, [&](Model &model) {
          return std::make_unique<cpu::Engine>(model, package.code);
        }) {}

  Plan plan;
  /// Whether a thread is inside.
  mutable std::atomic<bool> busy{false};
};

namespace {

/// Keeps other threads out of a plan; they are refused, not made to wait.
class Entry {
public:
  explicit Entry(const StepcPlan *plan) : plan(plan) {
    entered = !plan->busy.exchange(true, std::memory_order_acquire);
  }
  ~Entry() {
    if (entered)
      plan->busy.store(false, std::memory_order_release);
  }
  explicit operator bool() const { return entered; }

private:
  const StepcPlan *plan;
  bool entered;
};

StepcStatus reportNull(const char *what) {
  return guarded([&] { requireNotNull(nullptr, what); });
}

StepcStatus reportBusy() {
  return report(STEPC_BUSY, "another thread is inside the plan");
}

/// Runs `body` on the plan when it can be used.
template <typename Body>
StepcStatus withPlan(const StepcPlan *handle, Body &&body) noexcept {
  if (!handle)
    return reportNull("plan");
  Entry entry(handle);
  if (!entry)
    return reportBusy();
  if (handle->plan.isPoisoned())
    return report(STEPC_POISONED,
                  "an earlier step of the plan failed midway, its tensors are "
                  "in an unknown state");
  return guarded(body);
}

/// More than any tensor has; and far from where sums would overflow.
constexpr int64_t kMaxChunkElements = int64_t(1) << 40;

StepcPlanConfig checkConfig(const StepcPlanConfig *given) {
  StepcPlanConfig config = {};
  config.structSize = sizeof(config);
  if (!given)
    return config;
  requireStructSize(given, sizeof(config), "StepcPlanConfig");
  if (given->numThreads < 0 || given->numThreads > 4096)
    fail(STEPC_INVALID_ARGUMENT, "numThreads is %d, outside 0 to 4096",
         int(given->numThreads));
  if (given->hugePages != 0 && given->hugePages != 1)
    fail(STEPC_INVALID_ARGUMENT, "hugePages is %d, neither 0 nor 1",
         int(given->hugePages));
  if (given->chunkElements < 0 || given->chunkElements > kMaxChunkElements)
    fail(STEPC_INVALID_ARGUMENT, "chunkElements is %lld, outside 0 to %lld",
         static_cast<long long>(given->chunkElements),
         static_cast<long long>(kMaxChunkElements));
  for (uint64_t field : given->reserved)
    if (field != 0)
      fail(STEPC_INVALID_ARGUMENT, "a reserved field of the config is not 0");
  return *given;
}

} // namespace

uint32_t stepcVersion(void) {
  return STEPC_VERSION_MAJOR * 1000 + STEPC_VERSION_MINOR;
}

const char *stepcCpuTarget(void) { return cpu::getCpuTarget(); }

const char *stepcStatusString(StepcStatus status) {
#define STEPC_CASE(name)                                                       \
  case name:                                                                   \
    return #name;
  switch (status) {
    STEPC_CASE(STEPC_OK)
    STEPC_CASE(STEPC_INVALID_ARGUMENT)
    STEPC_CASE(STEPC_FILE_ERROR)
    STEPC_CASE(STEPC_CORRUPT_PACKAGE)
    STEPC_CASE(STEPC_VERSION_MISMATCH)
    STEPC_CASE(STEPC_UNSUPPORTED_TARGET)
    STEPC_CASE(STEPC_UNKNOWN_NAME)
    STEPC_CASE(STEPC_SHAPE_MISMATCH)
    STEPC_CASE(STEPC_DTYPE_MISMATCH)
    STEPC_CASE(STEPC_DEVICE_MISMATCH)
    STEPC_CASE(STEPC_LAYOUT_UNSUPPORTED)
    STEPC_CASE(STEPC_OVERLAP)
    STEPC_CASE(STEPC_OUT_OF_MEMORY)
    STEPC_CASE(STEPC_BUSY)
    STEPC_CASE(STEPC_WRONG_STATE)
    STEPC_CASE(STEPC_NEEDS_BIND)
    STEPC_CASE(STEPC_POISONED)
    STEPC_CASE(STEPC_INTERNAL_ERROR)
    STEPC_CASE(STEPC_COMMUNICATION_ERROR)
    STEPC_CASE(STEPC_STALE_STATISTICS)
    STEPC_CASE(STEPC_DEVICE_ERROR)
    STEPC_CASE(STEPC_ABANDONED)
    STEPC_CASE(STEPC_STORE_ERROR)
  }
#undef STEPC_CASE
  return "STEPC_UNKNOWN_STATUS";
}

const char *stepcLastErrorMessage(void) { return lastMessage(); }

StepcStatus stepcPackageLoad(const char *path, StepcPackage **out) {
  if (!path)
    return reportNull("path");
  if (!out)
    return reportNull("out");
  return guarded([&] { *out = new StepcPackage(path, readFile(path)); });
}

StepcStatus stepcPackageLoadBytes(const void *bytes, size_t size,
                                  StepcPackage **out) {
  if (!bytes)
    return reportNull("bytes");
  if (!out)
    return reportNull("out");
  return guarded([&] {
    std::string_view view(static_cast<const char *>(bytes), size);
    *out = new StepcPackage("<memory>", view);
  });
}

StepcStatus stepcPackageManifest(const StepcPackage *package,
                                 const char **outJson, size_t *outSize) {
  if (!package)
    return reportNull("package");
  if (!outJson || !outSize)
    return reportNull("out");
  const std::string &text = package->package->getManifestText();
  *outJson = text.c_str();
  *outSize = text.size();
  return STEPC_OK;
}

void stepcPackageDestroy(StepcPackage *package) { delete package; }

StepcStatus stepcPlanCreate(StepcPackage *package,
                            const StepcPlanConfig *config, StepcPlan **out) {
  if (!package)
    return reportNull("package");
  if (!out)
    return reportNull("out");
  return guarded([&] { *out = new StepcPlan(*package, checkConfig(config)); });
}

void stepcPlanDestroy(StepcPlan *plan) { delete plan; }

StepcStatus stepcPlanAddGroup(StepcPlan *plan, const StepcOption *options,
                              int64_t numOptions, const double *hypers,
                              int64_t numHypers, int64_t *outGroup) {
  return withPlan(plan, [&] {
    int64_t group = plan->plan.addGroup(options, numOptions, hypers, numHypers);
    if (outGroup)
      *outGroup = group;
  });
}

StepcStatus stepcPlanSetHypers(StepcPlan *plan, int64_t group,
                               const double *hypers, int64_t numHypers) {
  return withPlan(plan,
                  [&] { plan->plan.setHypers(group, hypers, numHypers); });
}

StepcStatus stepcPlanSetMesh(StepcPlan *plan, const StepcAxis *axes,
                             int64_t numAxes,
                             const StepcCommunicator *communicator) {
  return withPlan(plan,
                  [&] { plan->plan.setMesh(axes, numAxes, communicator); });
}

StepcStatus stepcPlanBind(StepcPlan *plan, const StepcBinding *bindings,
                          int64_t n, int64_t *outIds) {
  return withPlan(plan, [&] { plan->plan.bind(bindings, n, outIds); });
}

StepcStatus stepcPlanSetStore(StepcPlan *plan, StepcStore *store) {
  if (!store)
    return reportNull("store");
  return withPlan(plan, [&] { plan->plan.setStore(store->store); });
}

StepcStatus stepcPlanSetBuckets(StepcPlan *plan, int64_t gradientBytes,
                                int64_t parameterBytes, int64_t underWay) {
  return withPlan(plan, [&] {
    plan->plan.setBuckets(
        makeBucketSizes(gradientBytes, parameterBytes, underWay));
  });
}

StepcStatus stepcGetParts(const StepcAxis *axes, int64_t numAxes,
                          const StepcBinding *bindings, int64_t n,
                          int64_t gradientBytes, int64_t parameterBytes,
                          int64_t *outBegin, int64_t *outEnd,
                          int64_t *outBucket) {
  if (n > 0 && (!outBegin || !outEnd))
    return reportNull(outBegin ? "outEnd" : "outBegin");
  return guarded([&] {
    cutParts(Mesh(axes, numAxes), bindings, n,
             makeBucketSizes(gradientBytes, parameterBytes, 0), outBegin,
             outEnd, outBucket);
  });
}

StepcStatus stepcPlanSetGrad(StepcPlan *plan, int64_t id,
                             const DLTensor *grad) {
  return withPlan(plan, [&] { plan->plan.setGrad(id, grad); });
}

StepcStatus stepcPlanSetParam(StepcPlan *plan, int64_t id,
                              const DLTensor *param) {
  return withPlan(plan, [&] { plan->plan.setParam(id, param); });
}

int32_t stepcPlanMoveGrad(StepcPlan *plan, int64_t id, const DLTensor *param,
                          const DLTensor *grad) {
  if (!plan || !param || !grad || plan->busy.load(std::memory_order_acquire) ||
      plan->plan.isPoisoned())
    return 0;
  return plan->plan.moveGrad(id, *param, *grad);
}

int32_t stepcLimitTeam(int32_t size) {
  return cpu::limitTeam(cpu::Workers(std::max(size, 0)).getTeamSize(),
                        /*tryAgain=*/false);
}

StepcStatus stepcPlanParametersWritten(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.parametersWritten(); });
}

StepcStatus stepcPlanSetTrace(StepcPlan *plan, StepcTrace trace, void *user) {
  return withPlan(plan, [&] { plan->plan.setTrace({trace, user}); });
}

StepcStatus stepcPlanSetCuda(StepcPlan *plan, const StepcCudaConfig *config) {
  if (!config)
    return reportNull("config");
  return withPlan(plan, [&] { cuda::setEngine(plan->plan, *config); });
}

StepcStatus stepcPlanSetStream(StepcPlan *plan, void *stream) {
  return withPlan(plan, [&] { plan->plan.setStream(stream); });
}

StepcStatus stepcPlanUpload(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.upload(); });
}

StepcStatus stepcStep(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.step(); });
}

StepcStatus stepcStepBegin(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.stepBegin(); });
}

StepcStatus stepcStepTensors(StepcPlan *plan, const int64_t *ids, int64_t n) {
  return withPlan(plan, [&] { plan->plan.stepTensors(ids, n); });
}

StepcStatus stepcGradReady(StepcPlan *plan, const int64_t *ids, int64_t n) {
  return withPlan(plan, [&] { plan->plan.gradReady(ids, n); });
}

StepcStatus stepcPlanFindUnused(StepcPlan *plan, int32_t enabled) {
  return withPlan(plan, [&] { plan->plan.findUnused(enabled != 0); });
}

StepcStatus stepcPlanShareSums(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.shareSums(); });
}

StepcStatus stepcGradAbsent(StepcPlan *plan, const int64_t *ids, int64_t n) {
  return withPlan(plan, [&] { plan->plan.gradAbsent(ids, n); });
}

StepcStatus stepcStepAbandon(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.stepAbandon(); });
}

StepcStatus stepcStepEnd(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.stepEnd(); });
}

StepcStatus stepcPassBegin(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.passBegin(); });
}

StepcStatus stepcPassEnd(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.passEnd(); });
}

StepcStatus stepcPlanForgetGrads(StepcPlan *plan) {
  return withPlan(plan, [&] { plan->plan.forgetGrads(); });
}

StepcStatus stepcPlanTakeGrads(StepcPlan *plan, StepcPlan *from) {
  if (!from)
    return reportNull("from");
  return withPlan(plan, [&] {
    StepcStatus status =
        withPlan(from, [&] { plan->plan.takeGrads(from->plan); });
    if (status != STEPC_OK)
      throw Error(status, stepcLastErrorMessage());
  });
}

StepcStatus stepcPlanGetGrad(const StepcPlan *plan, int64_t id, DLTensor *out) {
  if (!out)
    return reportNull("out");
  return withPlan(plan, [&] { plan->plan.getGrad(id, *out); });
}

StepcStatus stepcPlanGetCount(const StepcPlan *plan, int64_t id,
                              int64_t *outCount) {
  if (!outCount)
    return reportNull("outCount");
  return withPlan(plan, [&] { *outCount = plan->plan.getCount(id); });
}

StepcStatus stepcPlanSetCount(StepcPlan *plan, int64_t id, int64_t count) {
  return withPlan(plan, [&] { plan->plan.setCount(id, count); });
}

StepcStatus stepcPlanGetState(const StepcPlan *plan, int64_t id,
                              const char *name, DLTensor *out) {
  if (!out)
    return reportNull("out");
  return withPlan(plan, [&] { plan->plan.getState(id, name, false, *out); });
}

StepcStatus stepcPlanGetStateScales(const StepcPlan *plan, int64_t id,
                                    const char *name, DLTensor *out) {
  if (!out)
    return reportNull("out");
  return withPlan(plan, [&] { plan->plan.getState(id, name, true, *out); });
}

StepcStatus stepcPlanGetPart(const StepcPlan *plan, int64_t id,
                             int64_t *outBegin, int64_t *outEnd) {
  if (!outBegin || !outEnd)
    return reportNull(outBegin ? "outEnd" : "outBegin");
  return withPlan(plan, [&] { plan->plan.getPart(id, *outBegin, *outEnd); });
}

StepcStatus stepcPlanGetScalar(const StepcPlan *plan, int64_t group,
                               const char *name, double *outValue) {
  if (!outValue)
    return reportNull("outValue");
  return withPlan(plan, [&] { *outValue = plan->plan.getScalar(group, name); });
}

StepcStatus stepcPlanSetScalar(StepcPlan *plan, int64_t group, const char *name,
                               double value) {
  return withPlan(plan, [&] { plan->plan.setScalar(group, name, value); });
}

StepcStatus stepcPlanGetReport(const StepcPlan *plan, int64_t group,
                               const char *name, double *outValue) {
  if (!outValue)
    return reportNull("outValue");
  return withPlan(plan, [&] { *outValue = plan->plan.getReport(group, name); });
}

StepcStatus stepcPlanGetLastStep(const StepcPlan *plan, StepcLastStep *out) {
  if (!out)
    return reportNull("out");
  return withPlan(plan, [&] {
    copyOut(plan->plan.getLastStep(), sizeof(StepcLastStep), "StepcLastStep",
            out);
  });
}

StepcStatus stepcPlanGetInfo(const StepcPlan *plan, StepcPlanInfo *out) {
  if (!plan)
    return reportNull("plan");
  if (!out)
    return reportNull("out");
  // A poisoned plan can still be looked at.
  Entry entry(plan);
  if (!entry)
    return reportBusy();
  return guarded([&] {
    copyOut(plan->plan.getInfo(), offsetof(StepcPlanInfo, workspaceBytes),
            "StepcPlanInfo", out);
  });
}
