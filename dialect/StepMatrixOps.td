//===- StepMatrixOps.td - operations on whole matrices ----*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_MATRIX_OPS
#define STEP_MATRIX_OPS

include "StepValueOps.td"

def Step_MatrixGroup : OpDocGroup {
  let summary = "Matrices";
  let description = [{
    A tensor is a matrix of its last two dims; the dims before them, if it has some, are a
    batch of matrices. Products and transposes have dims that the param need not have in
    that order: `[n, n]`, `[m, n]`. States may have them too.

    A rule with such operations cannot work on a part of a matrix. Where ranks have parts,
    one of them gets the whole, and sends the others theirs (`docs/sharding.md`).

    ```mlir
    step.optimizer @example {
      %lr = step.hyper "lr" = 1.0e-3
      %half = step.constant 0.5
      step.rule @matrix(%p: param[n, m], %g: grad[n, m], %l: state "gram"[n, n]) {
        %gt = step.transpose %g : [n, m]
        %gg = step.matmul %g, %gt : [n, m], [m, n]
        %l1 = step.lerp %l, %gg, %half : [n, n], [n, n], f64
        %u = step.matmul %l1, %g : [n, n], [n, m]
        %d = step.mul %u, %lr : [n, m], f64
        %p1 = step.sub %p, %d : [n, m]
        step.return %p1, %l1 : [n, m], [n, n]
      }
    }
    ```
  }];
}
let opDocGroup = Step_MatrixGroup in {

/// Operations of whole matrices.
class Step_MatrixOp<string mnemonic>
    : Step_ValueOp<mnemonic, [DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let results = (outs Step_TensorType:$result);
  let hasVerifier = 1;
}

def Step_MatmulOp : Step_MatrixOp<"matmul"> {
  let summary = "the product of two matrices";
  let description = [{
    Element (i, j) is the sum of `lhs(i, k) * rhs(k, j)` over k, the dim that both have.
    Additions have one order, whatever the machine: for each 512 numbers k, a leaf, from
    +0.0 on in rising order `sum = fma(lhs, rhs, sum)` in the compute type; leaves are added
    in rising order in f64; and that is rounded to the compute type. +0.0 where k has no
    elements.

    Constraints:
    - each operand has two dims or more, and no `*`
    - the last dim of lhs has the name of the last but one of rhs
    - the dims before the last two are the same, and `...b` is none of the last two
  }];
  let arguments = (ins Step_TensorType:$lhs, Step_TensorType:$rhs);
  let assemblyFormat = [{
    $lhs `,` $rhs attr-dict `:` custom<ShortTypes>(type($lhs), type($rhs))
  }];
}

def Step_TransposeOp : Step_MatrixOp<"transpose"> {
  let summary = "a matrix with rows for columns";
  let description = [{
    The last two dims change places.

    Constraints:
    - the operand has two dims or more, and no `*`
    - `...b` is none of the last two
  }];
  let arguments = (ins Step_TensorType:$operand);
  let assemblyFormat = "$operand attr-dict `:` custom<ShortType>(type($operand))";
}

def Step_ExtentOp : Step_ValueOp<"extent"> {
  let summary = "how many elements a dim has";
  let description = [{
    Of the whole tensor, wherever its parts lie; of `...b` the product of the leading
    extents, and of `*` of all.

    ```mlir
    step.optimizer @example {
      step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
        %rows = step.extent n
        %root = step.sqrt %rows : f64
        %u = step.div %g, %root : [n, m], f64
        %p1 = step.sub %p, %u : [n, m]
        step.return %p1 : [n, m]
      }
    }
    ```

    Constraints:
    - it is a dim of the rule's param, or one that follows from these
  }];
  let arguments = (ins StrAttr:$dim);
  let results = (outs F64:$result);
  let assemblyFormat = "custom<DimName>($dim) attr-dict";
  let hasVerifier = 1;
}

} // opDocGroup

#endif // STEP_MATRIX_OPS
