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

def Step_Value : AnyTypeOf<[F64, Step_TensorType], "a tensor or an f64 scalar">;
/// Of operations that stand in bodies of programs too, until they are expanded:
/// there the operands are elements, or vectors of them.
def Step_Operand : AnyTypeOf<[F64, Step_TensorType, F32, VectorOfNonZeroRankOf<[F32, F64]>],
                             "a tensor or a scalar">;
def Step_Condition : AnyTypeOf<[I1, Step_MaskType], "a mask or an i1">;

#endif // STEP_TYPES
