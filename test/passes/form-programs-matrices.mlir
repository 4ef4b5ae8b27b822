// RUN: stepc-opt --step-form-programs --cse --canonicalize --split-input-file %s | FileCheck %s
// RUN: stepc-opt --step-form-programs --cse --canonicalize --step-keep-over-rounds --split-input-file %s | FileCheck %s --check-prefix=KEEP

// The traversal of its time keeps the gradient whole, in the compute type. A transpose
// that only products use is how they read it; what has other dims than the param is
// traversed between traversals, and stored there.

// CHECK-LABEL: step.optimizer @gram
step.optimizer @gram {
  %half = step.constant 0.5
  // CHECK: step.program @gram_any_0(%[[PS:.*]]: param[n, m] as f32, %[[GS:.*]]: grad[n, m] as bf16, %[[LS:.*]]: state "l"[n, n] as bf16)
  // CHECK: %[[G:.*]] = step.traverse @gram_any_0_phase0 over [n, m] reads (%[[E:.*]] = %[[GS]] : <[n, m], bf16>) makes (f32) {
  // CHECK-NEXT: %[[X:.*]] = arith.extf %[[E]] : bf16 to f32
  // CHECK-NEXT: step.yield %[[X]] : f32
  // CHECK-NOT: step.transposed
  // CHECK: %[[GG:.*]] = step.product %[[G]], %[[G]] transposed symmetric : <[n, m], f32>, <[n, m], f32> -> <[n, n], f32>
  // CHECK-NEXT: %[[L:.*]]:2 = step.traverse @gram_any_0_small0 over [n, n]
  // CHECK-SAME: reads (%{{.*}} = %[[LS]] : <[n, n], bf16>, %{{.*}} = %[[GG]] : <[n, n], f32>) writes (%[[LS]] : <[n, n], bf16>) makes (f32) {
  // CHECK: %[[STORED:.*]] = arith.truncf %{{.*}} : f32 to bf16
  // CHECK-NEXT: %[[READ:.*]] = arith.extf %[[STORED]] : bf16 to f32
  // CHECK-NEXT: step.yield %[[STORED]], %[[READ]] : bf16, f32
  // The result has the param's dims: a traversal reads it as it reads memory.
  // CHECK: %[[U:.*]] = step.product %[[L]]#1, %[[G]] : <[n, n], f32>, <[n, m], f32> -> <[n, m], f32>
  // CHECK-NEXT: step.traverse @gram_any_0_phase1 over [n, m]
  // CHECK-SAME: reads (%{{.*}} = %[[PS]] : <[n, m], f32>, %{{.*}} = %[[U]] : <[n, m], f32>) writes (%[[PS]] : <[n, m], f32>) {
  step.rule @gram_any_0(%p: param[n, m] as f32, %g: grad[n, m] as bf16, %l: state "l"[n, n] as bf16) variant <"any", {}, f32> {
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %l1 = step.lerp %l, %gg, %half : [n, n], [n, n], f64
    %l2 = step.round %l1 to bf16 : [n, n]
    %u = step.matmul %l2, %g : [n, n], [n, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %l2 : [n, m], [n, n]
  }
}

// -----

// What element-wise operations use is a buffer, also where it is transposed only.

// CHECK-LABEL: step.optimizer @turned
step.optimizer @turned {
  // CHECK: %[[G:.*]] = step.traverse @turned_any_0_phase0 over [n, m]
  // CHECK: %[[GT:.*]] = step.transposed %[[G]] : <[n, m], f32> -> <[m, n], f32>
  // CHECK-NEXT: %[[T:.*]]:2 = step.traverse @turned_any_0_small0 over [m, n]
  // CHECK-SAME: reads (%{{.*}} = %t : <[m, n], f32>, %{{.*}} = %[[GT]] : <[m, n], f32>) writes (%t : <[m, n], f32>) makes (f32) {
  // CHECK: %[[TT:.*]] = step.transposed %[[T]]#1 : <[m, n], f32> -> <[n, m], f32>
  // A product of it reads what it is of all the same.
  // CHECK-NEXT: step.product %[[T]]#1 transposed, %[[T]]#1 symmetric : <[m, n], f32>, <[m, n], f32> -> <[n, n], f32>
  // CHECK: step.traverse @turned_any_0_phase1 over [n, m]
  // CHECK-SAME: %{{.*}} = %[[TT]] : <[n, m], f32>) writes (%param : <[n, m], f32>) {
  step.rule @turned_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %t: state "t"[m, n] as f32,
                          %l: state "l"[n, n] as f32) variant <"any", {}, f32> {
    %gt = step.transpose %g : [n, m]
    %t1 = step.add %t, %gt : [m, n]
    %tt = step.transpose %t1 : [m, n]
    %p1 = step.sub %p, %tt : [n, m]
    %l1 = step.matmul %tt, %t1 : [n, m], [m, n]
    step.return %p1, %t1, %l1 : [n, m], [m, n], [n, n]
  }
}

