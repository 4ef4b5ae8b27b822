//===- Manifest.cpp - what a package says about itself --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/Manifest.h"
#include "stepc/kernel_abi.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;

/// prefetchw is no part of x86-64-v3, but a no-op where it is missing.
static constexpr StringRef kV3Features[] = {"avx",  "avx2", "bmi",   "bmi2",
                                            "f16c", "fma",  "lzcnt", "movbe"};
static constexpr Target kTargets[] = {
    {"x86-64-v3", "x86-64-v3", "+prfchw", kV3Features}};

const Target *mlir::step::findTarget(StringRef name) {
  if (name == "cpu")
    return &kTargets[0];
  for (const Target &target : kTargets)
    if (target.name == name)
      return &target;
  return nullptr;
}

static json::Array toJson(ArrayRef<StringAttr> dims) {
  json::Array array;
  for (StringAttr dim : dims)
    array.push_back(dim.getValue());
  return array;
}

static std::string toString(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

static json::Object describe(OptionOp option) {
  json::Object object{{"name", option.getName()}};
  if (option.isInteger()) {
    object["default"] = option.getDefaultIntegerAttr().getInt();
    return object;
  }
  if (!option.isDerived()) {
    object["default"] = *option.getDefaultValue();
    return object;
  }
  object["derived"] = json::Object{
      {"hyper", option.getHyper().getDefiningOp<HyperOp>().getName()},
      {"predicate", stringifyPredicate(*option.getPredicate())},
      {"value", option.getThresholdAttr().getValueAsDouble()}};
  return object;
}

static json::Object describe(RuleOp rule) {
  json::Array states;
  for (BlockArgument argument : rule.getBody().getArguments()) {
    RoleAttr role = rule.getRole(argument.getArgNumber());
    if (role.getKind() != RoleKind::State)
      continue;
    Value guard = rule.getGuard(argument.getArgNumber());
    states.push_back(json::Object{
        {"name", role.getName().getValue()},
        {"dims", toJson(getDims(argument.getType()))},
        {"init", role.getInit().getValueAsDouble()},
        {"guard", guard ? json::Value(guard.getDefiningOp<OptionOp>().getName())
                        : json::Value(nullptr)}});
  }
  return json::Object{{"name", rule.getSymName()},
                      {"states", std::move(states)}};
}

json::Object mlir::step::buildInterface(OptimizerOp optimizer) {
  json::Array hypers, options, rules;
  for (Operation &op : optimizer.getBody().front()) {
    if (auto hyper = dyn_cast<HyperOp>(op))
      hypers.push_back(
          json::Object{{"name", hyper.getName()},
                       {"default", hyper.getDefaultValue().convertToDouble()}});
    else if (auto option = dyn_cast<OptionOp>(op))
      options.push_back(describe(option));
    else if (auto rule = dyn_cast<RuleOp>(op))
      rules.push_back(describe(rule));
  }
  return json::Object{{"optimizer", optimizer.getSymName()},
                      {"hypers", std::move(hypers)},
                      {"options", std::move(options)},
                      {"rules", std::move(rules)}};
}

static json::Object describe(OperandAttr operand) {
  json::Object object{{"role", stringifyRoleKind(operand.getKind())},
                      {"name", operand.getName().getValue()},
                      {"dims", toJson(getDims(operand.getShape()))},
                      {"storage", toString(operand.getStorage())},
                      {"reads", operand.getReads()},
                      {"writes", operand.getWrites()}};
  if (operand.getInit())
    object["init"] = operand.getInit().getValueAsDouble();
  return object;
}

static json::Object describe(ProgramOp program) {
  json::Object options;
  for (NamedAttribute option : program.getVariant().getOptions())
    options[option.getName().getValue()] =
        cast<BoolAttr>(option.getValue()).getValue();
  json::Array operands, schedule;
  for (auto operand : program.getOperands().getAsRange<OperandAttr>())
    operands.push_back(describe(operand));
  for (auto phase : program.getBody().getOps<PhaseOp>())
    schedule.push_back(json::Object{
        {"kernel", phase.getSymName()},
        {"strided_kernel", (phase.getSymName() + "_strided").str()}});
  ScalarPhaseOp scalars = program.getScalarPhase();
  return json::Object{
      {"name", program.getSymName()},
      {"rule", program.getVariant().getRule().getValue()},
      {"options", std::move(options)},
      {"compute", toString(program.getVariant().getCompute())},
      {"operands", std::move(operands)},
      {"scalars", json::Object{{"function", scalars.getSymName()},
                               {"slots", scalars.getNumSlots()}}},
      {"schedule", std::move(schedule)},
      // No rule sees another tensor, so tensors may be stepped in any parts.
      {"subsets", true}};
}

json::Object mlir::step::buildManifest(json::Object interface,
                                       OptimizerOp scheduled,
                                       const Target &target) {
  json::Object manifest = std::move(interface);
  manifest["format"] = 1;
  manifest["kernel_abi"] = STEPC_KERNEL_ABI_VERSION;
  manifest["compiler"] = "stepc 0.1.0 (LLVM " LLVM_VERSION_STRING ")";
  json::Array variants, features;
  for (auto program : scheduled.getBody().getOps<ProgramOp>())
    variants.push_back(describe(program));
  for (StringRef feature : target.cpuFeatures)
    features.push_back(feature);
  manifest["variants"] = std::move(variants);
  manifest["code"] =
      json::Array{json::Object{{"target", target.name},
                               {"file", ("code/" + target.name + ".so").str()},
                               {"cpu_features", std::move(features)}}};
  return manifest;
}

std::string mlir::step::toText(json::Object object) {
  // llvm::json prints members in the order of their names, which is fixed.
  return llvm::formatv("{0:2}\n", json::Value(std::move(object))).str();
}
