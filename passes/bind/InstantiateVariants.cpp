//===- InstantiateVariants.cpp - step-instantiate-variants ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Mangle.h"
#include "passes/Passes.h"
#include "passes/StoredStates.h"
#include "passes/bind/Masters.h"
#include "passes/bind/Rounding.h"
#include "passes/bind/VariantRequest.h"
#include "passes/shard/Sharding.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

namespace mlir::step {
#define GEN_PASS_DEF_INSTANTIATEVARIANTS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// 64 variants of a rule: about half a second and 300 KB.
static constexpr size_t kMaxOpenOptions = 6;

namespace {
/// Makes the bound rules of one optimizer. Invariant: `bound` are the rules
/// made so far, after the definition's rules in the body, and no two of them
/// are the same variant.
class Instantiator {
public:
  explicit Instantiator(OptimizerOp optimizer)
      : optimizer(optimizer), builder(optimizer.getContext()) {
    for (auto rule : optimizer.getBody().getOps<RuleOp>())
      definitions.push_back(rule);
    // Integers choose rules when parameters are bound, and no variant.
    for (auto option : optimizer.getBody().getOps<OptionOp>())
      if (!option.isInteger())
        options.push_back(option);
  }

  LogicalResult run(ArrayRef<VariantRequest> requests);

private:
  LogicalResult checkNames(const VariantRequest &request);
  LogicalResult checkOpen(const VariantRequest &request);
  LogicalResult instantiate(RuleOp rule, const VariantRequest &request);
  LogicalResult setStorages(RuleOp rule, const VariantRequest &request,
                            SmallVectorImpl<Attribute> &roles, Type &compute);
  LayoutAttr takeLayout(RuleOp rule, const VariantRequest &request,
                        LayoutAttr &owned);
  EntryAttr takeEntry(RuleOp rule, const VariantRequest &request,
                      LayoutAttr layout, Type compute,
                      MutableArrayRef<Attribute> roles);
  RuleOp find(VariantAttr variant, ArrayAttr roles, StringAttr master,
              StringAttr rounding);

