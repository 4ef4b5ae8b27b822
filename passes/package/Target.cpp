//===- Target.cpp - what code is made for ---------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/Target.h"

#include "stepc/kernel_abi.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir::step;
using llvm::StringRef;

static constexpr StringRef kV3Features[] = {STEPC_X86_64_V3_FEATURES};
static constexpr StringRef kV4Features[] = {STEPC_X86_64_V4_FEATURES};
static constexpr StringRef kV4WideFeatures[] = {STEPC_X86_64_V4_512_FEATURES};
/// prefetchw is no part of x86-64-v3, but a no-op where it is missing.
/// PTX 8.0 is of CUDA 12.0; devices of 10.0 need PTX 8.6.
static constexpr Target kTargets[] = {
    {"x86-64-v3", CodeKind::SharedObject, "x86-64-v3", "+prfchw", kV3Features,
     0},
    {"x86-64-v4", CodeKind::SharedObject, "x86-64-v4", "+prfchw", kV4Features,
     0, /*vectorWidth=*/256, /*avx512=*/true},
    {"x86-64-v4-512", CodeKind::SharedObject, "x86-64-v4", "+prfchw",
     kV4WideFeatures, 0, /*vectorWidth=*/512, /*avx512=*/true},
    {"sm_80", CodeKind::Cubin, "sm_80", "+ptx80", {}, 80},
    {"sm_90", CodeKind::Cubin, "sm_90", "+ptx80", {}, 90},
    {"sm_100", CodeKind::Cubin, "sm_100", "+ptx86", {}, 100},
    {"compute_80", CodeKind::PTX, "sm_80", "+ptx80", {}, 80},
    {"compute_90", CodeKind::PTX, "sm_90", "+ptx80", {}, 90},
    {"compute_100", CodeKind::PTX, "sm_100", "+ptx86", {}, 100}};

std::string Target::getFile() const {
  StringRef extension = kind == CodeKind::SharedObject ? ".so"
                        : kind == CodeKind::PTX        ? ".ptx"
                                                       : ".cubin";
  return ("code/" + name + extension).str();
}

const Target *mlir::step::getDefaultTarget() { return &kTargets[0]; }

static const Target *findTarget(StringRef name, bool hasAssembler) {
  if (name == "cpu")
    name = "x86-64-v3";
  for (const Target &target : kTargets) {
    if (target.name != name)
      continue;
    if (target.kind != CodeKind::Cubin || hasAssembler)
      return &target;
    return llvm::find_if(kTargets, [&](const Target &other) {
      return other.kind == CodeKind::PTX && other.cpu == target.cpu;
    });
  }
  return nullptr;
}

llvm::Expected<std::vector<const Target *>>
mlir::step::readTargets(StringRef list, bool hasAssembler) {
  std::vector<const Target *> targets;
  auto add = [&](const Target *target) {
    if (!llvm::is_contained(targets, target))
      targets.push_back(target);
  };
  llvm::SmallVector<StringRef> names;
  list.split(names, ',');
  for (StringRef name : names) {
    if (name == "cuda") {
      for (const Target &target : kTargets)
        if (target.kind == CodeKind::Cubin && hasAssembler)
          add(&target);
      add(findTarget("compute_80", hasAssembler));
      continue;
    }
    const Target *target = findTarget(name, hasAssembler);
    if (!target)
      return llvm::createStringError(
          "no target '" + name +
          "'; there are cpu, x86-64-v3, x86-64-v4, x86-64-v4-512, cuda, sm_80, "
          "sm_90, "
          "sm_100, compute_80, compute_90 and compute_100");
    add(target);
  }
  return targets;
}
