//===- Manifest.cpp - what a package says about itself --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/Manifest.h"
#include "passes/bind/Rounding.h"
#include "passes/lower/Operand.h"
#include "passes/package/ManifestSchedule.h"
#include "passes/schedule/ProgramStorage.h"
#include "passes/schedule/RoundCalls.h"
#include "passes/schedule/RuleCost.h"
#include "passes/schedule/Schedule.h"
#include "passes/shard/Sharding.h"
#include "stepc/kernel_abi.h"

#include "mlir/Support/DebugStringHelper.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;

static json::Array toJson(ArrayRef<StringAttr> dims) {
  json::Array array;
  for (StringAttr dim : dims)
    array.push_back(dim.getValue());
  return array;
}

static json::Object describe(OptionOp option) {
  json::Object object{{"name", option.getName()}};
  if (option.isDerived()) {
    object["derived"] = json::Object{
        {"hyper", option.getHyper().getDefiningOp<HyperOp>().getName()},
        {"predicate", stringifyPredicate(*option.getPredicate())},
        {"value", option.getThresholdAttr().getValueAsDouble()}};
  } else if (option.isInteger()) {
    object["default"] = option.getDefaultIntegerAttr().getInt();
  } else {
    object["default"] = *option.getDefaultValue();
  }
  return object;
}

/// One condition of a rule, as data that is evaluated when a tensor is bound.
static json::Object describe(const RuleCondition &condition) {
  ConditionAttr attr = condition.attr;
  if (attr.getKind() == ConditionKind::Option) {
    auto option = condition.operand.getDefiningOp<OptionOp>();
    return json::Object{
        {"option", option.getName()},
        {"predicate", attr.getPredicate() == Predicate::EQ ? "ne" : "eq"},
        {"value", 0}};
  }
  json::Object object;
  if (attr.getKind() == ConditionKind::Rank)
    object["rank"] = true;
  else
    object["extent"] = attr.getDim();
  object["predicate"] = stringifyPredicate(attr.getPredicate());
  if (attr.getValue())
    object["value"] = *attr.getValue();
  else if (attr.getOther())
    object["other_extent"] = *attr.getOther();
  else
    object["option"] = condition.operand.getDefiningOp<OptionOp>().getName();
  return object;
}

/// The dims, and where in the definition the rule is.
static json::Object describeUnshardable(RuleOp rule,
                                        ArrayRef<StringAttr> dims) {
  json::Object object{{"dims", toJson(dims)}};
  if (auto place = rule.getLoc()->findInstanceOf<FileLineColLoc>()) {
    object["line"] = int64_t(place.getLine());
    object["column"] = int64_t(place.getColumn());
  }
  return object;
}

/// A dim that follows from others, as data: its extent is known when a tensor
/// is bound.
static json::Object describe(const BoundDim &dim) {
  json::Array of;
  for (auto name : dim.attr.getOf().getAsRange<StringAttr>())
    of.push_back(name.getValue());
  json::Object object{{"name", dim.attr.getName().getValue()},
                      {"least_of", std::move(of)},
                      {"per", dim.attr.getPer()}};
  if (dim.attr.getMost())
    object["most"] = *dim.attr.getMost();
  if (dim.operand)
    object["option"] = dim.operand.getDefiningOp<OptionOp>().getName();
  return object;
}

/// {"number": 2, "dims": ["n", "n", "m"]}, where it is so "divisor": 3,
/// "period": 10 and "guard": "option".
static void describe(const WorkSum &sum, OptionOp guard, json::Array &terms) {
  for (const WorkTerm &term : sum.getTerms()) {
    if (term.number == 0)
      continue;
    json::Array dims;
    for (StringAttr dim : term.dims)
      dims.push_back(dim.getValue());
    json::Object object{{"number", term.number}, {"dims", std::move(dims)}};
    if (term.divisor != 1)
      object["divisor"] = term.divisor;
    if (sum.getPeriod() != 1)
      object["period"] = sum.getPeriod();
    if (guard)
      object["guard"] = guard.getName();
    terms.push_back(std::move(object));
  }
}

