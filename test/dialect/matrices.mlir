// Tests the syntax of operations on matrices, and the types of their results.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s
// RUN: stepc-opt %s -mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC

// CHECK-LABEL: step.optimizer @products {
// GENERIC-LABEL: sym_name = "products"
step.optimizer @products {
  %half = step.constant 0.5
  // States have the param's dims in any order, one of them twice, or 1 for some.
  // CHECK: step.rule @matrix(%param: param[n, m], %grad: grad[n, m], %l: state "l"[n, n],
  // CHECK-SAME: %r: state "r"[m, m] = 1.0, %t: state "t"[m, n], %row: state "row"[1, m]) {
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %l: state "l"[n, n], %r: state "r"[m, m] = 1.0,
                    %t: state "t"[m, n], %w: state "row"[1, m]) {
    // CHECK-NEXT: %[[GT:.*]] = step.transpose %grad : [n, m]{{$}}
    // GENERIC: %[[GT:.*]] = "step.transpose"({{.*}}) : (!step.tensor<n, m>) -> !step.tensor<m, n>
    %gt = step.transpose %g : [n, m]
    // CHECK-NEXT: %[[LEFT:.*]] = step.matmul %grad, %[[GT]] : [n, m], [m, n]{{$}}
    // GENERIC: "step.matmul"({{.*}}, %[[GT]]) : (!step.tensor<n, m>, !step.tensor<m, n>) -> !step.tensor<n, n>
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    // CHECK-NEXT: step.matmul %[[GT]], %grad : [m, n], [n, m]{{$}}
    // GENERIC: "step.matmul"(%[[GT]], {{.*}}) : (!step.tensor<m, n>, !step.tensor<n, m>) -> !step.tensor<m, m>
    %gtg = step.matmul %gt, %g : [m, n], [n, m]
    // One type stands for two.
    // CHECK-NEXT: step.matmul %l, %[[LEFT]] {note = "kept"} : [n, n]{{$}}
    %ll = step.matmul %l, %gg {note = "kept"} : [n, n], [n, n]
    // CHECK-NEXT: step.transpose %[[LEFT]] {note = "kept"} : [n, n]{{$}}
    %same = step.transpose %gg {note = "kept"} : [n, n]
    %l1 = step.lerp %ll, %same, %half : [n, n], [n, n], f64
    // A matrix of one row, and of one column.
    // CHECK: step.matmul %row, %{{.*}} : [1, m], [m, m]{{$}}
    // GENERIC: "step.matmul"({{.*}}) : (!step.tensor<1, m>, !step.tensor<m, m>) -> !step.tensor<1, m>
    %w1 = step.matmul %w, %gtg : [1, m], [m, m]
    // CHECK-NEXT: %[[COLUMN:.*]] = step.transpose %row : [1, m]{{$}}
    // GENERIC: "step.transpose"({{.*}}) : (!step.tensor<1, m>) -> !step.tensor<m, 1>
    %column = step.transpose %w : [1, m]
    // CHECK-NEXT: step.matmul %[[COLUMN]], %row : [m, 1], [1, m]{{$}}
    // GENERIC: "step.matmul"({{.*}}) : (!step.tensor<m, 1>, !step.tensor<1, m>) -> !step.tensor<m, m>
    %outer = step.matmul %column, %w : [m, 1], [1, m]
    // CHECK-NEXT: step.matmul %row, %[[COLUMN]] : [1, m], [m, 1]{{$}}
    // GENERIC: "step.matmul"({{.*}}) : (!step.tensor<1, m>, !step.tensor<m, 1>) -> !step.tensor<1, 1>
    %inner = step.matmul %w, %column : [1, m], [m, 1]
    %scaled = step.mul %g, %inner : [n, m], [1, 1]
    %r1 = step.add %outer, %gtg : [m, m]
    %t1 = step.add %t, %gt : [m, n]
    // CHECK: step.return %{{.*}} : [n, m], [n, n], [m, m], [m, n], [1, m]
    step.return %scaled, %l1, %r1, %t1, %w1 : [n, m], [n, n], [m, m], [m, n], [1, m]
  }
}

// Batches stand before the matrix: those of a name, and what `...` has.
// CHECK-LABEL: step.optimizer @batches {
// GENERIC-LABEL: sym_name = "batches"
step.optimizer @batches {
  step.rule @three(%p: param[k, n, m], %g: grad[k, n, m], %l: state "l"[k, n, n]) {
    // CHECK: step.transpose %grad : [k, n, m]
    // GENERIC: (!step.tensor<k, n, m>) -> !step.tensor<k, m, n>
    %gt = step.transpose %g : [k, n, m]
    // CHECK-NEXT: step.matmul %grad, %{{.*}} : [k, n, m], [k, m, n]
    // GENERIC: (!step.tensor<k, n, m>, !step.tensor<k, m, n>) -> !step.tensor<k, n, n>
    %gg = step.matmul %g, %gt : [k, n, m], [k, m, n]
    step.return %p, %gg : [k, n, m], [k, n, n]
  }
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %l: state "l"[...b, m, m]) {
    // CHECK: step.transpose %grad : [...b, n, m]
    // GENERIC: (!step.tensor<...b, n, m>) -> !step.tensor<...b, m, n>
    %gt = step.transpose %g : [...b, n, m]
    // CHECK-NEXT: step.matmul %{{.*}}, %grad : [...b, m, n], [...b, n, m]
    // GENERIC: (!step.tensor<...b, m, n>, !step.tensor<...b, n, m>) -> !step.tensor<...b, m, m>
    %gg = step.matmul %gt, %g : [...b, m, n], [...b, n, m]
    // CHECK-NEXT: step.matmul %grad, %{{.*}} : [...b, n, m], [...b, m, m]
    %u = step.matmul %g, %gg : [...b, n, m], [...b, m, m]
    step.return %u, %gg : [...b, n, m], [...b, m, m]
  }
}

