//===- Overhead.cpp - what a step costs beside its kernels ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Prints, for 10 000 tensors of 64 elements: SetGrad of all, a step with
// kernels, and a step whose kernels do nothing; of one kernel, of two with a
// finish between them, and of three segments.
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

using namespace stepc_test;

/// The median of 21 runs in nanoseconds.
static double measure(const std::function<void()> &body) {
  std::vector<double> times;
  for (int i = 0; i < 21; ++i) {
    auto begin = std::chrono::steady_clock::now();
    body();
    std::chrono::duration<double, std::nano> time =
        std::chrono::steady_clock::now() - begin;
    times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

static nlohmann::json makeIdle(nlohmann::json manifest) {
  for (nlohmann::json &variant : manifest["variants"])
    for (nlohmann::json &entry : variant["schedule"])
      for (const char *key : {"kernel", "strided_kernel", "finish"})
        if (entry.contains(key))
          entry[key] =
              key == std::string("finish") ? "toy_idle_finish" : "toy_idle";
  return manifest;
}

int main() {
  constexpr int64_t kTensors = 10000, kElements = 64;
  // The same tensors with kernels that return at once.
  nlohmann::json toy = makeToyManifest(), lamb = makeLambManifest(),
                 clip = makeClipManifest();
  struct Case {
    const char *name;
    nlohmann::json manifest;
  } cases[] = {{"one kernel", toy},
               {"one kernel, idle", makeIdle(toy)},
               {"two kernels, a finish", lamb},
               {"two kernels, a finish, idle", makeIdle(lamb)},
               {"three segments", clip},
               {"three segments, idle", makeIdle(clip)}};
  for (const Case &each : cases) {
    PackagePtr package = loadManifest(each.manifest);
    PlanPtr plan = makePlan(package.get());
    stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr);
    std::vector<float> mirrors(kTensors), params(kTensors * kElements),
        grads(2 * kTensors * kElements);
    std::vector<int64_t> shape = {kElements}, strides = {1};
    std::vector<DLTensor> views(kTensors), gradViews(2 * kTensors);
    std::vector<StepcBinding> bindings;
    for (int64_t i = 0; i < kTensors; ++i) {
      views[i] = makeView(&params[i * kElements], Type::F32, shape, &strides);
      for (int64_t k = 0; k < 2; ++k)
        gradViews[k * kTensors + i] = makeView(
            &grads[(k * kTensors + i) * kElements], Type::F32, shape, &strides);
      bindings.push_back(makeBinding(nullptr, &views[i], &gradViews[i]));
      bindings.back().countMirror = &mirrors[i];
    }
    auto begin = std::chrono::steady_clock::now();
    if (stepcPlanBind(plan.get(), bindings.data(), kTensors, nullptr)) {
      std::printf("%s\n", stepcLastErrorMessage());
      return 1;
    }
    std::chrono::duration<double, std::milli> bindTime =
        std::chrono::steady_clock::now() - begin;
    int which = 0;
    double setGrad = measure([&] {
      which = !which;
      for (int64_t i = 0; i < kTensors; ++i)
        stepcPlanSetGrad(plan.get(), i, &gradViews[which * kTensors + i]);
    });
    double step = measure([&] { stepcStep(plan.get()); });
    double toggled = measure([&] {
      which = !which;
      stepcPlanSetGrad(plan.get(), 5, which ? nullptr : &gradViews[5]);
      stepcStep(plan.get());
    });
    std::printf("%s: bind %.1f ms, set gradients %.1f us (%.1f ns each), "
                "step %.1f us, step after a gradient went or came %.1f us\n",
                each.name, bindTime.count(), setGrad / 1e3, setGrad / kTensors,
                step / 1e3, toggled / 1e3);
  }
}
