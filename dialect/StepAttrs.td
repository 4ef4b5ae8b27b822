//===- StepAttrs.td - attributes of the step dialect ----------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_ATTRS
#define STEP_ATTRS

include "StepDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class Step_Attr<string name, string attrMnemonic> : AttrDef<Step_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def Step_RoleKind : I32EnumAttr<"RoleKind", "what an argument of a rule is", [
    I32EnumAttrCase<"Param", 0, "param">,
    I32EnumAttrCase<"Grad", 1, "grad">,
    I32EnumAttrCase<"State", 2, "state">,
    I32EnumAttrCase<"Count", 3, "count">,
    I32EnumAttrCase<"Fresh", 4, "fresh">,
    I32EnumAttrCase<"Position", 5, "position">]> {
  let cppNamespace = "::mlir::step";
  let genSpecializedAttr = 0;
}

def Step_Predicate : I32EnumAttr<"Predicate", "a comparison", [
    I32EnumAttrCase<"LT", 0, "lt">, I32EnumAttrCase<"LE", 1, "le">,
    I32EnumAttrCase<"GT", 2, "gt">, I32EnumAttrCase<"GE", 3, "ge">,
    I32EnumAttrCase<"EQ", 4, "eq">, I32EnumAttrCase<"NE", 5, "ne">]> {
  let cppNamespace = "::mlir::step";
  let genSpecializedAttr = 0;
}
def Step_PredicateAttr : EnumAttr<Step_Dialect, Step_Predicate, "predicate">;

def Step_ReductionKind : I32EnumAttr<"ReductionKind", "how many values become one", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Mean", 1, "mean">,
    I32EnumAttrCase<"Amax", 2, "amax">]> {
  let cppNamespace = "::mlir::step";
  let genSpecializedAttr = 0;
}
def Step_ReductionKindAttr : EnumAttr<Step_Dialect, Step_ReductionKind, "reduction_kind">;

def Step_Scope : I32EnumAttr<"Scope", "what a scalar or statistic is one of", [
    I32EnumAttrCase<"Model", 0, "model">, I32EnumAttrCase<"Group", 1, "group">]> {
  let cppNamespace = "::mlir::step";
  let genSpecializedAttr = 0;
}
def Step_ScopeAttr : EnumAttr<Step_Dialect, Step_Scope, "scope">;

def Step_ConditionKind : I32EnumAttr<"ConditionKind", "what a rule's condition is of", [
    I32EnumAttrCase<"Rank", 0, "rank">, I32EnumAttrCase<"Extent", 1, "extent">,
    I32EnumAttrCase<"Option", 2, "option">]> {
  let cppNamespace = "::mlir::step";
  let genSpecializedAttr = 0;
}

def Step_ConditionAttr : Step_Attr<"Condition", "condition"> {
  let summary = "one condition of a rule";
  let description = [{
    Of the rank or of an extent: it is compared with `value`, with the extent
    `other`, or with an integer option, an operand of the rule, where there is
    neither. `dim` and `other` are indices of extents, negative from the end. Of an option, an operand of the rule:
    it must hold (`eq`) or not hold (`ne`).

    Constraints:
    - a condition of an option has no value and no other extent, and the predicate
      eq or ne
    - what has a value has no other extent
  }];
  let parameters = (ins
    EnumParameter<Step_ConditionKind>:$kind,
    EnumParameter<Step_Predicate>:$predicate,
    DefaultValuedParameter<"int64_t", "0">:$dim,
    OptionalParameter<"::std::optional<int64_t>">:$value,
    OptionalParameter<"::std::optional<int64_t>">:$other);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// True where an operand of the rule belongs to the condition.
    bool hasOperand() const { return !getValue() && !getOther(); }
  }];
}
def Step_ConditionArrayAttr : TypedArrayAttrBase<Step_ConditionAttr, "conditions of a rule">;

def Step_BoundDimAttr : Step_Attr<"BoundDim", "bound_dim"> {
  let summary = "a dim of a rule whose extent follows from others";
  let description = [{
    The least of the extents of the dims `of`, of `most`, and of an integer option, an
    operand of the rule; divided by `per` and rounded up.

    Constraints:
    - there is a dim that it is of
    - `per` and `most` are above 0
  }];
  let parameters = (ins
    "::mlir::StringAttr":$name,
    "::mlir::ArrayAttr":$of,
    OptionalParameter<"::std::optional<int64_t>">:$most,
    DefaultValuedParameter<"bool", "false">:$optional,
    DefaultValuedParameter<"int64_t", "1">:$per);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}
def Step_BoundDimArrayAttr
    : TypedArrayAttrBase<Step_BoundDimAttr, "dims whose extents follow from others">;

