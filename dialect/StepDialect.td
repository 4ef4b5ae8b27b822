//===- StepDialect.td - the step dialect ----------------------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_DIALECT
#define STEP_DIALECT

include "mlir/IR/OpBase.td"

def Step_Dialect : Dialect {
  let name = "step";
  let cppNamespace = "::mlir::step";
  let summary = "Optimizer steps as mathematics on whole tensors";
  let description = [{
    An optimizer is written once, as operations on whole tensors with symbolic
    dims. A definition speaks of no storage types, ranks, devices or launches;
    the passes derive those.

    **Values.** A tensor value has a shape of symbolic dims and no element type:
    its elements have the compute type of the binding, f32 or f64. Scalars are
    f64; the step count is i64; conditions are i1 or masks. An operation on
    tensors and scalars rounds each scalar once to the compute type, then works
    element by element, each operation correctly rounded. Nothing is
    contracted, and nothing reassociated but a reduction that says `reassociable`.

    **Where values are rounded to storage.** The new value of a parameter or
    state is rounded to its storage type where it is defined, and every other
    use of that value sees the rounded one. A value that is stored for several
    roles is rounded to the narrowest of their types. A returned argument of the
    rule is rounded only into what is stored. A state that does not exist where
    an option is false rounds nothing.

    **What binding accepts.** Parameters in f32, bf16 or f16 are computed in
    f32, in f64 otherwise. No tensor is stored wider than it is computed, bf16 and
    f16 do not go with f64, and no value is stored as both bf16 and f16.

    **What can be compiled.** Rules whose tensors all have the dims `[*]`, and rules
    whose param has 1 to 4 named dims, with or without leading ones, and whose states
    have as many dims as it. Others can be written and interpreted.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

#endif // STEP_DIALECT