static json::Object describe(const RuleCost &cost) {
  json::Array flops, bytes;
  for (const WorkSum &sum : cost.flops)
    describe(sum, OptionOp(), flops);
  for (const WorkSum &sum : cost.bytes)
    describe(sum, OptionOp(), bytes);
  for (const auto &[option, sum] : cost.guarded)
    describe(sum, option, bytes);
  return json::Object{{"flops", std::move(flops)}, {"bytes", std::move(bytes)}};
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
  json::Array guard;
  for (const RuleCondition &condition : rule.getRuleConditions())
    guard.push_back(describe(condition));
  Type param = rule.getArgumentOfKind(RoleKind::Param).getType();
  json::Object object{{"name", rule.getSymName()},
                      {"dims", toJson(getDims(param))},
                      {"guard", std::move(guard)},
                      {"states", std::move(states)},
                      {"cost", describe(getRuleCost(rule))}};
  json::Array bound;
  for (const BoundDim &dim : rule.getRuleDims())
    bound.push_back(describe(dim));
  if (!bound.empty())
    object["bound_dims"] = std::move(bound);
  SmallVector<StringAttr> unshardable = getUnshardableDims(rule);
  if (!unshardable.empty())
    object["unshardable"] = describeUnshardable(rule, unshardable);
  return object;
}

static json::Object describe(ScalarOp scalar) {
  return json::Object{{"name", scalar.getName()},
                      {"default", scalar.getInit().convertToDouble()},
                      {"scope", stringifyScope(scalar.getScope())}};
}

static json::Object describe(StatisticOp statistic) {
  return json::Object{{"name", statistic.getName()},
                      {"kind", stringifyReductionKind(statistic.getKind())},
                      {"scope", stringifyScope(statistic.getScope())}};
}

static json::Array describeReports(OptimizerOp optimizer) {
  json::Array reports;
  int64_t result = countResults(optimizer);
  for (auto scalars : optimizer.getBody().getOps<ScalarsOp>())
    for (auto report : scalars.getBody().getOps<ReportOp>())
      reports.push_back(
          json::Object{{"name", report.getName()},
                       {"scope", stringifyScope(scalars.getScope())},
                       {"result", result++}});
  return reports;
}

static json::Array describeHypers(OptimizerOp optimizer) {
  json::Array hypers;
  for (auto hyper : optimizer.getBody().getOps<HyperOp>())
    hypers.push_back(
        json::Object{{"name", hyper.getName()},
                     {"default", hyper.getDefaultValue().convertToDouble()}});
  return hypers;
}

static json::Array describeStatistics(OptimizerOp optimizer) {
  json::Array statistics;
  for (auto statistic : optimizer.getBody().getOps<StatisticOp>())
    statistics.push_back(describe(statistic));
  return statistics;
}

json::Object mlir::step::buildInterface(OptimizerOp optimizer) {
  json::Array options, rules, scalars;
  for (Operation &op : optimizer.getBody().front()) {
    if (auto option = dyn_cast<OptionOp>(op))
      options.push_back(describe(option));
    else if (auto rule = dyn_cast<RuleOp>(op))
      rules.push_back(describe(rule));
    else if (auto scalar = dyn_cast<ScalarOp>(op))
      scalars.push_back(describe(scalar));
  }
  return json::Object{{"optimizer", optimizer.getSymName()},
                      {"hypers", describeHypers(optimizer)},
                      {"options", std::move(options)},
                      {"scalars", std::move(scalars)},
                      {"statistics", describeStatistics(optimizer)},
                      {"reports", describeReports(optimizer)},
                      {"rules", std::move(rules)}};
}

//===----------------------------------------------------------------------===//
// Rounds
//===----------------------------------------------------------------------===//

/// Places, among operations of that type, of those whose results the region of
/// `call` uses.
template <typename OpT>
static json::Array listUsed(OptimizerOp optimizer, ScalarsOp call) {
  json::Array used;
  for (auto [index, op] : llvm::enumerate(optimizer.getBody().getOps<OpT>())) {
    bool isUsed = llvm::any_of(op.getResult().getUsers(), [&](Operation *user) {
      return call->isProperAncestor(user);
    });
    if (isUsed)
      used.push_back(int64_t(index));
  }
  return used;
}

