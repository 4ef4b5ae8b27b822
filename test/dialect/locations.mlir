// Tests that values keep the place where the definition makes them, the
// arguments of a rule too, which MLIR prints only where the custom syntax asks.
// RUN: stepc-opt %s -mlir-print-debuginfo -mlir-print-local-scope | FileCheck %s

step.optimizer @place {
  // CHECK: %lr = step.hyper "lr" = 1.0 loc({{.*}}locations.mlir":7:9)
  %lr = step.hyper "lr" = 1.0
  // CHECK: step.rule @any(%param loc({{.*}}locations.mlir":10:18): param[*], %grad loc({{.*}}locations.mlir":11:18): grad[*],
  // CHECK-SAME: %m loc("buffer"): state "m"[*] = 1.0) {
  step.rule @any(%p: param[*],
                 %g: grad[*],
                 %m loc("buffer"): state "m"[*] = 1.0) {
    // CHECK: step.neg %grad : [*] loc({{.*}}locations.mlir":14:10)
    %0 = step.neg %g : [*]
    // CHECK: step.return %{{.*}}, %m loc({{.*}}locations.mlir":16:5)
    step.return %0, %m
  }
}
