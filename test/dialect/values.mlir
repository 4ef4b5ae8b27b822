// Tests the syntax of the operations on values, and the types of their results.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s
// RUN: stepc-opt %s -mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC

// CHECK-LABEL: step.optimizer @scalars
// GENERIC-LABEL: sym_name = "scalars"
step.optimizer @scalars {
  // CHECK: %lr = step.hyper
  %lr = step.hyper "lr" = 1.0
  // CHECK-NEXT: step.constant 0.5{{$}}
  %half = step.constant 0.5
  // CHECK-NEXT: step.constant true{{$}}
  %yes = step.constant true
  // CHECK-NEXT: step.constant false{{$}}
  %no = step.constant false
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // One type stands for all; results of scalars are scalars.
    // CHECK: step.add %lr, %lr : f64{{$}}
    // GENERIC: "step.add"({{.*}}) : (f64, f64) -> f64
    %0 = step.add %lr, %lr : f64
    // CHECK: step.neg %lr : f64{{$}}
    // GENERIC: "step.neg"({{.*}}) : (f64) -> f64
    %1 = step.neg %lr : f64
    // CHECK: step.lerp %lr, %lr, %lr : f64{{$}}
    // GENERIC: "step.lerp"({{.*}}) : (f64, f64, f64) -> f64
    %2 = step.lerp %lr, %lr, %lr : f64
    // CHECK: %[[CONDITION:.*]] = step.compare ge, %lr, %lr : f64{{$}}
    // GENERIC: "step.compare"({{.*}}) <{predicate = #step<predicate ge>}> : (f64, f64) -> i1
    %3 = step.compare ge, %lr, %lr : f64
    // CHECK: step.select %[[CONDITION]], %lr, %lr : f64{{$}}
    // GENERIC: "step.select"({{.*}}) : (i1, f64, f64) -> f64
    %4 = step.select %3, %lr, %lr : f64
    // CHECK: step.powi %lr, %count{{$}}
    // GENERIC: "step.powi"({{.*}}) : (f64, i64) -> f64
    %5 = step.powi %lr, %t
    // CHECK: %[[NUMBER:.*]] = step.to_f64 %count{{$}}
    // GENERIC: "step.to_f64"({{.*}}) : (i64) -> f64
    %6 = step.to_f64 %t
    // CHECK: step.pow %[[NUMBER]], %lr{{$}}
    // GENERIC: "step.pow"({{.*}}) : (f64, f64) -> f64
    %7 = step.pow %6, %lr
    // CHECK: step.exp %lr : f64{{$}}
    // GENERIC: "step.exp"({{.*}}) : (f64) -> f64
    %8 = step.exp %lr : f64
    // Types that are f64 anyhow are not printed.
    // CHECK: step.pow %lr, %lr{{$}}
    %9 = step.pow %lr, %lr : f64
    step.return %p
  }
}

