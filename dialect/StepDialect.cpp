//===- StepDialect.cpp - registration of the step dialect --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FoldInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::step;

#include "dialect/StepDialect.cpp.inc"
#include "dialect/StepEnums.cpp.inc"
#include "dialect/StepInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/StepAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/StepTypes.cpp.inc"

namespace {
/// Constants of a program stay where they are used: in the body of scalars,
/// else in the program. Bodies of traversals see nothing of the outside anyway.
struct FoldsInPrograms : DialectFoldInterface {
  using DialectFoldInterface::DialectFoldInterface;
  bool shouldMaterializeInto(Region *region) const final {
    return isa<ProgramOp, CohortScalarsOp>(region->getParentOp());
  }
};
} // namespace

void StepDialect::initialize() {
  addInterfaces<FoldsInPrograms>();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialect/StepTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/StepAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/Step.cpp.inc"
      >();
}

Operation *StepDialect::materializeConstant(OpBuilder &builder, Attribute value,
                                            Type type, Location loc) {
  auto typed = dyn_cast<TypedAttr>(value);
  if (!typed || typed.getType() != type || !(type.isF64() || type.isInteger(1)))
    return nullptr;
  // Bodies of programs are scalar code; functions of the language fold there
  // too.
  Operation *parent = builder.getInsertionBlock()->getParentOp();
  if (!isa_and_nonnull<OptimizerOp, FragmentOp, RuleOp, ScalarsOp>(parent))
    return arith::ConstantOp::create(builder, loc, type, typed);
  return ConstantOp::create(builder, loc, type, typed);
}

//===----------------------------------------------------------------------===//
// RoleAttr, LayoutAttr, VariantAttr, ConditionAttr
//===----------------------------------------------------------------------===//

using EmitError = function_ref<InFlightDiagnostic()>;

static LogicalResult verifyStorage(EmitError emitError, RoleKind kind,
                                   Type storage) {
  if (kind == RoleKind::Position) {
    if (storage.isSignlessInteger(64))
      return success();
    return emitError() << "storage type " << storage
                       << " of a position is not i64";
  }
  if (storage.isF32() || storage.isF64() || storage.isBF16() ||
      storage.isF16() ||
      (kind == RoleKind::State && storage.isSignlessInteger(16)))
    return success();
  return emitError() << "storage type " << storage
                     << " is none of f32, f64, bf16, f16";
}

LogicalResult RoleAttr::verify(EmitError emitError, RoleKind kind,
                               StringAttr name, FloatAttr init, bool guarded,
                               bool kept, bool given, Type storage,
                               ArrayAttr states) {
  if (kind == RoleKind::State && (!init || !init.getType().isF64()))
    return emitError() << "state '" << name.getValue()
                       << "' needs an f64 initial value";
  if (kind == RoleKind::State && !init.getValue().isFinite())
    return emitError() << "state '" << name.getValue()
                       << "' has an initial value that is not finite";
  if (kind != RoleKind::State && (!name.empty() || init || guarded))
    return emitError() << "'" << stringifyRoleKind(kind)
                       << "' takes no name, initial value or guard";
  if (kind != RoleKind::State && kept)
    return emitError() << "'" << stringifyRoleKind(kind)
                       << "' is no state that can be kept";
  if (kind != RoleKind::State && given)
    return emitError() << "'" << stringifyRoleKind(kind)
                       << "' is no state that can be given";
  if (kept && given)
    return emitError() << "state '" << name.getValue()
                       << "' is kept and given: nothing drops what is given";
  if (states && kind != RoleKind::Fresh)
    return emitError() << "'" << stringifyRoleKind(kind)
                       << "' speaks of no states, as a fresh does";
  if (states && !llvm::all_of(states, llvm::IsaPred<StringAttr>))
    return emitError() << "a fresh names something that is no state";
  if (!storage)
    return success();
  if (kind == RoleKind::Count || kind == RoleKind::Fresh)
    return emitError() << "'" << stringifyRoleKind(kind)
                       << "' is no tensor and has no storage type";
  return verifyStorage(emitError, kind, storage);
}

LogicalResult LayoutAttr::verify(EmitError emitError, DictionaryAttr dims) {
  if (dims.empty())
    return emitError() << "a layout shards no dim";
  if (dims.contains(kFlatRange) && dims.size() > 1)
    return emitError() << "a layout is flat and shards dims too";
  llvm::SmallPtrSet<Attribute, 4> seen;
  for (NamedAttribute dim : dims) {
    auto axes = dyn_cast<ArrayAttr>(dim.getValue());
    if (!axes || axes.empty() || !llvm::all_of(axes, llvm::IsaPred<StringAttr>))
      return emitError() << "a layout has no list of axes for '"
                         << dim.getName().getValue() << "'";
    for (auto axis : axes.getAsRange<StringAttr>())
      if (!seen.insert(axis).second)
        return emitError() << "a layout names axis '" << axis.getValue()
                           << "' twice";
  }
  return success();
}

bool LayoutAttr::cuts(StringRef axis) const {
  auto name = StringAttr::get(getContext(), axis);
  return llvm::any_of(getDims(), [&](NamedAttribute dim) {
    return llvm::is_contained(cast<ArrayAttr>(dim.getValue()), name);
  });
}

