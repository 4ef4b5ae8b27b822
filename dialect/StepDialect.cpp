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
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::step;

#include "dialect/StepDialect.cpp.inc"
#include "dialect/StepEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/StepAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/StepTypes.cpp.inc"

void StepDialect::initialize() {
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
  return ConstantOp::create(builder, loc, type, typed);
}

//===----------------------------------------------------------------------===//
// RoleAttr
//===----------------------------------------------------------------------===//

StringRef RoleAttr::getDisplayName() const {
  return getKind() == RoleKind::State ? getName().getValue()
                                      : stringifyRoleKind(getKind());
}

RoleAttr RoleAttr::withStorage(Type storage) const {
  return get(getContext(), getKind(), getName(), getInit(), getGuarded(),
             storage);
}

RoleAttr RoleAttr::withoutGuard() const {
  return get(getContext(), getKind(), getName(), getInit(), false,
             getStorage());
}