// -----

// What is symmetric: a matrix by its own transpose, squares of what is, and what is made
// of such element by element and by numbers of the tensor; and what is declared so. Not so the
// product of two of them, nor what is made of a state or of a row.

// CHECK-LABEL: step.optimizer @symmetric
step.optimizer @symmetric {
  %half = step.constant 0.5
  // CHECK: step.product %l, %l : <[n, n]
  // CHECK: %[[KEPT:.*]]:2 = step.traverse @symmetric_any_0_phase0
  // CHECK: %[[GG:.*]] = step.product %[[KEPT]]#0, %[[KEPT]]#0 transposed symmetric :
  // CHECK: step.product %[[KEPT]]#0 transposed, %[[KEPT]]#0 symmetric : <[n, m], f32>, <[n, m], f32> -> <[m, m], f32>
  // CHECK: step.product %[[KEPT]]#1, %[[KEPT]]#0 transposed : <[n, m]
  // CHECK: %[[SQUARE:.*]] = step.product %[[GG]], %[[GG]] symmetric :
  // CHECK: %[[ROWS:.*]]:2 = step.traverse @symmetric_any_0_small{{[0-9]}} over [n, n] reads (%{{.*}} = %row :
  // CHECK: step.product %[[GG]] transposed, %[[GG]] symmetric :
  // CHECK: %[[SUM:.*]] = step.traverse @symmetric_any_0_small{{[0-9]}} over [n, n] reads (%{{.*}} = %[[SQUARE]] :
  // CHECK: step.product %[[ROWS]]#0, %[[ROWS]]#0 : <[n, n]
  // CHECK: step.product %[[SUM]], %[[SUM]] symmetric :
  // CHECK: step.product %[[SUM]], %[[GG]] : <[n, n]
  // CHECK: %[[DECLARED:.*]] = step.product %{{.*}}, %l symmetric : <[n, n]
  // CHECK: step.product %[[DECLARED]], %[[DECLARED]] symmetric : <[n, n]
  step.rule @symmetric_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %l: state "l"[n, n] as f32,
                             %r: state "r"[m, m] as f32, %row: state "row"[1, n] as f32) variant <"any", {}, f32> {
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %r1 = step.matmul %gt, %g : [m, n], [n, m]
    %square = step.matmul %gg, %gg : [n, n]
    %ggt = step.transpose %gg : [n, n]
    %turned = step.matmul %ggt, %gg : [n, n]
    %scaled = step.mul %square, %half : [n, n], f64
    %s = step.sum %gg : [n, n]
    %sum = step.add %scaled, %gg : [n, n]
    %sum1 = step.mul %sum, %s : [n, n], f64
    %fourth = step.matmul %sum1, %sum1 : [n, n]
    %mixed = step.matmul %sum1, %gg : [n, n]
    %ll = step.matmul %l, %l : [n, n]
    %pgt = step.matmul %p, %gt : [n, m], [m, n]
    %a = step.add %fourth, %mixed : [n, n]
    %b = step.add %a, %ll : [n, n]
    %c = step.add %b, %pgt : [n, n]
    %d = step.add %c, %turned : [n, n]
    %rows = step.mul %gg, %row : [n, n], [1, n]
    %rr = step.matmul %rows, %rows : [n, n]
    %declared = step.matmul %rr, %l {symmetric} : [n, n]
    %of_declared = step.matmul %declared, %declared : [n, n]
    %f = step.add %d, %rr : [n, n]
    %e = step.add %f, %of_declared : [n, n]
    step.return %p, %e, %r1, %row : [n, m], [n, n], [m, m], [1, n]
  }
}

