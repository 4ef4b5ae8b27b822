//===- FloatModeTest.cpp - callers with another float mode or locale ------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nothing depends on the mode in which the caller computes, nor on its locale:
// not the defaults of a package, nor what states begin as, nor what a step
// leaves, nor what a message says. And the caller's mode stays what it was.
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <cfenv>
#include <clocale>
#include <cstdlib>
#include <functional>
#include <immintrin.h>

using namespace stepc_test;
using nlohmann::json;

namespace {

constexpr unsigned kTraps = 0x1f80; // set: masked

/// The MXCSR of the calling thread, and the rounding of x87 with it.
struct Mode {
  const char *name;
  unsigned bits;
  int rounding = FE_TONEAREST;
};
const Mode kModes[] = {{"nearest", 0},
                       {"down", 0x2000, FE_DOWNWARD},
                       {"up", 0x4000, FE_UPWARD},
                       {"to zero", 0x6000, FE_TOWARDZERO},
                       {"no denormals", 0x8040},
                       {"up, no denormals", 0xc040, FE_UPWARD}};

/// Runs `body` in a mode, with traps where `traps`; returns the MXCSR after it.
unsigned runIn(const Mode &mode, bool traps,
               const std::function<void()> &body) {
  fenv_t before;
  std::fegetenv(&before);
  std::fesetround(mode.rounding);
  unsigned wanted = (traps ? 0u : kTraps) | mode.bits;
  _mm_setcsr(wanted);
  body();
  unsigned after = _mm_getcsr();
  std::fesetenv(&before);
  EXPECT_EQ(wanted, after) << mode.name;
  return after;
}

/// States that begin as numbers that bf16, f32 and f64 do not have, and which
/// flushing to zero would lose; defaults that are in no format.
std::string makeOddPackage() {
  json manifest = makeToyManifest();
  manifest["hypers"][0]["default"] = 0.3;
  manifest["hypers"][1]["default"] = 0.7;
  manifest["hypers"][2]["default"] = 5e-310;
  for (json &variant : manifest["variants"])
    for (json &operand : variant["operands"])
      if (operand["role"] == "state")
        operand["init"] = variant["compute"] == "f64" ? 3e-310 : 0.7;
  return makePackage(manifest, readFile(STEPC_TEST_KERNELS));
}

/// All bits of a life: loading, defaults, states before and after a step.
std::string live(const std::string &bytes, Type type) {
  std::string found;
  PackagePtr package = loadPackage(bytes);
  PlanPtr plan = makePlan(package.get());
  int64_t group, id;
  EXPECT_EQ(STEPC_OK,
            stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, &group));
  Array param(type, {5}), grad(type, {5});
  for (int64_t i = 0; i < 5; ++i) {
    param.set(i, double(i - 2));
    grad.set(i, double(i) / 4);
  }
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  EXPECT_EQ(STEPC_OK, stepcPlanBind(plan.get(), &binding, 1, &id))
      << stepcLastErrorMessage();
  for (int step = 0; step < 3; ++step) {
    for (const char *name : {"second", "momentum_buffer"})
      for (double value : readState(plan.get(), id, name))
        found.append(reinterpret_cast<const char *>(&value), sizeof(value));
    found += param.bits();
    EXPECT_EQ(STEPC_OK, stepcStep(plan.get())) << stepcLastErrorMessage();
  }
  return found;
}

/// What is said of a hyper-parameter that would change an option.
std::string refuse(double momentum) {
  PlanPtr plan = makePlan(getToy());
  int64_t group, id;
  const double first[] = {0.1, 0.0, 0.1}, then[] = {0.1, momentum, 0.1};
  EXPECT_EQ(STEPC_OK,
            stepcPlanAddGroup(plan.get(), nullptr, 0, first, 3, &group));
  Array param(Type::F32, {5}), grad(Type::F32, {5});
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  EXPECT_EQ(STEPC_OK, stepcPlanBind(plan.get(), &binding, 1, &id));
  EXPECT_EQ(STEPC_NEEDS_BIND, stepcPlanSetHypers(plan.get(), group, then, 3));
  return stepcLastErrorMessage();
}

TEST(FloatMode, whatAPackageSaysIsTheSameInEach) {
  std::string bytes = makeOddPackage();
  for (Type type : {Type::F32, Type::F64, Type::BF16}) {
    std::string expected = live(bytes, type);
    for (const Mode &mode : kModes)
      for (bool traps : {false, true}) {
        std::string found;
        runIn(mode, traps, [&] { found = live(bytes, type); });
        EXPECT_EQ(expected, found) << mode.name << (traps ? ", traps" : "");
      }
  }
}

TEST(FloatMode, messagesAreTheSameInEach) {
  for (const Mode &mode : kModes) {
    std::string found;
    runIn(mode, false, [&] { found = refuse(0.7); });
    EXPECT_NE(std::string::npos, found.find("since 'momentum' becomes 0.7"))
        << mode.name << ": " << found;
  }
}

/// A locale with a decimal comma, made here: few machines have one.
TEST(FloatMode, aLocaleIsNotAsked) {
  std::string bytes = makeOddPackage(), folder = testing::TempDir();
  std::string expected = live(bytes, Type::F32);
  std::string make = "localedef -i de_DE -f UTF-8 '" + folder +
                     "/de_DE.UTF-8' >/dev/null 2>&1";
  ASSERT_EQ(0, std::system(make.c_str())) << "localedef cannot make de_DE";
  setenv("LOCPATH", folder.c_str(), 1);
  ASSERT_NE(nullptr, std::setlocale(LC_ALL, "de_DE.UTF-8"));
  EXPECT_STREQ(",", std::localeconv()->decimal_point);
  std::string found = live(bytes, Type::F32), words = refuse(0.7);
  std::setlocale(LC_ALL, "C");
  unsetenv("LOCPATH");
  EXPECT_EQ(expected, found);
  EXPECT_NE(std::string::npos, words.find("becomes 0.7")) << words;
}

} // namespace
