//===- StepTypes.td - types of the step dialect ---------------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_TYPES
#define STEP_TYPES

include "StepDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinTypeInterfaces.td"
include "mlir/IR/EnumAttr.td"

def Step_Combiner : I32EnumAttr<"Combiner", "how two partial results are combined", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Amax", 1, "amax">]> {
  let cppNamespace = "::mlir::step";
  let genSpecializedAttr = 0;
}

class Step_Type<string name, string typeMnemonic> : TypeDef<Step_Dialect, name> {
  let mnemonic = typeMnemonic;
}

class Step_ShapedType<string name, string typeMnemonic>
    : Step_Type<name, typeMnemonic> {
  let parameters = (ins
    ArrayRefParameter<"::mlir::StringAttr", "symbolic dims">:$dims);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Step_TensorType : Step_ShapedType<"SymTensor", "tensor"> {
  let summary = "a tensor with symbolic dims";
  let description = [{
    `!step.tensor<n, m>` has two dims named `n` and `m`; equal names are equal
    extents. `1` is a dim of extent one, the only one that broadcasts. `<*>` is
    a shape of any rank, the same for every `*` of a rule. `...b`, which can
    stand first only, is any number of leading dims, none included, and does not
    broadcast. Operations write the type short, as `[n, m]`.

    ```mlir
    !step.tensor<*>
    !step.tensor<n, 1>
    !step.tensor<...b, n, m>
    ```
  }];
}

def Step_MaskType : Step_ShapedType<"SymMask", "mask"> {
  let summary = "a tensor of conditions";
  let description = [{
    The result of comparing tensors. Operations write it short, as `mask[n, m]`.
  }];
}

def Step_BufferType : Step_Type<"Buffer", "buffer"> {
  let summary = "elements of some dims in memory";
  let description = [{
    Of a program: one tensor, or a vector of it. Of the elements of a `position`, of type
    i64, it is known where they are, and none is in memory (`step.round_stochastic`).

    ```mlir
    !step.buffer<[...b, n, 1], bf16>
    ```

    Constraints:
    - an element is an f32, f64, bf16 or f16, an i16, which is the lower half of an f32,
      or an i64
  }];
  let parameters = (ins
    ArrayRefParameter<"::mlir::StringAttr", "symbolic dims">:$dims,
    "::mlir::Type":$element);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool isInMemory() const { return !getElement().isInteger(64); }
    /// Bytes of one element in memory; 1 of a position, whose address is what it says.
    int64_t getElementBytes() const {
      return isInMemory() ? getBytes(getElement()) : 1;
    }
    /// The symbolic tensor of these dims.
    SymTensorType getShape() const;
  }];
}

class Step_ReducedType<string name, string typeMnemonic> : Step_Type<name, typeMnemonic> {
  let parameters = (ins
    "::mlir::step::Combiner":$combiner,
    ArrayRefParameter<"::mlir::StringAttr", "dims that are reduced">:$dims,
    ArrayRefParameter<"::mlir::StringAttr", "dims that are left">:$kept);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    /// Whether all is reduced to one number.
    bool isWhole() const { return getKept().empty(); }
    /// The symbolic tensor of what is reduced.
    SymTensorType getShape() const;
    /// The symbolic tensor of what is left; null where that is a number.
    SymTensorType getKeptShape() const;
  }];
}

def Step_PartialType : Step_ReducedType<"Partial", "partial"> {
  let summary = "partial results of a reduction";
  let description = [{
    What a traversal leaves of the reduction of its dims to others, with 1 in place of
    those that are reduced, or to one number (`[]`): an f64 for each leaf of the tree
    (docs/statistics.md).

    ```mlir
    !step.partial<sum, [n, m] to [n, 1]>
    ```
  }];
}

def Step_ShareType : Step_ReducedType<"Share", "share"> {
  let summary = "a share of a reduction's results";
  let description = [{
    What a rank, or one of several tensors, has of the results: in f64, neither divided nor
    rounded.

    ```mlir
    !step.share<sum, [n, m] to [n, 1]>
    ```
  }];
}

def Step_Value : AnyTypeOf<[F64, Step_TensorType], "a tensor or an f64 scalar">;
/// Of operations that stand in bodies of programs too, until they are expanded:
/// there the operands are elements, or vectors of them.
def Step_Operand : AnyTypeOf<[F64, Step_TensorType, F32, VectorOfNonZeroRankOf<[F32, F64]>],
                             "a tensor or a scalar">;
def Step_Condition : AnyTypeOf<[I1, Step_MaskType], "a mask or an i1">;

#endif // STEP_TYPES