// CHECK-LABEL: step.optimizer @tensors
// GENERIC-LABEL: sym_name = "tensors"
step.optimizer @tensors {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.neg %grad : [*]{{$}}
    // GENERIC: "step.neg"({{.*}}) : (!step.tensor<*>) -> !step.tensor<*>
    %0 = step.neg %g : [*]
    // CHECK: step.abs %grad : [*]{{$}}
    // GENERIC: "step.abs"({{.*}}) : (!step.tensor<*>) -> !step.tensor<*>
    %1 = step.abs %g : [*]
    // CHECK: step.sqrt %grad : [*]{{$}}
    // GENERIC: "step.sqrt"({{.*}}) : (!step.tensor<*>) -> !step.tensor<*>
    %2 = step.sqrt %g : [*]
    // CHECK: step.sign %grad : [*]{{$}}
    // GENERIC: "step.sign"({{.*}}) : (!step.tensor<*>) -> !step.tensor<*>
    %3 = step.sign %g : [*]
    // CHECK: step.floor %grad : [*]{{$}}
    // GENERIC: "step.floor"({{.*}}) : (!step.tensor<*>) -> !step.tensor<*>
    %floor = step.floor %g : [*]
    // CHECK: step.round %grad to bf16 : [*]{{$}}
    // GENERIC: "step.round"({{.*}}) <{storage = bf16}> : (!step.tensor<*>) -> !step.tensor<*>
    %round = step.round %g to bf16 : [*]
    // CHECK: step.exp %grad : [*]{{$}}
    // GENERIC: "step.exp"({{.*}}) : (!step.tensor<*>) -> !step.tensor<*>
    %exp = step.exp %g : [*]
    // CHECK: step.log %grad : [*]{{$}}
    // GENERIC: "step.log"({{.*}}) : (!step.tensor<*>) -> !step.tensor<*>
    %log = step.log %g : [*]
    // CHECK: step.pow %grad, %lr : [*], f64{{$}}
    // GENERIC: "step.pow"({{.*}}) : (!step.tensor<*>, f64) -> !step.tensor<*>
    %pow = step.pow %g, %lr : [*], f64
    // CHECK: step.pow %grad, %param : [*]{{$}}
    %both = step.pow %g, %p : [*]
    // A scalar goes with a tensor, on either side.
    // CHECK: step.add %grad, %lr : [*], f64{{$}}
    // GENERIC: "step.add"({{.*}}) : (!step.tensor<*>, f64) -> !step.tensor<*>
    %4 = step.add %g, %lr : [*], f64
    // CHECK: step.sub %lr, %grad : f64, [*]{{$}}
    // GENERIC: "step.sub"({{.*}}) : (f64, !step.tensor<*>) -> !step.tensor<*>
    %5 = step.sub %lr, %g : f64, [*]
    // Types that are written although one would do are not printed.
    // CHECK: step.mul %param, %grad : [*]{{$}}
    // GENERIC: "step.mul"({{.*}}) : (!step.tensor<*>, !step.tensor<*>) -> !step.tensor<*>
    %6 = step.mul %p, %g : [*], [*]
    // CHECK: step.div %param, %grad : [*]{{$}}
    // GENERIC: "step.div"({{.*}}) : (!step.tensor<*>, !step.tensor<*>) -> !step.tensor<*>
    %7 = step.div %p, %g : [*]
    // CHECK: step.maximum %param, %grad : [*]{{$}}
    // GENERIC: "step.maximum"({{.*}}) : (!step.tensor<*>, !step.tensor<*>) -> !step.tensor<*>
    %8 = step.maximum %p, %g : [*]
    // CHECK: step.minimum %param, %grad : [*]{{$}}
    // GENERIC: "step.minimum"({{.*}}) : (!step.tensor<*>, !step.tensor<*>) -> !step.tensor<*>
    %9 = step.minimum %p, %g : [*]
    // CHECK: step.lerp %param, %grad, %lr : [*], [*], f64{{$}}
    // GENERIC: "step.lerp"({{.*}}) : (!step.tensor<*>, !step.tensor<*>, f64) -> !step.tensor<*>
    %10 = step.lerp %p, %g, %lr : [*], [*], f64
    // CHECK: %[[MASK:.*]] = step.compare lt, %grad, %lr : [*], f64{{$}}
    // GENERIC: "step.compare"({{.*}}) <{predicate = #step<predicate lt>}> : (!step.tensor<*>, f64) -> !step.mask<*>
    %11 = step.compare lt, %g, %lr : [*], f64
    // CHECK: step.select %[[MASK]], %param, %grad : mask[*], [*]{{$}}
    // GENERIC: "step.select"({{.*}}) : (!step.mask<*>, !step.tensor<*>, !step.tensor<*>) -> !step.tensor<*>
    %12 = step.select %11, %p, %g : mask[*], [*]
    // A mask's shape is the result's where both values are scalars.
    // CHECK: step.select %[[MASK]], %lr, %lr : mask[*], f64{{$}}
    // GENERIC: "step.select"({{.*}}) : (!step.mask<*>, f64, f64) -> !step.tensor<*>
    %13 = step.select %11, %lr, %lr : mask[*], f64
    // CHECK: step.add %param, %grad {why = "attributes are kept"} : [*]
    %14 = step.add %p, %g {why = "attributes are kept"} : [*]
    step.return %p
  }
}