/// Axes by their names, each once.
static LogicalResult verifyAxes(EmitError emitError, ArrayAttr axes,
                                StringRef what) {
  llvm::SmallPtrSet<Attribute, 4> seen;
  for (Attribute axis : axes) {
    auto name = dyn_cast<StringAttr>(axis);
    if (!name)
      return emitError() << "an entry has " << axis << " for an axis over "
                         << "which it is " << what;
    if (!seen.insert(axis).second)
      return emitError() << "an entry is " << what << " over axis '"
                         << name.getValue() << "' twice";
  }
  return success();
}

LogicalResult EntryAttr::verify(EmitError emitError, ArrayAttr whole,
                                ArrayAttr partial, Type gradient, Type wire) {
  if (whole.empty() && partial.empty())
    return emitError() << "an entry names no axis";
  if (failed(verifyAxes(emitError, whole, "whole")) ||
      failed(verifyAxes(emitError, partial, "partial")))
    return failure();
  const size_t both = llvm::count_if(
      whole, [&](Attribute axis) { return llvm::is_contained(partial, axis); });
  if (both != 0 && both != whole.size())
    return emitError() << "an entry's gradient is partial over some of the "
                          "axes over which it is whole, and not over all";
  if (partial.empty() == bool(wire))
    return emitError() << "an entry's gradient is "
                       << (wire ? "not partial, and has a wire"
                                : "partial, and has no wire");
  for (Type type : {gradient, wire})
    if (type && !type.isF32() && !type.isF64() && !type.isBF16() &&
        !type.isF16())
      return emitError() << "an entry's gradient has type " << type
                         << ", none of f32, f64, bf16, f16";
  if (wire && wire.isF64() && !gradient.isF64())
    return emitError() << "an entry's gradient of " << gradient
                       << " crosses as f64, in which it is not summed";
  return success();
}

bool VariantAttr::isOwned() const {
  ArrayAttr whole = getEntry() ? getEntry().getWhole() : ArrayAttr();
  return whole && !whole.empty() &&
         !(getLayout() && getLayout().cuts(cast<StringAttr>(whole[0])));
}

static LogicalResult verifyEntry(EmitError emitError, LayoutAttr layout,
                                 EntryAttr entry) {
  if (!layout || !entry)
    return success();
  auto isCut = [&](Attribute axis) {
    return layout.cuts(cast<StringAttr>(axis));
  };
  ArrayAttr whole = entry.getWhole();
  if (llvm::any_of(whole, isCut) && !llvm::all_of(whole, isCut))
    return emitError() << "a layout cuts over some of the axes over which the "
                          "param is whole, and not over all";
  for (auto axis : entry.getPartial().getAsRange<StringAttr>())
    if (isCut(axis) && !llvm::is_contained(whole, axis))
      return emitError() << "a gradient is partial over axis '"
                         << axis.getValue() << "', over which the param is cut";
  return success();
}

LogicalResult VariantAttr::verify(EmitError emitError, StringAttr rule,
                                  DictionaryAttr options, Type compute,
                                  LayoutAttr layout, EntryAttr entry) {
  if (!compute.isF32() && !compute.isF64())
    return emitError() << "compute type " << compute
                       << " is neither f32 nor f64";
  return verifyEntry(emitError, layout, entry);
}

LogicalResult ConditionAttr::verify(EmitError emitError, ConditionKind kind,
                                    Predicate predicate, int64_t dim,
                                    std::optional<int64_t> value,
                                    std::optional<int64_t> other) {
  if (value && other)
    return emitError() << "a condition compares with a value and with an "
                          "extent";
  if (kind != ConditionKind::Option)
    return success();
  if (value || other ||
      (predicate != Predicate::EQ && predicate != Predicate::NE))
    return emitError() << "a condition of an option has no value, no other "
                          "extent, and the predicate eq or ne";
  return success();
}

LogicalResult BoundDimAttr::verify(EmitError emitError, StringAttr name,
                                   ArrayAttr of, std::optional<int64_t> most,
                                   bool optional, int64_t per) {
  if (of.empty() || !llvm::all_of(of, llvm::IsaPred<StringAttr>))
    return emitError() << "dim '" << name.getValue()
                       << "' follows from no dim of the param";
  if (per < 1 || (most && *most < 1))
    return emitError() << "dim '" << name.getValue()
                       << "' has a number below 1";
  return success();
}

StringRef RoleAttr::getDisplayName() const {
  return getKind() == RoleKind::State ? getName().getValue()
                                      : stringifyRoleKind(getKind());
}

RoleAttr RoleAttr::withStorage(Type storage) const {
  return get(getContext(), getKind(), getName(), getInit(), getGuarded(),
             getKept(), getGiven(), storage, getStates());
}

RoleAttr RoleAttr::withoutGuard() const {
  return get(getContext(), getKind(), getName(), getInit(), false, getKept(),
             getGiven(), getStorage(), getStates());
}

RoleAttr RoleAttr::withStates(ArrayAttr states) const {
  return get(getContext(), getKind(), getName(), getInit(), getGuarded(),
             getKept(), getGiven(), getStorage(), states);
}