def Step_RoleAttr : Step_Attr<"Role", "role"> {
  let summary = "the role of one argument of a rule";
  let description = [{
    `init` is the value that a state's elements have before the first step.
    `guarded` says that the state exists only where its guard, an operand of the
    rule, holds. `kept` says that the state is not dropped where nothing depends on
    it. `given` says that the rule reads the state and whoever uses the optimizer writes
    it. `storage` is null in a definition; binding sets it. The `position`, which binding
    adds, is where each element stands among those of all tensors (`step.round_stochastic`):
    it is known, not kept in memory. `states` are those that a `fresh` speaks of; where
    they are null, all that the rule declares.

    Constraints:
    - a state has an initial value; no other role has one, a name or a guard, or
      is kept or given
    - a state is not both kept and given
    - a fresh alone speaks of states, by their names
    - the storage type is f32, f64, bf16 or f16, of a state also i16, the lower
      halves of f32, and of the position i64; count and fresh have none
  }];
  let parameters = (ins
    EnumParameter<Step_RoleKind>:$kind,
    "::mlir::StringAttr":$name,
    OptionalParameter<"::mlir::FloatAttr">:$init,
    DefaultValuedParameter<"bool", "false">:$guarded,
    DefaultValuedParameter<"bool", "false">:$kept,
    DefaultValuedParameter<"bool", "false">:$given,
    OptionalParameter<"::mlir::Type">:$storage,
    OptionalParameter<"::mlir::ArrayAttr">:$states);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let builders = [AttrBuilder<(ins "::mlir::step::RoleKind":$kind), [{
    return $_get($_ctxt, kind, StringAttr::get($_ctxt, ""), FloatAttr(), false,
                 false, false, Type(), ArrayAttr());
  }]>];
  let extraClassDeclaration = [{
    /// True for param, grad, state and position: arguments that are tensors. All
    /// but the position are in memory.
    bool isTensor() const {
      return getKind() != RoleKind::Count && getKind() != RoleKind::Fresh;
    }
    /// True for param and state, whose new values a rule returns; not for a
    /// state that is given.
    bool isReturned() const {
      return getKind() == RoleKind::Param ||
             (getKind() == RoleKind::State && !getGiven());
    }
    /// The name in messages and in the manifest: of a state its own, else the
    /// kind's.
    StringRef getDisplayName() const;
    RoleAttr withStorage(Type storage) const;
    RoleAttr withoutGuard() const;
    /// A fresh that speaks of these states.
    RoleAttr withStates(ArrayAttr states) const;
  }];
}

def Step_FreshArrayAttr : TypedArrayAttrBase<
    TypedArrayAttrBase<StrAttr, "names of states">, "names of states for each fresh flag">;

def Step_LayoutAttr : Step_Attr<"Layout", "layout"> {
  let summary = "how a parameter lies on a mesh of ranks";
  let description = [{
    For each sharded dim of the rule's param, by its name in the rule, the mesh axes that
    shard it, in order; or, as `flat range`, which no dim can be called, the axes over which
    a range of the logical row-major order lies. Over other axes the tensor is replicated. Sizes of axes and
    the ranges are known at run time only (docs/sharding.md).

    Constraints:
    - there is a dim, with an axis, and no axis is named twice
    - `flat range` stands alone
  }];
  let parameters = (ins "::mlir::DictionaryAttr":$dims);
  let assemblyFormat = "`<` $dims `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool isFlat() const { return bool(getAxes(kFlatRange)); }
    /// The axes that shard the dim, or null.
    ::mlir::ArrayAttr getAxes(::llvm::StringRef dim) const {
      return getDims().getAs<::mlir::ArrayAttr>(dim);
    }
    /// Whether some dim is sharded over the axis.
    bool cuts(::llvm::StringRef axis) const;
  }];
}

def Step_EntryAttr : Step_Attr<"Entry", "entry"> {
  let summary = "how the param and its gradient lie outside of the step";
  let description = [{
    Before a step and behind it, where that is not as the layout says. Over the axes
    `whole` the param is the same on every rank, though the layout cuts it, or one rank
    steps it. Over `partial` each rank has an addend of the gradient. `gradient` is the type
    in which the caller has it, `wire` the one in which addends cross.

    Constraints:
    - some axis is named, and none twice among `whole` or `partial`
    - `partial` has all axes of `whole`, or none of them
    - there is a wire where the gradient is partial, and only there
    - types are f32, f64, bf16 or f16, and only f64 crosses as f64
  }];
  let parameters = (ins
    "::mlir::ArrayAttr":$whole,
    "::mlir::ArrayAttr":$partial,
    "::mlir::Type":$gradient,
    OptionalParameter<"::mlir::Type">:$wire);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Step_VariantAttr : Step_Attr<"Variant", "variant"> {
  let summary = "which rule, with which options, compute type and layout, a variant is";
  let description = [{
    Without a layout every rank has whole tensors; without an entry they lie outside of the
    step as they do in it.

    Constraints:
    - the compute type is f32 or f64
    - the layout cuts over all axes of the entry's `whole`, or over none: then one rank steps
    - over what it cuts besides, the gradient is not partial
  }];
  let parameters = (ins
    "::mlir::StringAttr":$rule,
    "::mlir::DictionaryAttr":$options,
    "::mlir::Type":$compute,
    OptionalParameter<"::mlir::step::LayoutAttr">:$layout,
    OptionalParameter<"::mlir::step::EntryAttr">:$entry);
  let assemblyFormat = [{
    `<` $rule `,` $options `,` $compute (`,` $layout^)? (`entry` $entry^)? `>`
  }];
  let extraClassDeclaration = [{
    /// Whether one of the ranks that have the whole param steps it.
    bool isOwned() const;
  }];
  let genVerifyDecl = 1;
}

def Step_RoleArrayAttr : TypedArrayAttrBase<Step_RoleAttr, "roles of a rule">;

#endif // STEP_ATTRS
