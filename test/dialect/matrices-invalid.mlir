// Tests what is refused of operations on matrices.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics

//===----------------------------------------------------------------------===//
// step.matmul
//===----------------------------------------------------------------------===//

step.optimizer @vector {
  step.rule @any(%p: param[n], %g: grad[n]) {
    // expected-error @+1 {{'step.matmul' op takes '!step.tensor<n>', which has no two dims of a matrix}}
    %x = step.matmul %p, %g : [n]
    step.return %p : [n]
  }
}

// -----

step.optimizer @elements {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.matmul' op takes '!step.tensor<*>', which has no two dims of a matrix}}
    %x = step.matmul %p, %g : [*]
    step.return %p
  }
}

// -----

// Of either operand.
step.optimizer @second {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "r"[m]) {
    // expected-error @+1 {{'step.matmul' op takes '!step.tensor<m>', which has no two dims of a matrix}}
    %x = step.matmul %p, %r : [n, m], [m]
    step.return %p, %r : [n, m], [m]
  }
}

// -----

step.optimizer @batch {
  step.rule @any(%p: param[...b, n], %g: grad[...b, n]) {
    // expected-error @+1 {{'step.matmul' op takes '!step.tensor<...b, n>', which has no two dims of a matrix}}
    %x = step.matmul %p, %g : [...b, n]
    step.return %p : [...b, n]
  }
}

// -----

step.optimizer @disagree {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.matmul' op multiplies '!step.tensor<n, m>' by '!step.tensor<n, m>': the columns of the one are 'm', the rows of the other 'n'}}
    %x = step.matmul %p, %g : [n, m]
    step.return %p : [n, m]
  }
}

// -----

// 1 is no name for a dim of 1 element.
step.optimizer @one {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "r"[1, m]) {
    // expected-error @+1 {{'step.matmul' op multiplies '!step.tensor<n, m>' by '!step.tensor<1, m>': the columns of the one are 'm', the rows of the other '1'}}
    %x = step.matmul %p, %r : [n, m], [1, m]
    step.return %p, %r : [n, m], [1, m]
  }
}

// -----

step.optimizer @batches {
  step.rule @any(%p: param[k, n, n], %g: grad[k, n, n], %s: state "s"[1, n, n]) {
    // expected-error @+1 {{'step.matmul' op multiplies '!step.tensor<k, n, n>' by '!step.tensor<1, n, n>', which are other batches}}
    %x = step.matmul %p, %s : [k, n, n], [1, n, n]
    step.return %p, %s : [k, n, n], [1, n, n]
  }
}

// -----

step.optimizer @ranks {
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %s: state "s"[m, m]) {
    // expected-error @+1 {{'step.matmul' op multiplies '!step.tensor<...b, n, m>' by '!step.tensor<m, m>', which are other batches}}
    %x = step.matmul %p, %s : [...b, n, m], [m, m]
    step.return %p, %s : [...b, n, m], [m, m]
  }
}

// -----

step.optimizer @scalar {
  // expected-note @+1 {{prior use here}}
  %x = step.constant 1.0
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{use of value '%x' expects different type than prior uses: '!step.tensor<n, m>' vs 'f64'}}
    %y = step.matmul %p, %x : [n, m]
    step.return %p : [n, m]
  }
}

// -----

// What an operation says of its result is checked too.
step.optimizer @result {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    %gt = step.transpose %g : [n, m]
    // expected-error @+2 {{'step.matmul' op inferred type(s) '!step.tensor<n, n>' are incompatible with return type(s) of operation '!step.tensor<n, m>'}}
    // expected-error @+1 {{'step.matmul' op failed to infer returned types}}
    %x = "step.matmul"(%g, %gt) : (!step.tensor<n, m>, !step.tensor<m, n>) -> !step.tensor<n, m>
    step.return %p : [n, m]
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.transpose
//===----------------------------------------------------------------------===//

step.optimizer @vector {
  step.rule @any(%p: param[n], %g: grad[n]) {
    // expected-error @+1 {{'step.transpose' op takes '!step.tensor<n>', which has no two dims of a matrix}}
    %x = step.transpose %g : [n]
    step.return %p : [n]
  }
}

// -----

step.optimizer @elements {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.transpose' op takes '!step.tensor<*>', which has no two dims of a matrix}}
    %x = step.transpose %g : [*]
    step.return %p
  }
}

// -----

