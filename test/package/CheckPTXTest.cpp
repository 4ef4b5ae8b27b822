//===- CheckPTXTest.cpp - what is refused in device code ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/CodeGen.h"

#include <gtest/gtest.h>

using namespace mlir::step;

namespace {
struct Refusal {
  const char *line, *message;
};

std::string check(const std::string &line) {
  llvm::Error error = checkPTX(".version 8.0\n.visible .entry kernel()\n{\n\t" +
                               line + "\n\tret;\n}\n");
  return error ? llvm::toString(std::move(error)) : "";
}

class Refused : public testing::TestWithParam<Refusal> {};
} // namespace

TEST_P(Refused, IsNamed) {
  EXPECT_EQ(check(GetParam().line), "the device's code has '" +
                                        std::string(GetParam().line) +
                                        "', which " + GetParam().message);
}

/// Each message, and each of the ways to get it.
INSTANTIATE_TEST_SUITE_P(
    CheckPTX, Refused,
    testing::Values(
        Refusal{"sqrt.approx.f32 \t%r1, %r2;", "is approximate"},
        Refusal{"add.rn.ftz.f32 \t%r1, %r2, %r3;", "flushes denormals"},
        Refusal{"fma.rn.f32 \t%r1, %r2, %r3, %r4;", "is a fused multiply-add"},
        Refusal{"mad.rn.f32 \t%r1, %r2, %r3, %r4;", "is a fused multiply-add"},
        Refusal{"add.f32 \t%r1, %r2, %r3;",
                "may be fused, it has no rounding mode"},
        Refusal{"sub.f64 \t%rd1, %rd2, %rd3;",
                "may be fused, it has no rounding mode"},
        Refusal{"mul.f32 \t%r1, %r2, %r3;",
                "may be fused, it has no rounding mode"},
        Refusal{".extern .func (.param .b32 out) expf(.param .b32 in)",
                "is outside of the module"},
        Refusal{"st.local.b32 \t[%rd1], %r1;", "is in local memory"},
        Refusal{".local .align 8 .b8 \t__local_depot0[64];",
                "is in local memory"},
        Refusal{"atom.global.add.f32 \t%r1, [%rd1], %r2;",
                "has no fixed order"},
        Refusal{"red.global.add.f32 \t[%rd1], %r1;", "has no fixed order"}));

TEST(CheckPTX, LooksBehindPredicates) {
  EXPECT_EQ(check("@%p1 atom.global.add.f32 \t%r1, [%rd1], %r2;"),
            "the device's code has 'atom.global.add.f32 \t%r1, [%rd1], %r2;', "
            "which has no fixed order");
}

TEST(CheckPTX, LetsPassWhatKernelsAreMadeOf) {
  for (const char *line :
       {"add.rn.f32 \t%r1, %r2, %r3;", "add.s64 \t%rd1, %rd2, %rd3;",
        "sqrt.rn.f64 \t%rd1, %rd2;", "mad.lo.s64 \t%rd1, %rd2, %rd3, %rd4;",
        "bar.sync \t0;", "shfl.sync.bfly.b32 \t%r1, %r2, 8, 31, -1;",
        "st.shared.b32 \t[%rd1], %r1;",
        ".shared .align 16 .b8 staged_f32[36864];",
        "// fma.rn.f32 in a remark"})
    EXPECT_EQ(check(line), "");
}

TEST(CheckPTX, ProductsAloneMayFuse) {
  auto checkFunction = [](const std::string &name) {
    return check("ret;\n}\n.func " + name +
                 "()\n{\n\tfma.rn.f32 \t%r1, %r2, %r3, %r4;");
  };
  EXPECT_EQ(checkFunction("product$of_f32_f32_f32_"), "");
  // What a definition may be called.
  EXPECT_EQ(
      checkFunction("product_sgd_any_0_phase0"),
      "the device's code has 'fma.rn.f32 \t%r1, %r2, %r3, %r4;', which is "
      "a fused multiply-add");
}