static json::Object describe(OptimizerOp optimizer, const RoundCall &call) {
  ScalarsOp op = call.op;
  json::Array results, updates;
  for (int64_t k = 0; k < int64_t(op->getNumResults()); ++k)
    results.push_back(call.firstResult + k);
  int64_t numReports = llvm::range_size(op.getBody().getOps<ReportOp>());
  for (int64_t k = 0; k < numReports; ++k)
    results.push_back(call.firstReport + k);
  for (auto update : op.getBody().getOps<UpdateOp>())
    updates.push_back(json::Object{
        {"scalar", getScalarIndex(optimizer, update.getScalarOp())},
        {"always", update.getAlways()}});
  return json::Object{{"function", call.function},
                      {"scope", stringifyScope(op.getScope())},
                      {"hypers", listUsed<HyperOp>(optimizer, op)},
                      {"options", listUsed<OptionOp>(optimizer, op)},
                      {"results", std::move(results)},
                      {"may_skip", !op.getBody().getOps<SkipIfOp>().empty()},
                      {"updates", std::move(updates)}};
}

static json::Array listRounds(OptimizerOp optimizer) {
  std::vector<RoundCall> calls = getRoundCalls(optimizer);
  json::Array rounds;
  int64_t numRounds = countRounds(optimizer);
  size_t next = 0;
  // A round may have no call: what only crosses ranks, or none waits for it.
  for (int64_t round = 0; round < numRounds; ++round) {
    json::Array own;
    for (; next < calls.size() && calls[next].round == round; ++next)
      own.push_back(describe(optimizer, calls[next]));
    rounds.push_back(json::Object{{"calls", std::move(own)}});
  }
  return rounds;
}

//===----------------------------------------------------------------------===//
// Variants
//===----------------------------------------------------------------------===//

namespace {
/// What a program does with its operands, by their places.
struct OperandUses {
  explicit OperandUses(ProgramOp program)
      : reads(program.getOperandArguments().size()), writes(reads.size()) {
    for (auto traverse : program.getBody().getOps<TraverseOp>())
      for (const Operand &operand : getOperands(traverse))
        if (auto argument =
                dyn_cast<BlockArgument>(getMemory(operand.buffer))) {
          int64_t index = program.getOperandIndex(argument);
          reads[index] = reads[index] || operand.reads();
          writes[index] = writes[index] || operand.writes();
        }
  }
  SmallVector<bool> reads, writes;
};
} // namespace

static json::Array describeOperands(ProgramOp program) {
  json::Array operands;
  OperandUses uses(program);
  for (auto [index, argument] :
       llvm::enumerate(program.getOperandArguments())) {
    RoleAttr role = program.getRole(argument.getArgNumber());
    auto buffer = cast<BufferType>(argument.getType());
    json::Object object{{"role", stringifyRoleKind(role.getKind())},
                        {"name", role.getDisplayName()},
                        {"dims", toJson(buffer.getDims())},
                        {"storage", debugString(buffer.getElement())},
                        {"reads", uses.reads[index]},
                        {"writes", uses.writes[index]}};
    if (role.getInit())
      object["init"] = role.getInit().getValueAsDouble();
    operands.push_back(std::move(object));
  }
  return operands;
}

static json::Object describeScalars(ProgramOp program) {
  json::Array functions;
  int64_t slots = 0;
  for (auto scalars : program.getBody().getOps<CohortScalarsOp>()) {
    while (int64_t(functions.size()) < getSegment(scalars))
      functions.push_back(nullptr);
    functions.push_back(scalars.getSymName());
    slots += scalars.getNumResults();
  }
  return json::Object{{"functions", std::move(functions)}, {"slots", slots}};
}

/// As the runtime reads it.
static StringRef stringifyUse(BufferUse use) {
  static constexpr const char *names[] = {"all", "packed", "routine", "record",
                                          "handed"};
  return names[size_t(use)];
}

static json::Array describeWorkspace(const ProgramStorage &storage) {
  json::Array workspace;
  for (const WorkspaceBuffer &buffer : storage.getWorkspace()) {
    json::Array size;
    for (const std::string &factor : buffer.size)
      size.push_back(factor);
    json::Object object{{"name", buffer.name},
                        {"size", std::move(size)},
                        {"bytes", buffer.width * getBytes(buffer.element)},
                        {"live", buffer.live}};
    if (buffer.use != BufferUse::All)
      object["use"] = stringifyUse(buffer.use);
    workspace.push_back(std::move(object));
  }
  return workspace;
}

