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

/// Operations of whole matrices. Passes leave out, `unless`, what nobody needs in a step.
class Step_MatrixOp<string mnemonic>
    : Step_ValueOp<mnemonic, [DeclareOpInterfaceMethods<InferTypeOpInterface>,
                              Step_MatrixOpInterface]> {
  let results = (outs Step_TensorType:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    void setUnless(::mlir::Value flag) { getUnlessMutable().assign(flag); }
  }];
}

def Step_MatmulOp : Step_MatrixOp<"matmul"> {
  let summary = "the product of two matrices";
  let description = [{
    Element (i, j) is the sum of `lhs(i, k) * rhs(k, j)` over k, the dim that both have.
    Additions have one order, whatever the machine: for each 512 numbers k, a leaf, from
    +0.0 on in rising order `sum = fma(lhs, rhs, sum)` in the compute type; leaves are added
    in rising order in f64; and that is rounded to the compute type. +0.0 where k has no
    elements.

    With `accumulate = f64` the chain of a leaf is in f64 too, in which products of f32 are
    exact: so a Gram matrix, whose small eigenvalues would else be roundings of the large ones,
    is wrong by one rounding of its elements.

    With `factors = bf16` both operands are rounded to bf16 first, from f64 by way of f32, and
    numbers k come in pairs, the first two of a leaf and so on: the second's is added before the
    first's, of an odd last number after +0.0 times +0.0. That chain is in f32, whatever the
    compute type is, and knows no denormals: such a factor counts as a zero of its sign, and so
    does a sum that would be below 2^-126 once it is rounded as if exponents had no end. So
    compute the dot products of x86 (VDPBF16PS), which have twice as many multiplications an
    instruction; other processors and devices have the same bits by other instructions.

    Of a product that is `symmetric` the lower half, with the diagonal, is computed, and is the
    upper half too: element (i, j) above the diagonal is element (j, i). That keeps symmetric
    what is so in exact numbers only, as the product of two polynomials of one symmetric matrix,
    and is half of the work on a processor; a device computes element (j, i) twice. The square of
    a symmetric matrix, and a matrix times its transpose, are symmetric to the bit: of these a
    processor computes half in any case.

    ```mlir
    step.optimizer @example {
      step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
        %gt = step.transpose %g : [n, m]
        %gram = step.matmul %gt, %g {accumulate = f64} : [m, n], [n, m]
        %u = step.matmul %g, %gram : [n, m], [m, m]
        %p1 = step.sub %p, %u : [n, m]
        step.return %p1 : [n, m]
      }
    }
    ```

    Constraints:
    - each operand has two dims or more, and no `*`
    - the last dim of lhs has the name of the last but one of rhs
    - the dims before the last two are the same, and `...b` is none of the last two
    - what it accumulates in is f64
    - factors are bf16, and then it accumulates in nothing else
    - what is `symmetric` has rows and columns of one name
  }];
  let arguments = (ins Step_TensorType:$lhs, Step_TensorType:$rhs, Optional<I1>:$unless,
                       OptionalAttr<TypeAttr>:$accumulate, OptionalAttr<TypeAttr>:$factors,
                       UnitAttr:$symmetric);
  let assemblyFormat = [{
    $lhs `,` $rhs (`unless` $unless^)? attr-dict `:`
    custom<ShortTypes>(type($lhs), type($rhs))
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
  let arguments = (ins Step_TensorType:$operand, Optional<I1>:$unless);
  let assemblyFormat = [{
    $operand (`unless` $unless^)? attr-dict `:` custom<ShortType>(type($operand))
  }];
}

def Step_EighOp : Step_MatrixOp<"eigh"> {
  let summary = "the eigenvectors of a symmetric matrix";
  let description = [{
    In columns, orthonormal, that of the largest eigenvalue first. Of each the component of the
    largest magnitude, of several the first, is positive. Where eigenvalues are equal, their
    eigenvectors are some basis of their space.

    Of the matrix that the elements on and below the diagonal make, in f64: Householder
    reflections to a tridiagonal matrix, then implicit QL (J. H. Wilkinson, C. Reinsch: Linear
    Algebra, 1971, contributions II/2 and II/4), in an order that depends on nothing else
    (`numerics/SymmetricEigen.cpp`); the result is rounded to the compute type. An infinite
    element or NaN gives NaN everywhere.

    ```mlir
    step.optimizer @example {
      step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
        %gt = step.transpose %g : [n, m]
        %gram = step.matmul %g, %gt {accumulate = f64} : [n, m], [m, n]
        %q = step.eigh %gram : [n, n]
        %qt = step.transpose %q : [n, n]
        %u = step.matmul %qt, %g : [n, n], [n, m]
        %p1 = step.sub %p, %u : [n, m]
        step.return %p1 : [n, m]
      }
    }
    ```

    Constraints:
    - the last two dims are one
    - those of step.transpose
  }];
  let arguments = (ins Step_TensorType:$operand, Optional<I1>:$unless);
  let assemblyFormat = [{
    $operand (`unless` $unless^)? attr-dict `:` custom<ShortType>(type($operand))
  }];
}

def Step_EigenvaluesOp : Step_MatrixOp<"eigenvalues"> {
  let summary = "the eigenvalues of a symmetric matrix";
  let description = [{
    As a row, the largest first: the result has 1 for the operand's rows. Number k is that of
    column k of `step.eigh` of the same matrix, and found along with it: a rule that has both of
    one matrix decomposes that once. Each is wrong by some roundings of the largest in f64: so
    where the matrix has none below 0, a small one may come out below 0. The result is rounded to
    the compute type. NaN where `step.eigh` has NaN.

    ```mlir
    step.optimizer @example {
      %eps = step.hyper "eps" = 1.0e-12
      step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
        %gt = step.transpose %g : [n, m]
        %gram = step.matmul %g, %gt {accumulate = f64} : [n, m], [m, n]
        %q = step.eigh %gram : [n, n]
        %values = step.eigenvalues %gram : [n, n]
        %zero = step.constant 0.0
        %least = step.maximum %values, %zero : [1, n], f64
        %above = step.add %least, %eps : [1, n], f64
        %root = step.sqrt %above : [1, n]
        %scaled = step.div %q, %root : [n, n], [1, n]
        %qt = step.transpose %q : [n, n]
        %inverse = step.matmul %scaled, %qt {symmetric} : [n, n]
        %u = step.matmul %inverse, %g : [n, n], [n, m]
        %p1 = step.sub %p, %u : [n, m]
        step.return %p1 : [n, m]
      }
    }
    ```

    Constraints:
    - those of step.eigh
  }];
  let arguments = (ins Step_TensorType:$operand, Optional<I1>:$unless);
  let assemblyFormat = [{
    $operand (`unless` $unless^)? attr-dict `:` custom<ShortType>(type($operand))
  }];
}

def Step_QrOp : Step_MatrixOp<"qr"> {
  let summary = "an orthonormal basis of a matrix's columns";
  let description = [{
    Q of `operand = Q R`, where Q has the operand's rows and columns, the columns of Q are
    orthonormal, and R is upper triangular with no negative number on its diagonal. So the
    first k columns of Q span those of the operand, for each k. Where a column depends on those
    before it, that of Q is any that is orthogonal to them.

    In f64: each column is divided by a power of two, so that its size does not matter; then
    Householder reflections, 32 at a time (R. Schreiber, C. Van Loan: A storage-efficient WY
    representation, 1989), in an order that depends on nothing else
    (`numerics/Orthonormal.cpp`); the result is rounded to the compute type. An infinite
    element or NaN gives NaN everywhere.

    ```mlir
    step.optimizer @example {
      %rank = step.option "rank" = 4
      step.rule @matrix(%p: param[n, m], %g: grad[n, m], %q: state "q"[m, r])
          dim r = min %rank, n, m {
        %y = step.matmul %g, %q : [n, m], [m, r]
        %left = step.qr %y : [n, r]
        %gt = step.transpose %g : [n, m]
        %z = step.matmul %gt, %left : [m, n], [n, r]
        %q1 = step.qr %z : [m, r]
        step.return %p, %q1 : [n, m], [m, r]
      }
    }
    ```

    Constraints:
    - those of step.transpose
    - in a rule, the last dim is the one before it, or one that follows from it, among others
  }];
  let arguments = (ins Step_TensorType:$operand, Optional<I1>:$unless);
  let assemblyFormat = [{
    $operand (`unless` $unless^)? attr-dict `:` custom<ShortType>(type($operand))
  }];
}

def Step_DiagonalOp : Step_MatrixOp<"diagonal"> {
  let summary = "the diagonal of a matrix";
  let description = [{
    As a row: the result has 1 for the operand's rows.

    Constraints:
    - those of step.eigh
  }];
  let arguments = (ins Step_TensorType:$operand, Optional<I1>:$unless);
  let assemblyFormat = [{
    $operand (`unless` $unless^)? attr-dict `:` custom<ShortType>(type($operand))
  }];
}

def Step_SortOp : Step_MatrixOp<"sort"> {
  let summary = "the columns of a matrix in the order of their keys";
  let description = [{
    Each column has a key: the largest key's is first, those of equal keys stay in their order,
    and those whose key is NaN are last.

    ```mlir
    step.optimizer @example {
      step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
        %gt = step.transpose %g : [n, m]
        %gram = step.matmul %gt, %g : [m, n], [n, m]
        %squares = step.diagonal %gram : [m, m]
        %sorted = step.sort %g by %squares : [n, m], [1, m]
        step.return %sorted : [n, m]
      }
    }
    ```

    Constraints:
    - those of step.transpose
    - keys have the dims of the operand, with 1 for its rows
  }];
  let arguments = (ins Step_TensorType:$operand, Step_TensorType:$keys, Optional<I1>:$unless);
  let assemblyFormat = [{
    $operand `by` $keys (`unless` $unless^)? attr-dict `:`
    custom<ShortTypes>(type($operand), type($keys))
  }];
}

def Step_FirstOp : Step_MatrixOp<"first"> {
  let summary = "the first columns of a matrix";
  let description = [{
    As many as a dim of the rule has, which is the least of the matrix's columns and others.

    ```mlir
    step.optimizer @example {
      %rank = step.option "rank" = 4
      step.rule @matrix(%p: param[n, m], %g: grad[n, m], %s: state "left"[n, r])
          dim r = min %rank, n, m {
        %left = step.first %g, r : [n, m]
        step.return %p, %left : [n, m], [n, r]
      }
    }
    ```

    Constraints:
    - those of step.transpose
    - in a rule, the dim is one that follows from the last dim of the operand, among others
  }];
  let arguments = (ins Step_TensorType:$operand, StrAttr:$dim, Optional<I1>:$unless);
  let assemblyFormat = [{
    $operand `,` custom<DimName>($dim) (`unless` $unless^)? attr-dict `:`
    custom<ShortType>(type($operand))
  }];
}

/// A matrix that is made of no other: its dims are written.
class Step_MadeMatrixOp<string mnemonic> : Step_ValueOp<mnemonic, [Step_MatrixOpInterface]> {
  let arguments = (ins Optional<I1>:$unless);
  let results = (outs Step_TensorType:$result);
  let assemblyFormat = "(`unless` $unless^)? attr-dict `:` custom<ShortType>(type($result))";
  let extraClassDeclaration = [{
    void setUnless(::mlir::Value flag) { getUnlessMutable().assign(flag); }
  }];
  let hasVerifier = 1;
}

def Step_IdentityOp : Step_MadeMatrixOp<"identity"> {
  let summary = "1 on the diagonal, 0 elsewhere";
  let description = [{
    Of a batch, each of its matrices is that. `step-expand-identities` makes it of two
    `step.index` that are compared: what uses it element by element, as a multiple of it that is
    added, needs no memory for it.

    ```mlir
    step.optimizer @example {
      %eps = step.hyper "eps" = 1.0e-6
      step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
        %gt = step.transpose %g : [n, m]
        %gram = step.matmul %g, %gt : [n, m], [m, n]
        %one = step.identity : [n, n]
        %damp = step.mul %one, %eps : [n, n], f64
        %damped = step.add %gram, %damp : [n, n]
        %u = step.matmul %damped, %g : [n, n], [n, m]
        %p1 = step.sub %p, %u : [n, m]
        step.return %p1 : [n, m]
      }
    }
    ```

    Constraints:
    - those of step.transpose, of the result
    - the last two dims are one
    - in a rule, its dims are the rule's
  }];
}

def Step_IndexOp : Step_MadeMatrixOp<"index"> {
  let summary = "where in a matrix its rows stand, or its columns";
  let description = [{
    As a column, `[n, 1]`, the numbers 0, 1 and so on of the rows; as a row, `[1, m]`, those of
    the columns. Compared with one another they say what of a matrix is on the diagonal, and
    what is above it. In f32 they are rounded beyond 2^24.

    ```mlir
    step.optimizer @example {
      step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
        %row = step.index : [n, 1]
        %column = step.index : [1, m]
        %lower = step.compare ge, %row, %column : [n, 1], [1, m]
        %p1 = step.select %lower, %g, %p : mask[n, m], [n, m]
        step.return %p1 : [n, m]
      }
    }
    ```

    Constraints:
    - those of step.transpose, of the result
    - one of the last two dims is 1
    - in a rule, its dims are the rule's
  }];
}

def Step_RandomNormalOp : Step_ValueOp<"random_normal", [AttrSizedOperandSegments,
                                                         Step_MatrixOpInterface]> {
  let summary = "a matrix of normal random numbers";
  let description = [{
    Independent numbers of mean 0 and variance 1. They follow from the seed, the count, the
    name, which tells several matrices of a rule apart, the tensor's number and the place of the
    element, and from nothing else: they are the same whatever the threads, ranks, device and
    order of calls. The seed is any f64, by its bits, and any NaN the quiet one; the count is taken modulo 2^32.

    Element `index` of the result, in row-major order of all its matrices, is in f64 the
    quantile of the normal distribution of `(k + 1/2) / 2^52`. The 52 bits of k are the upper
    ones of 64, words `2 (position mod 2)` and the next one (the lower first) of

        Philox4x32-10(key = seed, counter = (position / 2, count, stream))

    as in `step.round_stochastic`, the stream the 32-bit FNV-1a hash of " normal " and the name,
    the position the tensor's number times 2^40, plus `index`. The quantile is that of M. J.
    Wichura, Algorithm AS 241, Applied Statistics 37(3), 1988 (`dialect/Functions.h`), so the
    value does not depend on a mathematical library. No number is beyond 8.21 from 0. The result
    is rounded to the compute type.

    ```mlir
    step.optimizer @example {
      %seed = step.hyper "seed" = 1.0
      %gap = step.hyper "gap" = 200.0
      %rank = step.option "rank" = 4
      step.rule @matrix(%p: param[n, m], %g: grad[n, m], %o: state "omega"[m, r], %t: count)
          dim r = min %rank, n, m {
        %due = step.every %gap, %t
        %o1 = step.when %due, %o : [m, r] {
          %fresh = step.random_normal "omega" %seed, %t : [m, r]
          step.yield %fresh : [m, r]
        }
        %y = step.matmul %g, %o1 : [n, m], [m, r]
        %ot = step.transpose %o1 : [m, r]
        %u = step.matmul %y, %ot : [n, r], [r, m]
        %p1 = step.sub %p, %u : [n, m]
        step.return %p1, %o1 : [n, m], [m, r]
      }
    }
    ```

    Constraints:
    - those of step.transpose, of the result
    - in a rule, its dims are the rule's
    - the name is not empty
  }];
  let arguments = (ins StrAttr:$name, F64:$seed, I64:$count,
                       Optional<Step_TensorType>:$position, Optional<I1>:$unless);
  let results = (outs Step_TensorType:$result);
  let assemblyFormat = [{
    $name $seed `,` $count (`at` $position^ `:` custom<ShortType>(type($position)))? (`unless` $unless^)? attr-dict
    `:` custom<ShortType>(type($result))
  }];
  let extraClassDeclaration = [{
    void setUnless(::mlir::Value flag) { getUnlessMutable().assign(flag); }
  }];
  let hasVerifier = 1;
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
