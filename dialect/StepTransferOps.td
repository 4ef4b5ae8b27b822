//===- StepTransferOps.td - tensors that go to where they are needed -*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_TRANSFER_OPS
#define STEP_TRANSFER_OPS

include "StepValueOps.td"

/// The one list of what no source may say: the define stage and the interpreter
/// ask for it.
def Step_InsertedByPasses : NativeOpTrait<"InsertedByPasses"> {
  let cppNamespace = "::mlir::step";
}

def Step_TransferGroup : OpDocGroup {
  let summary = "Exchanges around a step";
  let description = [{
    What leads from the layout in which the caller has a param and its gradient to that of
    the step, and back (`docs/sharding.md`). `step-insert-exchanges` inserts them: those of
    the gradient are the first of a rule, that of the param gives what it returns. In a
    program they stand before and behind all else, on buffers. The value is the same tensor
    on both sides, or the sum of the ranks' addends, each of which is rounded to the type
    `wire`: they are added in the order of the ranks, gradients of f64 in f64, others in
    f32.

    ```
    // layout {"flat range" = ["dp"]}, entry <whole = ["dp"], partial = ["dp"], ...>
    %g = step.reduce_scatter %grad over ["dp"] of bf16 wire bf16 : [*]
    ...
    %p1 = step.all_gather %new over ["dp"] : [*]
    step.return %p1, ...
    ```
  }];
}
let opDocGroup = Step_TransferGroup in {

class Step_TransferOp<string mnemonic> : Step_Op<mnemonic, [
    Step_InsertedByPasses, ParentOneOf<["RuleOp", "ProgramOp"]>,
    AllTypesMatch<["operand", "result"]>,
    DeclareOpInterfaceMethods<Step_ValueOpInterface>,
    DeclareOpInterfaceMethods<Step_TransferOpInterface,
                              ["isOfGradient", "getEntryType", "getWireType"]>]> {
  let results = (outs AnyTypeOf<[Step_TensorType, Step_BufferType]>:$result);
  let hasVerifier = 1;
}

class Step_GradTransferOp<string mnemonic> : Step_TransferOp<mnemonic> {
  let arguments = (ins AnyTypeOf<[Step_TensorType, Step_BufferType]>:$operand,
                       StrArrayAttr:$over, TypeAttr:$entry,
                       OptionalAttr<TypeAttr>:$wire);
  let assemblyFormat = [{
    $operand `over` $over `of` $entry (`wire` $wire^)? attr-dict `:` custom<ShortType>(type($operand))
  }];
}

class Step_ParamTransferOp<string mnemonic> : Step_TransferOp<mnemonic> {
  let arguments = (ins AnyTypeOf<[Step_TensorType, Step_BufferType]>:$operand,
                       StrArrayAttr:$over);
  let assemblyFormat = [{
    $operand `over` $over attr-dict `:` custom<ShortType>(type($operand))
  }];
}

def Step_AllSliceOp : Step_GradTransferOp<"all_slice"> {
  let summary = "the rank's part of a gradient that it has whole";
  let description = [{
    Nothing crosses.

    Constraints:
    - it is of the gradient, or of what another operation of this group makes of it
    - some axis is named
    - there is no wire
  }];
}

def Step_ReduceScatterOp : Step_GradTransferOp<"reduce_scatter"> {
  let summary = "the rank's part of the sum of the ranks' gradients";
  let description = [{
    Constraints:
    - it is of the gradient, or of what another operation of this group makes of it
    - some axis is named
    - there is a wire
  }];
}

def Step_AllReduceOp : Step_GradTransferOp<"all_reduce"> {
  let summary = "the sum of the ranks' gradients";
  let description = [{
    Constraints:
    - it is of the gradient, or of what another operation of this group makes of it
    - some axis is named
    - there is a wire
  }];
}

def Step_ToOwnerOp : Step_GradTransferOp<"to_owner"> {
  let summary = "the gradient on the rank that steps the whole tensor";
  let description = [{
    With a wire it is the sum of the ranks' gradients; without one all have the same, and
    nothing crosses. Which rank that is, the runtime chooses when tensors are bound.

    Constraints:
    - it is of the gradient, or of what another operation of this group makes of it
    - some axis is named
  }];
}

def Step_AllGatherOp : Step_ParamTransferOp<"all_gather"> {
  let summary = "the param, put together of the ranks' parts";
  let description = [{
    Constraints:
    - it is of the param's new value, which is returned, or ends the program
    - some axis is named
  }];
}

def Step_FromOwnerOp : Step_ParamTransferOp<"from_owner"> {
  let summary = "the param, from the rank that stepped it";
  let description = [{
    Constraints:
    - it is of the param's new value, which is returned, or ends the program
    - some axis is named
  }];
}
} // opDocGroup

#endif // STEP_TRANSFER_OPS
