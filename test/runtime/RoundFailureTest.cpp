//===- RoundFailureTest.cpp - workers that fail while others wait -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

using namespace stepc_test;

namespace {

/// A kernel, finish or round that fails while others wait for it.
TEST(Round, poisoned) {
  for (const char *where : {"kernel", "finish", "round"}) {
    SCOPED_TRACE(where);
    nlohmann::json manifest = makePlainManifest("throwing");
    nlohmann::json &variant = manifest["variants"][0];
    variant["space"] = "tiles";
    variant["tensor_slots"] = 1;
    bool inKernel = where == std::string("kernel");
    bool inFinish = where == std::string("finish");
    nlohmann::json kernel = variant["schedule"][0];
    for (const char *key : {"kernel", "strided_kernel"})
      kernel[key] = inKernel ? "throwing_tiles" : "quiet_tiles";
    setSchedule(variant,
                {kernel,
                 {{"finish", inFinish ? "throwing_finish" : "quiet_finish"},
                  {"segment", 0}},
                 kernel});
    variant["schedule"][2][inKernel ? "kernel" : "strided_kernel"] =
        "quiet_tiles";
    if (where == std::string("round"))
      manifest["rounds"].push_back(
          {{"calls",
            nlohmann::json::array({{{"function", "throwing_round"},
                                    {"scope", "model"},
                                    {"hypers", nlohmann::json::array()},
                                    {"options", nlohmann::json::array()},
                                    {"results", nlohmann::json::array()},
                                    {"may_skip", false},
                                    {"updates", nlohmann::json::array()}}})}});
    PackagePtr package =
        loadPackage(makePackage(manifest, readFile(STEPC_TEST_THROWING)));
    for (int threads : {1, 2, 5}) {
      PlanPtr plan = makePlan(package.get(), makeConfig(threads));
      ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
      Array param(Type::F32, {900000}), grad(Type::F32, {900000});
      StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
      ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, nullptr));
      EXPECT_STATUS(STEPC_INTERNAL_ERROR, stepcStep(plan.get()));
      EXPECT_STATUS(STEPC_POISONED, stepcStep(plan.get()));
    }
  }
}

} // namespace
