//===- CpuFeatures.cpp - what this processor can run ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/CpuFeatures.h"

#include "stepc/kernel_abi.h"

#include <cpuid.h>

using namespace stepc;
using namespace stepc::cpu;

namespace {

/// Whether operations of 512 bits take no longer than those of 256 and lower no
/// clock: Zen 5 (family 26) and later of AMD, of which small models have
/// narrower ones and run it all the same. On others half the width was not
/// slower where it was measured (docs/rationale-passes.md).
bool hasWideUnits() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__builtin_cpu_is("amd") || !__get_cpuid(1, &eax, &ebx, &ecx, &edx))
    return false;
  const unsigned family = (eax >> 8 & 0xf) + (eax >> 20 & 0xff);
  return family >= 26;
}

/// __builtin_cpu_supports also asks xgetbv whether the system saves the
/// registers that a feature needs.
bool hasFeature(const std::string &name) {
#define STEPC_FEATURE(feature)                                                 \
  if (name == feature)                                                         \
    return __builtin_cpu_supports(feature);
  STEPC_FEATURE("sse3")
  STEPC_FEATURE("ssse3")
  STEPC_FEATURE("sse4.1")
  STEPC_FEATURE("sse4.2")
  STEPC_FEATURE("popcnt")
  STEPC_FEATURE("avx")
  STEPC_FEATURE("avx2")
  STEPC_FEATURE("bmi")
  STEPC_FEATURE("bmi2")
  STEPC_FEATURE("f16c")
  STEPC_FEATURE("fma")
  STEPC_FEATURE("lzcnt")
  STEPC_FEATURE("movbe")
  STEPC_FEATURE("avx512f")
  STEPC_FEATURE("avx512bw")
  STEPC_FEATURE("avx512cd")
  STEPC_FEATURE("avx512dq")
  STEPC_FEATURE("avx512vl")
  STEPC_FEATURE("avx512bf16")
#undef STEPC_FEATURE
  return name == "wide512" && hasWideUnits();
}

} // namespace

std::string
stepc::cpu::getMissingCpuFeatures(const std::vector<std::string> &features) {
  __builtin_cpu_init();
  std::string missing;
  for (const std::string &feature : features)
    if (!hasFeature(feature))
      missing += (missing.empty() ? "" : ", ") + feature;
  return missing;
}

const char *stepc::cpu::getCpuTarget() {
  if (getMissingCpuFeatures({STEPC_X86_64_V4_512_FEATURES}).empty())
    return "x86-64-v4-512";
  if (getMissingCpuFeatures({STEPC_X86_64_V4_FEATURES}).empty())
    return "x86-64-v4";
  if (getMissingCpuFeatures({STEPC_X86_64_V3_FEATURES}).empty())
    return "x86-64-v3";
  return "";
}