// -----

// What is used behind a round is kept over it: the gradient that a product read, and
// what a product made.

// CHECK-LABEL: step.optimizer @rounds
// KEEP-LABEL: step.optimizer @rounds
step.optimizer @rounds {
  %lr = step.hyper "lr" = 0.1
  %norm2 = step.statistic "norm2" sum over model
  %rate = step.scalars over model {
    %norm = step.sqrt %norm2 : f64
    %rate = step.mul %norm, %lr : f64
    step.yield %rate : f64
  }
  // KEEP: %[[MADE:.*]] = step.traverse @rounds_any_0_phase0 over [n, m]
  // KEEP: %[[G:.*]] = step.keep %[[MADE]] : !step.buffer<[n, m], f32>
  // KEEP: %[[PRODUCT:.*]] = step.product %[[MADE]], %[[MADE]] transposed symmetric
  // KEEP: %[[GG:.*]] = step.keep %[[PRODUCT]] : !step.buffer<[n, n], f32>
  // KEEP: step.traverse @rounds_any_0_small0 over [n, n] reads (%{{.*}} = %[[PRODUCT]] : <[n, n], f32>) partials (sum to []) {
  // KEEP: step.contribute
  // KEEP: step.exchange round 0
  // KEEP: step.traverse @rounds_any_0_small1 over [n, n] reads (%{{.*}} = %[[GG]] : <[n, n], f32>)
  // KEEP: step.product %{{.*}}, %[[G]] : <[n, n], f32>, <[n, m], f32> -> <[n, m], f32>
  // KEEP-NOT: step.keep
  // CHECK: step.program
  step.rule @rounds_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %l: state "l"[n, n] as f32) variant <"any", {}, f32> {
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %s = step.sum %gg : [n, n]
    step.contribute %norm2, %s
    %l1 = step.mul %gg, %rate : [n, n], f64
    %u = step.matmul %l1, %g : [n, n], [n, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %l1 : [n, m], [n, n]
  }
}

// -----

// An extent is a scalar of the tensor, and so is what is made of it.

// CHECK-LABEL: step.optimizer @extents
step.optimizer @extents {
  // CHECK: step.cohort_scalars @extents_any_0_scalars {
  // CHECK-NEXT: step.yield }{{$}}
  // CHECK: %[[N:.*]] = step.extent n
  // CHECK-NEXT: %[[M:.*]] = step.extent m
  // CHECK-NEXT: %[[RATIO:.*]] = arith.divf %[[N]], %[[M]] : f64
  // CHECK: step.traverse @extents_any_0_phase0 over [n, m]
  // CHECK-SAME: scalars (%{{.*}} = %[[RATIO]] as f32)
  step.rule @extents_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"any", {}, f32> {
    %n = step.extent n
    %m = step.extent m
    %ratio = step.div %n, %m : f64
    %p1 = step.mul %g, %ratio : [n, m], f64
    step.return %p1 : [n, m]
  }
}

// -----

// An identity is symmetric, and what is made of it element by element; not so where a row and
// a column are compared in another way.