step.optimizer @batch {
  step.rule @any(%p: param[...b, n], %g: grad[...b, n]) {
    // expected-error @+1 {{'step.transpose' op takes '!step.tensor<...b, n>', which has no two dims of a matrix}}
    %x = step.transpose %g : [...b, n]
    step.return %p : [...b, n]
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.eigh
//===----------------------------------------------------------------------===//

step.optimizer @vector {
  step.rule @any(%p: param[n], %g: grad[n]) {
    // expected-error @+1 {{'step.eigh' op takes '!step.tensor<n>', which has no two dims of a matrix}}
    %x = step.eigh %g : [n]
    step.return %p : [n]
  }
}

// -----

step.optimizer @square {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.eigh' op takes '!step.tensor<n, m>', whose rows are 'n' and whose columns 'm'}}
    %x = step.eigh %g : [n, m]
    step.return %p : [n, m]
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.qr, step.diagonal, step.sort
//===----------------------------------------------------------------------===//

step.optimizer @vector {
  step.rule @any(%p: param[n], %g: grad[n]) {
    // expected-error @+1 {{'step.qr' op takes '!step.tensor<n>', which has no two dims of a matrix}}
    %x = step.qr %g : [n]
    step.return %p : [n]
  }
}

// -----

step.optimizer @columns {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.qr' op takes '!step.tensor<n, m>', which may have more columns than rows}}
    %x = step.qr %g : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @least_of_others {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, r]) dim r = min 2, m {
    // expected-error @+1 {{'step.qr' op takes '!step.tensor<n, r>', which may have more columns than rows}}
    %x = step.qr %s : [n, r]
    step.return %p, %x : [n, m], [n, r]
  }
}

// -----

step.optimizer @square {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.diagonal' op takes '!step.tensor<n, m>', whose rows are 'n' and whose columns 'm'}}
    %x = step.diagonal %g : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @no_matrix {
  step.rule @any(%p: param[n], %g: grad[n]) {
    // expected-error @+1 {{'step.sort' op takes '!step.tensor<n>', which has no two dims of a matrix}}
    %x = step.sort %g by %p : [n], [n]
    step.return %x : [n]
  }
}

// -----

step.optimizer @keys {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.sort' op sorts '!step.tensor<n, m>' by '!step.tensor<n, m>', which has no key for each column}}
    %x = step.sort %g by %p : [n, m], [n, m]
    step.return %x : [n, m]
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.first
//===----------------------------------------------------------------------===//

step.optimizer @vector {
  step.rule @any(%p: param[n], %g: grad[n]) dim r = min 2, n {
    // expected-error @+1 {{'step.first' op takes '!step.tensor<n>', which has no two dims of a matrix}}
    %x = step.first %g, r : [n]
    step.return %p : [n]
  }
}

// -----

step.optimizer @fewer {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim r = min 2, n {
    // expected-error @+1 {{'step.first' op takes 'r' columns of '!step.tensor<n, m>', which may have fewer}}
    %x = step.first %g, r : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @unknown {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.first' op takes 'n' columns of '!step.tensor<n, m>', which may have fewer}}
    %x = step.first %g, n : [n, m]
    step.return %p : [n, m]
  }
}

// -----

//===----------------------------------------------------------------------===//
// What products add up in, and what passes leave out
//===----------------------------------------------------------------------===//

step.optimizer @narrow {
  step.rule @any(%p: param[n, n], %g: grad[n, n]) {
    // expected-error @+1 {{'step.matmul' op accumulates in 'bf16', which is not f64}}
    %x = step.matmul %p, %g {accumulate = bf16} : [n, n]
    step.return %p : [n, n]
  }
}

// -----

step.optimizer @narrow_factors {
  step.rule @any(%p: param[n, n], %g: grad[n, n]) {
    // expected-error @+1 {{'step.matmul' op has factors of 'f16', which is not bf16}}
    %x = step.matmul %p, %g {factors = f16} : [n, n]
    step.return %p : [n, n]
  }
}

// -----

step.optimizer @wide_factors {
  step.rule @any(%p: param[n, n], %g: grad[n, n]) {
    // expected-error @+1 {{'step.matmul' op accumulates factors of bf16 in 'f64', and not in f32}}
    %x = step.matmul %p, %g {accumulate = f64, factors = bf16} : [n, n]
    step.return %p : [n, n]
  }
}

// -----

step.optimizer @oblong {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %l: state "l"[n, n]) {
    // expected-error @+1 {{'step.matmul' op makes '!step.tensor<n, m>', which cannot be symmetric: it has as many rows as 'n', and columns as 'm'}}
    %x = step.matmul %l, %g {symmetric} : [n, n], [n, m]
    step.return %p, %l : [n, m], [n, n]
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.extent
//===----------------------------------------------------------------------===//

step.optimizer @foreign {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.extent' op asks for dim 'k' of a param of '!step.tensor<n, m>'}}
    %x = step.extent k
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @one {
  step.rule @any(%p: param[n, 1], %g: grad[n, 1]) {
    // expected-error @+1 {{'step.extent' op asks for dim '1' of a param of '!step.tensor<n, 1>'}}
    %x = step.extent 1
    step.return %p : [n, 1]
  }
}

// -----

step.optimizer @all {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.extent' op asks for dim '*' of a param of '!step.tensor<n, m>'}}
    %x = step.extent *
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @leading {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.extent' op asks for dim '...b' of a param of '!step.tensor<n, m>'}}
    %x = step.extent ...b
    step.return %p : [n, m]
  }
}

// -----

step.fragment @fragment {
  step.rule @any(%g: grad[*]) {
    // expected-error @+1 {{'step.extent' op stands in no rule of a param}}
    %x = step.extent *
    %y = step.mul %g, %x : [*], f64
    step.return %y
  }
}

// -----

step.optimizer @definition {
  step.define @f(%x: [n, m]) {
    // expected-error @+1 {{'step.extent' op stands in no rule of a param}}
    %n = step.extent n
    step.yield %n : f64
  }
}

// -----

step.optimizer @scalars {
  %x = step.scalars over model {
    // expected-error @+1 {{'step.extent' op stands in no rule of a param}}
    %n = step.extent n
    step.yield %n : f64
  }
}

// -----

step.optimizer @program {
  step.program @any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.extent' op asks for dim 'k' of a param of '!step.buffer<[n, m], f32>'}}
    %x = step.extent k
    step.traverse @k over [n, m] {
      step.yield
    }
  }
}

// -----

step.optimizer @normals {
  %seed = step.hyper "seed" = 1.0
  step.rule @any(%p: param[n, m], %g: grad[n, m], %t: count) {
    // expected-error @+1 {{'step.random_normal' op has an empty name}}
    %z = step.random_normal "" %seed, %t : [n, m]
    step.return %z : [n, m]
  }
}

// -----

step.optimizer @normals {
  %seed = step.hyper "seed" = 1.0
  step.rule @any(%p: param[n, m], %g: grad[n, m], %t: count) {
    // expected-error @+1 {{'step.random_normal' op makes '!step.tensor<n, k>', but 'k' is no dim of the rule}}
    %z = step.random_normal "z" %seed, %t : [n, k]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @normals {
  %seed = step.hyper "seed" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.random_normal' op takes '!step.tensor<*>', which has no two dims of a matrix}}
    %z = step.random_normal "z" %seed, %t : [*]
    step.return %z
  }
}

// -----

step.optimizer @scalars {
  %x = step.hyper "x" = 1.0
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.matmul' op operand #1 must be a tensor with symbolic dims, but got 'f64'}}
    %z = step.matmul %g, %x : [n, m], f64
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @scalars {
  %x = step.hyper "x" = 1.0
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.matmul' op operand #0 must be a tensor with symbolic dims, but got 'f64'}}
    %z = step.matmul %x, %g : f64, [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @eigenvalues {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.eigenvalues' op takes '!step.tensor<n, m>', whose rows are 'n' and whose columns 'm'}}
    %x = step.eigenvalues %g : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @identity {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.identity' op takes '!step.tensor<n, m>', whose rows are 'n' and whose columns 'm'}}
    %x = step.identity : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @identity {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.identity' op makes '!step.tensor<k, k>', but 'k' is no dim of the rule}}
    %x = step.identity : [k, k]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @identity {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.identity' op takes '!step.tensor<*>', which has no two dims of a matrix}}
    %x = step.identity : [*]
    step.return %p
  }
}

// -----

step.optimizer @index {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.index' op makes '!step.tensor<n, m>', which is neither a column nor a row}}
    %x = step.index : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @index {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.index' op makes '!step.tensor<k, 1>', but 'k' is no dim of the rule}}
    %x = step.index : [k, 1]
    step.return %p : [n, m]
  }
}