/// The sharded dims and their axes.
static json::Object describe(LayoutAttr layout) {
  json::Object dims;
  if (!layout)
    return dims;
  for (NamedAttribute dim : layout.getDims()) {
    json::Array axes;
    for (auto axis : cast<ArrayAttr>(dim.getValue()).getAsRange<StringAttr>())
      axes.push_back(axis.getValue());
    dims[dim.getName().getValue()] = std::move(axes);
  }
  return dims;
}

static json::Array describeCarried(const ProgramStorage &storage) {
  json::Array carried;
  ProgramOp program = storage.getProgram();
  for (auto carry : program.getBody().getOps<CarryOp>())
    carried.push_back(json::Object{
        {"slot", *storage.getTensorSlot(carry.getCarried())},
        {"recomputed", *storage.getTensorSlot(carry.getRecomputed())}});
  return carried;
}

static json::Object describe(OptimizerOp optimizer, ProgramOp program,
                             bool subsets) {
  ProgramStorage storage(program);
  json::Object options;
  for (NamedAttribute option : program.getVariant().getOptions())
    options[option.getName().getValue()] =
        cast<BoolAttr>(option.getValue()).getValue();
  json::Object object{
      {"name", program.getSymName()},
      {"rule", program.getVariant().getRule().getValue()},
      {"options", std::move(options)},
      {"layout", describe(program.getVariant().getLayout())},
      {"compute", debugString(program.getVariant().getCompute())},
      {"operands", describeOperands(program)},
      {"scalars", describeScalars(program)},
      {"tensor_slots", storage.getNumTensorSlots()},
      {"space", program.getElementwise() ? "elements" : "tiles"},
      {"workspace", describeWorkspace(storage)},
      {"schedule", describeSchedule(optimizer, storage)},
      {"subsets", subsets},
      {"rounds", program->hasAttr(kRounds)}};
  json::Array fresh;
  for (ArrayAttr states : program.getFreshLists())
    fresh.push_back(toJson(states));
  object["fresh"] = std::move(fresh);
  if (json::Array carried = describeCarried(storage); !carried.empty())
    object["carried"] = std::move(carried);
  return object;
}

static json::Object describe(const Target &target) {
  json::Object object{{"target", target.name}, {"file", target.getFile()}};
  if (target.isDevice()) {
    object["device"] = "cuda";
    object["compute_capability"] = target.computeCapability;
    return object;
  }
  json::Array features;
  for (StringRef feature : target.cpuFeatures)
    features.push_back(feature);
  object["cpu_features"] = std::move(features);
  return object;
}

json::Object mlir::step::buildManifest(json::Object interface,
                                       OptimizerOp scheduled,
                                       ArrayRef<const Target *> targets) {
  json::Object manifest = std::move(interface);
  // Binding may have added the seed of random bits.
  manifest["hypers"] = describeHypers(scheduled);
  // And reproducible sums have statistics of their own.
  manifest["statistics"] = describeStatistics(scheduled);
  manifest["format"] = 5;
  manifest["kernel_abi"] = STEPC_KERNEL_ABI_VERSION;
  manifest["compiler"] = "stepc 0.1.0 (LLVM " LLVM_VERSION_STRING ")";
  json::Array variants, code;
  json::Array rounds = listRounds(scheduled);
  // Where tensors depend on each other, all are stepped at once.
  bool subsets = rounds.empty();
  for (auto program : scheduled.getBody().getOps<ProgramOp>())
    variants.push_back(describe(scheduled, program, subsets));
  manifest["rounds"] = std::move(rounds);
  manifest["results"] = countResults(scheduled) + countReports(scheduled);
  // What only some variants would have used may be gone by now.
  manifest["reports"] = describeReports(scheduled);
  for (const Target *target : targets)
    code.push_back(describe(*target));
  manifest["variants"] = std::move(variants);
  manifest["code"] = std::move(code);
  return manifest;
}

std::string mlir::step::toText(json::Object object) {
  // llvm::json prints members in the order of their names, which is fixed.
  return llvm::formatv("{0:2}\n", json::Value(std::move(object))).str();
}