// CHECK-LABEL: step.optimizer @extents {
// GENERIC-LABEL: sym_name = "extents"
step.optimizer @extents {
  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m]) {
    // CHECK: step.extent n{{$}}
    // GENERIC: "step.extent"() <{dim = "n"}> : () -> f64
    %n = step.extent n
    // CHECK-NEXT: step.extent m {note = "kept"}{{$}}
    %m = step.extent m {note = "kept"}
    // CHECK-NEXT: step.extent ...b{{$}}
    // GENERIC: "step.extent"() <{dim = "...b"}> : () -> f64
    %b = step.extent ...b
    %nm = step.mul %n, %m : f64
    %bnm = step.mul %nm, %b : f64
    %p1 = step.div %g, %bnm : [...b, n, m], f64
    step.return %p1 : [...b, n, m]
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.extent *{{$}}
    // GENERIC: "step.extent"() <{dim = "*"}> : () -> f64
    %all = step.extent *
    %p1 = step.div %g, %all : [*], f64
    step.return %p1
  }
}

// Decompositions; the first columns, as many as a dim of the rule has; f64 in a product.
// CHECK-LABEL: step.optimizer @decomposed {
// GENERIC-LABEL: sym_name = "decomposed"
step.optimizer @decomposed {
  %rank = step.option "rank" = 4
  step.define @some(%g: [n, m]) {
    %gt = step.transpose %g : [n, m]
    // CHECK: step.matmul %{{.*}}, %{{.*}} {accumulate = f64} : [m, n], [n, m]{{$}}
    %gram = step.matmul %gt, %g {accumulate = f64} : [m, n], [n, m]
    // CHECK-NEXT: step.matmul %{{.*}}, %{{.*}} {symmetric} : [m, m]{{$}}
    // GENERIC: "step.matmul"({{.*}}) <{{{.*}}symmetric}> : (!step.tensor<m, m>, !step.tensor<m, m>) -> !step.tensor<m, m>
    %cube = step.matmul %gram, %gram {symmetric} : [m, m]
    // CHECK-NEXT: step.matmul %{{.*}}, %{{.*}} {factors = bf16, symmetric} : [m, m]{{$}}
    %rounded = step.matmul %cube, %gram {factors = bf16, symmetric} : [m, m]
    // CHECK-NEXT: step.eigh %{{.*}} : [m, m]{{$}}
    // GENERIC: "step.eigh"({{.*}}) : (!step.tensor<m, m>) -> !step.tensor<m, m>
    %q = step.eigh %gram : [m, m]
    // CHECK-NEXT: step.first %{{.*}}, r : [m, m]{{$}}
    // GENERIC: "step.first"({{.*}}) <{dim = "r"}> : (!step.tensor<m, m>) -> !step.tensor<m, r>
    %first = step.first %q, r : [m, m]
    step.yield %first : [m, r]
  }
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %s: state "s"[m, r]) dim r = min %rank, n, m {
    %s1 = step.call @some(%g) : ([n, m]) -> [m, r]
    // CHECK: step.first %grad, r {note = "kept"} : [n, m]{{$}}
    %left = step.first %g, r {note = "kept"} : [n, m]
    // All of them.
    // CHECK: step.first %grad, m : [n, m]{{$}}
    %all = step.first %g, m : [n, m]
    %st = step.transpose %s1 : [m, r]
    %u = step.matmul %left, %st : [n, r], [r, m]
    %v = step.add %u, %all : [n, m]
    %s2 = step.add %s1, %s : [m, r]
    step.return %v, %s2 : [n, m], [m, r]
  }
  step.rule @batch(%p: param[...b, n, n], %g: grad[...b, n, n]) {
    // CHECK: step.eigh %grad {note = "kept"} : [...b, n, n]{{$}}
    %q = step.eigh %g {note = "kept"} : [...b, n, n]
    step.return %q : [...b, n, n]
  }
}