// CHECK-LABEL: step.optimizer @identities
step.optimizer @identities {
  %half = step.constant 0.5
  %zero = step.constant 0.0
  // CHECK: %[[MADE:.*]]:2 = step.traverse @identities_any_0_small1 over [n, n]
  // CHECK-DAG: step.product %[[MADE]]#0, %[[MADE]]#0 symmetric : <[n, n]
  // CHECK-DAG: step.product %[[MADE]]#1, %[[MADE]]#1 : <[n, n]
  step.rule @identities_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %l: state "l"[n, n] as f32,
                              %k: state "k"[n, n] as f32) variant <"any", {}, f32> {
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %row = step.index : [n, 1]
    %column = step.index : [1, n]
    %same = step.compare eq, %row, %column : [n, 1], [1, n]
    %lower = step.compare ge, %row, %column : [n, 1], [1, n]
    %damp = step.select %same, %half, %zero : mask[n, n], f64
    %damped = step.add %gg, %damp : [n, n]
    %half_of_it = step.select %lower, %gg, %zero : mask[n, n], [n, n], f64
    %l1 = step.matmul %damped, %damped : [n, n]
    %k1 = step.matmul %half_of_it, %half_of_it : [n, n]
    step.return %p, %l1, %k1 : [n, m], [n, n], [n, n]
  }
}

// -----

// Vectors and values of one matrix are one decomposition, whichever comes first; each may be
// asked for alone.

// CHECK-LABEL: step.optimizer @eigen
step.optimizer @eigen {
  // CHECK: %{{.*}}, %{{.*}} = step.eigenvectors %l : <[n, n], f32> -> <[n, n], f32>, !step.buffer<[1, n], f32>
  // CHECK: %{{[^,]*}} = step.eigenvectors %r : <[m, m], f32> -> <[m, m], f32>{{$}}
  // CHECK: %[[GG:.*]] = step.product %{{.*}} transposed symmetric
  // CHECK-NEXT: %{{.*}}, %{{.*}} = step.eigenvectors %[[GG]] : <[n, n], f32> -> <[n, n], f32>, !step.buffer<[1, n], f32>
  // CHECK-NOT: step.eigenvectors
  step.rule @eigen_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %l: state "l"[n, n] as f32,
                         %r: state "r"[m, m] as f32, %row: state "row"[1, n] as f32)
      variant <"any", {}, f32> {
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %values = step.eigenvalues %gg : [n, n]
    %q = step.eigh %gg : [n, n]
    %scaled = step.mul %q, %values : [n, n], [1, n]
    %own = step.eigenvalues %l : [n, n]
    %row1 = step.add %row, %own : [1, n]
    %vectors = step.eigh %r : [m, m]
    step.return %p, %scaled, %vectors, %row1 : [n, m], [n, n], [m, m], [1, n]
  }
}

// -----

// A mask of the first row is none of the diagonal.

// CHECK-LABEL: step.optimizer @first_row
step.optimizer @first_row {
  // CHECK: %[[GG:.*]] = step.product %[[G:.*]], %[[G]] transposed symmetric :
  // CHECK: %[[ROW:.*]] = step.traverse @first_row_any_0_small{{[0-9]}} over [n, n]
  // CHECK: step.product %[[ROW]], %[[ROW]] : <[n, n]
  step.rule @first_row_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"any", {}, f32> {
    %gt = step.transpose %g : [n, m]
    %s = step.matmul %g, %gt : [n, m], [m, n]
    %row = step.index : [n, 1]
    %first = step.index : [1, 1]
    %is = step.compare eq, %row, %first : [n, 1], [1, 1]
    %zero = step.constant 0.0
    %x = step.select %is, %s, %zero : mask[n, 1], [n, n], f64
    %y = step.matmul %x, %x : [n, n], [n, n]
    %u = step.matmul %y, %g : [n, n], [n, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1 : [n, m]
  }
}
