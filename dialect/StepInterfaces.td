//===- StepInterfaces.td - what operations have in common -*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_INTERFACES
#define STEP_INTERFACES

include "mlir/IR/OpBase.td"

def Step_ValueOpInterface : OpInterface<"ValueOpInterface"> {
  let cppNamespace = "::mlir::step";
  let description = [{
    What computes one value of a rule, and all that is to be known of it: see
    `ValueParts` in dialect/Step.h. An operation without this interface cannot stand
    in a rule.
  }];
  let methods = [
    StaticInterfaceMethod<"What the operation is, in parts.",
                          "::mlir::step::ValueParts", "getParts">,
  ];
}

def Step_ReductionOpInterface : OpInterface<"ReductionOpInterface"> {
  let cppNamespace = "::mlir::step";
  let description = "step.sum, step.mean and step.amax.";
  let methods = [
    InterfaceMethod<"How many values become one.",
                    "::mlir::step::ReductionKind", "getReductionKind">,
    InterfaceMethod<"The tensors that are reduced, of one type. Each is reduced on its "
                    "own, and what becomes of them is combined in their order.",
                    "::mlir::OperandRange", "getInputs">,
    InterfaceMethod<"The first of the tensors that are reduced.",
                    "::mlir::Value", "getInput", (ins),
                    "return $_op->getOperand(0);">,
    InterfaceMethod<"The mesh axes over whose ranks parts of the result are reduced; "
                    "null where every rank has all that is reduced. The shard stage "
                    "sets it.",
                    "::mlir::ArrayAttr", "getAcrossAttr">,
    InterfaceMethod<"The condition under which the reduction is left out and gives "
                    "+0.0; null where it never is.",
                    "::mlir::Value", "getUnless">,
    InterfaceMethod<"Sets that condition.", "void", "setUnless",
                    (ins "::mlir::Value":$flag)>,
    InterfaceMethod<"Whether the order of its additions is free (dialect/Reassociation.h).",
                    "bool", "getReassociable">,
    InterfaceMethod<"Says so.", "void", "setReassociable", (ins "bool":$free)>,
    InterfaceMethod<"True where the whole tensor is reduced, to an f64.",
                    "bool", "isWhole">,
    InterfaceMethod<"Positions of the reduced dims in the operand's type, "
                    "ascending; all of them where the whole is reduced.",
                    "::llvm::SmallVector<unsigned>", "getReducedPositions">,
  ];
}

def Step_MatrixOpInterface : OpInterface<"MatrixOpInterface"> {
  let cppNamespace = "::mlir::step";
  let description = "Operations on whole matrices (StepMatrixOps.td).";
  let methods = [
    InterfaceMethod<"The condition under which the operation is left out, and gives anything; "
                    "null where it never is.", "::mlir::Value", "getUnless">,
    InterfaceMethod<"Sets that condition.", "void", "setUnless",
                    (ins "::mlir::Value":$flag)>,
  ];
}

def Step_ProgramMatrixOpInterface : OpInterface<"ProgramMatrixOpInterface"> {
  let cppNamespace = "::mlir::step";
  let description = [{
    What a finish does with whole matrices, once for the tensor: step.product and others. What
    has this interface may stand in a program and is scheduled, stored and left out as they
    are; `emitMatrices` (passes/lower/Products.h) computes it, in memory that
    `ProgramStorage::addMatrixMemory` gives it.
  }];
  let methods = [
    InterfaceMethod<"The condition under which it is left out, and what is in the result is "
                    "not defined; null where it never is.", "::mlir::Value", "getUnless">,
    StaticInterfaceMethod<"Whether it is most of the work of a step that has it: many "
                          "operations for each element.", "bool", "isMostWork", (ins), "",
                          "return false;">,
  ];
}

def Step_RoutineOpInterface : OpInterface<"RoutineOpInterface"> {
  let cppNamespace = "::mlir::step";
  let description = [{
    An operation on whole matrices that calls a routine of the runtime, which devices do not
    have: of a buffer of f64, which the result's elements come from or go to, in memory of its
    own.
  }];
  let methods = [
    StaticInterfaceMethod<"The routine's name in StepcRoutines (kernel_abi.h).",
                          "::llvm::StringRef", "getRoutine">,
  ];
}

def Step_TransferOpInterface : OpInterface<"TransferOpInterface"> {
  let cppNamespace = "::mlir::step";
  let description = [{
    What brings a gradient from where the caller has it to where the step needs it, or a
    param back: one operand, and one result that is the same tensor, lying elsewhere.
  }];
  let methods = [
    InterfaceMethod<"The mesh axes whose ranks take part.", "::mlir::ArrayAttr", "getOver">,
    StaticInterfaceMethod<"Whether it is of the gradient, before all else; or of the param, "
                          "behind all else.", "bool", "isOfGradient">,
    InterfaceMethod<"The type in which the caller has the gradient; null of the param.",
                    "::mlir::Type", "getEntryType">,
    InterfaceMethod<"The type in which addends cross; null where there are none.",
                    "::mlir::Type", "getWireType">,
  ];
}

#endif // STEP_INTERFACES