// Bases of columns, diagonals, columns in order.
// CHECK-LABEL: step.optimizer @sorted {
// GENERIC-LABEL: sym_name = "sorted"
step.optimizer @sorted {
  %rank = step.option "rank" = 4
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, r]) dim r = min %rank, n, m {
    %gt = step.transpose %g : [n, m]
    %gram = step.matmul %gt, %g : [m, n], [n, m]
    // CHECK: %[[KEYS:.*]] = step.diagonal %{{.*}} {note = "kept"} : [m, m]{{$}}
    // GENERIC: "step.diagonal"({{.*}}) {note = "kept"} : (!step.tensor<m, m>) -> !step.tensor<1, m>
    %keys = step.diagonal %gram {note = "kept"} : [m, m]
    // CHECK-NEXT: step.sort %grad by %[[KEYS]] {note = "kept"} : [n, m], [1, m]{{$}}
    // GENERIC: "step.sort"({{.*}}) {note = "kept"} : (!step.tensor<n, m>, !step.tensor<1, m>) -> !step.tensor<n, m>
    %sorted = step.sort %g by %keys {note = "kept"} : [n, m], [1, m]
    %left = step.first %sorted, r : [n, m]
    // CHECK: step.qr %{{.*}} {note = "kept"} : [n, r]{{$}}
    // GENERIC: "step.qr"({{.*}}) {note = "kept"} : (!step.tensor<n, r>) -> !step.tensor<n, r>
    %q = step.qr %left {note = "kept"} : [n, r]
    // A square one's.
    // CHECK-NEXT: step.qr %{{.*}} : [m, m]{{$}}
    %all = step.qr %gram : [m, m]
    %u = step.matmul %g, %all : [n, m], [m, m]
    step.return %u, %q : [n, m], [n, r]
  }
  step.rule @batch(%p: param[...b, n, n], %g: grad[...b, n, n]) {
    // CHECK: step.diagonal %grad : [...b, n, n]{{$}}
    %keys = step.diagonal %g : [...b, n, n]
    // CHECK-NEXT: step.sort %grad by %{{.*}} : [...b, n, n], [...b, 1, n]{{$}}
    %x = step.sort %g by %keys : [...b, n, n], [...b, 1, n]
    step.return %x : [...b, n, n]
  }
}

// Eigenvalues, identities and indices.
// CHECK-LABEL: step.optimizer @made {
// GENERIC-LABEL: sym_name = "made"
step.optimizer @made {
  // CHECK: step.define @some
  step.define @some(%g: [n, n]) {
    // CHECK: step.eigenvalues %{{.*}} : [n, n]{{$}}
    // GENERIC: "step.eigenvalues"({{.*}}) : (!step.tensor<n, n>) -> !step.tensor<1, n>
    %values = step.eigenvalues %g : [n, n]
    // CHECK-NEXT: step.identity : [n, n]{{$}}
    // GENERIC: "step.identity"() : () -> !step.tensor<n, n>
    %one = step.identity : [n, n]
    // CHECK-NEXT: step.index : [n, 1]{{$}}
    // GENERIC: "step.index"() : () -> !step.tensor<n, 1>
    %row = step.index : [n, 1]
    %scaled = step.mul %one, %values : [n, n], [1, n]
    %moved = step.mul %scaled, %row : [n, n], [n, 1]
    step.yield %moved : [n, n]
  }
  step.rule @batch(%p: param[...b, n, n], %g: grad[...b, n, n]) {
    // CHECK: step.eigenvalues %grad {note = "kept"} : [...b, n, n]{{$}}
    // GENERIC: "step.eigenvalues"({{.*}}) {note = "kept"} : (!step.tensor<...b, n, n>) -> !step.tensor<...b, 1, n>
    %values = step.eigenvalues %g {note = "kept"} : [...b, n, n]
    // CHECK-NEXT: step.identity {note = "kept"} : [...b, n, n]{{$}}
    %one = step.identity {note = "kept"} : [...b, n, n]
    // CHECK-NEXT: step.index {note = "kept"} : [...b, 1, n]{{$}}
    %column = step.index {note = "kept"} : [...b, 1, n]
    %sum = step.add %values, %column : [...b, 1, n]
    %p1 = step.mul %one, %sum : [...b, n, n], [...b, 1, n]
    step.return %p1 : [...b, n, n]
  }
}

// Random numbers.
// CHECK-LABEL: step.optimizer @normals {
// GENERIC-LABEL: sym_name = "normals"
step.optimizer @normals {
  %seed = step.hyper "seed" = 1.0
  %rank = step.option "rank" = 4
  // CHECK: step.define @some
  step.define @some(%t: i64) {
    // CHECK: step.random_normal "omega" %seed, %{{.*}} : [m, r]{{$}}
    %omega = step.random_normal "omega" %seed, %t : [m, r]
    step.yield %omega : [m, r]
  }
  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m], %t: count) dim r = min %rank, n, m {
    // CHECK: step.random_normal "z" %seed, %count {note = "kept"} : [...b, n, m]{{$}}
    // GENERIC: "step.random_normal"({{.*}}) <{name = "z", operandSegmentSizes = array<i32: 1, 1, 0, 0>}> {note = "kept"} : (f64, i64) -> !step.tensor<...b, n, m>
    %z = step.random_normal "z" %seed, %t {note = "kept"} : [...b, n, m]
    // CHECK-NEXT: step.random_normal "z" %seed, %count : [n, 1]{{$}}
    %column = step.random_normal "z" %seed, %t : [n, 1]
    step.return %z : [...b, n, m]
  }
}