  OptimizerOp optimizer;
  OpBuilder builder;
  SmallVector<RuleOp> definitions, bound;
  SmallVector<OptionOp> options;
  /// Whether the request at hand asks for rounding in vain so far.
  bool roundsNothing = false;
};
} // namespace

/// Whether the definition says that the rule has the state.
static bool declares(RuleOp rule, StringRef name) {
  auto dropped = rule->getAttrOfType<ArrayAttr>(kDroppedStates);
  if (dropped &&
      llvm::is_contained(dropped, StringAttr::get(rule.getContext(), name)))
    return true;
  return llvm::any_of(
      rule.getRoles().getAsRange<RoleAttr>(), [&](RoleAttr role) {
        return role.getKind() == RoleKind::State && role.getName() == name;
      });
}

LogicalResult Instantiator::checkNames(const VariantRequest &request) {
  for (auto &[name, value] : request.options)
    if (llvm::none_of(
            options, [&](OptionOp option) { return option.getName() == name; }))
      return optimizer.emitOpError()
             << "has no option '" << name << "' that is true or false";
  for (auto &[name, storage] : request.states) {
    bool known = llvm::any_of(
        definitions, [&](RuleOp rule) { return declares(rule, name); });
    if (!known)
      return optimizer.emitOpError() << "has no state '" << name << "'";
  }
  return success();
}

/// Every combination of option values that the request leaves open: derived
/// options that it does not name take both values.
static SmallVector<DictionaryAttr>
enumerateOptions(ArrayRef<OptionOp> options, const VariantRequest &request,
                 Builder &builder) {
  SmallVector<SmallVector<NamedAttribute>> combinations(1);
  for (OptionOp option : options) {
    SmallVector<bool> values;
    auto named = request.options.find(option.getName().str());
    if (named != request.options.end())
      values = {named->second};
    else if (option.isDerived())
      values = {false, true};
    else
      values = {*option.getDefaultValue()};
    SmallVector<SmallVector<NamedAttribute>> extended;
    for (const auto &combination : combinations)
      for (bool value : values) {
        extended.push_back(combination);
        extended.back().push_back(
            builder.getNamedAttr(option.getName(), builder.getBoolAttr(value)));
      }
    combinations = std::move(extended);
  }
  SmallVector<DictionaryAttr> result;
  for (const auto &combination : combinations)
    result.push_back(builder.getDictionaryAttr(combination));
  return result;
}

/// Whether a parameter of that storage has masters of that form: an f16 and 16
/// bits beside are not enough for an f32.
static bool hasMaster(StringRef form, Type param) {
  return param.isBF16() || (param.isF16() && form == "f32");
}

/// Storage of every tensor; `compute` is the type they are computed in.
LogicalResult Instantiator::setStorages(RuleOp rule,
                                        const VariantRequest &request,
                                        SmallVectorImpl<Attribute> &roles,
                                        Type &compute) {
  auto typeOf = [&](StringRef name, Type otherwise) {
    return name.empty() ? otherwise
                        : getStorageType(builder.getContext(), name);
  };
  Type param = typeOf(request.param, builder.getF32Type());
  Type grad = typeOf(request.grad, param);
  compute = getComputeType(param);
  Type state = typeOf(request.state, compute);
  for (auto role : rule.getRoles().getAsRange<RoleAttr>()) {
    Type storage;
    if (role.getKind() == RoleKind::Param)
      storage = param;
    else if (role.getKind() == RoleKind::Grad)
      storage = grad;
    else if (role.getKind() == RoleKind::State) {
      auto named = request.states.find(role.getName().str());
      storage =
          named == request.states.end() ? state : typeOf(named->second, state);
    }
    if (storage &&
        storage.getIntOrFloatBitWidth() > compute.getIntOrFloatBitWidth())
      return rule.emitOpError()
             << "would store '" << role.getDisplayName() << "' as " << storage
             << ", which is wider than the compute type " << compute;
    if (storage && compute.isF64() && storage.getIntOrFloatBitWidth() < 32)
      return rule.emitOpError()
             << "would store '" << role.getDisplayName() << "' as " << storage
             << " while computing in f64, which is not supported";
    roles.push_back(role.withStorage(storage));
  }
  if (!request.master.empty() && !hasMaster(request.master, param))
    return rule.emitOpError()
           << "would keep a master of 'param', which is stored as " << param
           << "; only bf16 has masters, and f16 those that are states";
  return success();
}

/// Whether the rule stores something that the request has rounded by random
/// bits: a state, or a param that has no master.
static bool rounds(ArrayRef<Attribute> roles, const VariantRequest &request) {
  return llvm::any_of(roles, [&](Attribute attr) {
    auto role = cast<RoleAttr>(attr);
    bool stored = role.getKind() == RoleKind::State ||
                  (role.getKind() == RoleKind::Param && request.master.empty());
    return stored && role.getStorage().isBF16();
  });
}

/// The bound rule that is the same variant, or null.
RuleOp Instantiator::find(VariantAttr variant, ArrayAttr roles,
                          StringAttr master, StringAttr rounding) {
  auto found = llvm::find_if(bound, [&](RuleOp rule) {
    return rule.getVariantAttr() == variant && rule.getRoles() == roles &&
           rule->getAttr(kMaster) == master &&
           rule->getAttr(kRounding) == rounding;
  });
  return found == bound.end() ? RuleOp() : *found;
}

/// The layout that the request asks for; null for whole tensors, and where the
/// rule cannot have it. Then one rank steps the whole tensor in place of all,
/// and `owned` is what was asked for.
LayoutAttr Instantiator::takeLayout(RuleOp rule, const VariantRequest &request,
                                    LayoutAttr &owned) {
  Type param = rule.getArgumentOfKind(RoleKind::Param).getType();
  LayoutAttr layout = getLayout(request, param);
  if (!findUnshardableDim(rule, layout))
    return layout;
  owned = layout;
  rule.emitRemark() << "rule '" << rule.getSymName() << "' "
                    << describeUnshardable(rule, layout)
                    << ": one rank steps the whole tensor, and sends the "
                       "others their parts";
  return {};
}

/// What the request says of tensors outside of the step. A gradient that ranks
/// add up is there as the sum is made, in f64 or f32: a sum of bf16 is not
/// rounded before it is used.
EntryAttr Instantiator::takeEntry(RuleOp rule, const VariantRequest &request,
                                  LayoutAttr layout, Type compute,
                                  MutableArrayRef<Attribute> roles) {
  BlockArgument grad = rule.getArgumentOfKind(RoleKind::Grad);
  if (!grad)
    return {};
  Attribute &role = roles[grad.getArgNumber()];
  EntryAttr entry =
      getEntry(request, layout, cast<RoleAttr>(role).getStorage(), compute);
  if (entry && entry.getWire() && !entry.getGradient().isF64())
    role = cast<RoleAttr>(role).withStorage(builder.getF32Type());
  return entry;
}

/// Notes that the bound rule stands in for one of that layout, too.
static void addOwned(RuleOp rule, LayoutAttr owned) {
  if (!owned)
    return;
  SmallVector<Attribute> layouts;
  if (auto known = rule->getAttrOfType<ArrayAttr>(kOwnedLayouts))
    llvm::append_range(layouts, known);
  if (!llvm::is_contained(layouts, owned))
    layouts.push_back(owned);
  rule->setAttr(kOwnedLayouts, ArrayAttr::get(rule.getContext(), layouts));
}

/// Derived options that a request leaves open double the variants each.
LogicalResult Instantiator::checkOpen(const VariantRequest &request) {
  SmallVector<StringRef> open;
  for (OptionOp option : options)
    if (option.isDerived() && !request.options.count(option.getName().str()))
      open.push_back(option.getName());
  if (open.size() <= kMaxOpenOptions)
    return success();
  return optimizer.emitOpError()
         << "has " << open.size() << " derived options that a request leaves "
         << "open, each with both values; at most " << kMaxOpenOptions
         << " can be: " << llvm::join(open, ", ");
}

/// Whether the rule's conditions on options hold.
static bool existsUnder(RuleOp rule, DictionaryAttr values) {
  return llvm::all_of(
      rule.getRuleConditions(), [&](const RuleCondition &condition) {
        if (condition.attr.getKind() != ConditionKind::Option)
          return true;
        auto option = condition.operand.getDefiningOp<OptionOp>();
        bool value = cast<BoolAttr>(values.get(option.getName())).getValue();
        return value == (condition.attr.getPredicate() == Predicate::EQ);
      });
}

LogicalResult Instantiator::instantiate(RuleOp rule,
                                        const VariantRequest &request) {
  Type param = rule.getArgumentOfKind(RoleKind::Param).getType();
  if (!isForRule(request, param))
    return success();
  SmallVector<Attribute> roles;
  Type compute;
  if (failed(setStorages(rule, request, roles, compute)))
    return failure();
  LayoutAttr owned;
  LayoutAttr layout = takeLayout(rule, request, owned);
  EntryAttr entry =
      takeEntry(rule, request, layout ? layout : owned, compute, roles);
  // Its owner is the step's own affair where all of it is there outside.
  if (entry && owned && llvm::all_of(owned.getDims(), [&](NamedAttribute dim) {
        return llvm::all_of(cast<ArrayAttr>(dim.getValue()), [&](Attribute a) {
          return llvm::is_contained(entry.getWhole(), a);
        });
      }))
    owned = {};
  ArrayAttr rolesAttr = builder.getArrayAttr(roles);
  auto getForm = [&](const std::string &form) {
    return form.empty() ? StringAttr() : builder.getStringAttr(form);
  };
  StringAttr master = getForm(request.master);
  StringAttr rounding;
  if (rounds(roles, request))
    rounding = getForm(request.rounding);
  roundsNothing &= !rounding;
  for (DictionaryAttr values : enumerateOptions(options, request, builder)) {
    if (!existsUnder(rule, values))
      continue;
    auto variant = VariantAttr::get(builder.getContext(), rule.getSymNameAttr(),
                                    values, compute, layout, entry);
    if (RuleOp known = find(variant, rolesAttr, master, rounding)) {
      addOwned(known, owned);
      continue;
    }
    builder.setInsertionPointToEnd(&optimizer.getBody().front());
    auto clone = cast<RuleOp>(builder.clone(*rule));
    clone.setSymName(mangle((optimizer.getSymName() + "_" + rule.getSymName() +
                             "_" + Twine(bound.size()))
                                .str()));
    clone.setVariantAttr(variant);
    clone->removeAttr(kDroppedStates);
    clone.setRolesAttr(rolesAttr);
    if (master)
      clone->setAttr(kMaster, master);
    if (rounding)
      clone->setAttr(kRounding, rounding);
    addOwned(clone, owned);
    bound.push_back(clone);
  }
  return success();
}

LogicalResult Instantiator::run(ArrayRef<VariantRequest> requests) {
  for (const VariantRequest &request : requests) {
    if (failed(checkNames(request)) || failed(checkOpen(request)))
      return failure();
    roundsNothing = !request.rounding.empty() && !definitions.empty();
    for (RuleOp rule : definitions)
      if (failed(instantiate(rule, request)))
        return failure();
    if (roundsNothing)
      return optimizer.emitOpError(
          "would round stochastically, and no rule stores a state, or a param "
          "without a master, as bf16; nothing else is rounded so");
  }
  if (bound.empty() && !definitions.empty())
    return optimizer.emitOpError(
        "has no rule whose conditions on options hold in a requested variant");
  for (RuleOp rule : definitions)
    rule.erase();
  return success();
}

namespace {
struct InstantiateVariants
    : step::impl::InstantiateVariantsBase<InstantiateVariants> {
  using InstantiateVariantsBase::InstantiateVariantsBase;

  void runOnOperation() override {
    std::vector<VariantRequest> requests;
    for (const std::string &text : variants)
      if (llvm::Error error = requests.emplace_back().parse(text)) {
        getOperation().emitOpError() << "got a variant request with "
                                     << llvm::toString(std::move(error));
        return signalPassFailure();
      }
    if (requests.empty())
      requests.emplace_back();
    if (failed(Instantiator(getOperation()).run(requests)))
      signalPassFailure();
  }
};
} // namespace