// CHECK-LABEL: step.optimizer @broadcast
// GENERIC-LABEL: sym_name = "broadcast"
step.optimizer @broadcast {
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1],
                    %c: state "column"[1, m], %s: state "one"[1, 1]) {
    // CHECK: step.mul %param, %row : [n, m], [n, 1]{{$}}
    // GENERIC: "step.mul"({{.*}}) : (!step.tensor<n, m>, !step.tensor<n, 1>) -> !step.tensor<n, m>
    %0 = step.mul %p, %r : [n, m], [n, 1]
    // Neither operand has the shape of the result.
    // CHECK: step.mul %row, %column : [n, 1], [1, m]{{$}}
    // GENERIC: "step.mul"({{.*}}) : (!step.tensor<n, 1>, !step.tensor<1, m>) -> !step.tensor<n, m>
    %1 = step.mul %r, %c : [n, 1], [1, m]
    // CHECK: step.add %one, %column : [1, 1], [1, m]{{$}}
    // GENERIC: "step.add"({{.*}}) : (!step.tensor<1, 1>, !step.tensor<1, m>) -> !step.tensor<1, m>
    %2 = step.add %s, %c : [1, 1], [1, m]
    // CHECK: step.sqrt %row : [n, 1]{{$}}
    // GENERIC: "step.sqrt"({{.*}}) : (!step.tensor<n, 1>) -> !step.tensor<n, 1>
    %3 = step.sqrt %r : [n, 1]
    // CHECK: %[[MASK:.*]] = step.compare gt, %row, %column : [n, 1], [1, m]{{$}}
    // GENERIC: "step.compare"({{.*}}) <{predicate = #step<predicate gt>}> : (!step.tensor<n, 1>, !step.tensor<1, m>) -> !step.mask<n, m>
    %4 = step.compare gt, %r, %c : [n, 1], [1, m]
    // CHECK: step.select %[[MASK]], %row, %one : mask[n, m], [n, 1], [1, 1]{{$}}
    // GENERIC: "step.select"({{.*}}) : (!step.mask<n, m>, !step.tensor<n, 1>, !step.tensor<1, 1>) -> !step.tensor<n, m>
    %5 = step.select %4, %r, %s : mask[n, m], [n, 1], [1, 1]
    // CHECK: step.lerp %row, %column, %one : [n, 1], [1, m], [1, 1]{{$}}
    // GENERIC: "step.lerp"({{.*}}) : (!step.tensor<n, 1>, !step.tensor<1, m>, !step.tensor<1, 1>) -> !step.tensor<n, m>
    %6 = step.lerp %r, %c, %s : [n, 1], [1, m], [1, 1]
    step.return %5, %r, %c, %s : [n, m], [n, 1], [1, m], [1, 1]
  }
  // Equal names are equal extents, within a shape too.
  // CHECK: step.rule @square(%param: param[n, n]
  step.rule @square(%p: param[n, n], %g: grad[n, n]) {
    step.return %p : [n, n]
  }
}

// In bodies of programs functions are of elements and vectors.
// CHECK-LABEL: func.func @elements
func.func @elements(%x: f32, %v: vector<16xf64>) -> (f32, vector<16xf64>) {
  // CHECK: step.exp %{{.*}} : f32{{$}}
  // GENERIC: "step.exp"({{.*}}) : (f32) -> f32
  %0 = step.exp %x : f32
  // CHECK: step.pow %{{.*}}, %{{.*}} : vector<16xf64>{{$}}
  // GENERIC: "step.pow"({{.*}}) : (vector<16xf64>, vector<16xf64>) -> vector<16xf64>
  %1 = step.pow %v, %v : vector<16xf64>
  return %0, %1 : f32, vector<16xf64>
}
