// RUN: stepc-opt %s | stepc-opt | FileCheck %s

// Exchanges around a step, of a rule and of a program.

// CHECK: variant <"any", {}, f32, <{"flat range" = ["dp"]}> entry <whole = ["dp"], partial = ["dp"], gradient = bf16, wire = f16>>
// CHECK: step.reduce_scatter %{{.*}} over ["dp"] of bf16 wire f16 : [*]
// CHECK: step.all_gather %{{.*}} over ["dp"] : [*]
step.optimizer @rule {
  step.rule @any(%p: param[*] as bf16, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}> entry <whole = ["dp"], partial = ["dp"], gradient = bf16, wire = f16>> {
    %0 = step.reduce_scatter %g over ["dp"] of bf16 wire f16 : [*]
    %p1 = step.sub %p, %0 : [*]
    %1 = step.all_gather %p1 over ["dp"] : [*]
    step.return %1
  }
}

// CHECK: variant <"any", {}, f32 entry <whole = ["dp"], partial = [], gradient = f32>>
// CHECK: %[[G:.*]] = step.to_owner %{{.*}} over ["dp"] of f32 : !step.buffer<[*], f32>
// CHECK: step.traverse {{.*}} reads (%{{.*}} = %[[G]] : <[*], f32>)
// CHECK: step.from_owner %{{.*}} over ["dp"] : !step.buffer<[*], f32>
step.optimizer @program {
  step.program @any(%param: param[*] as f32, %grad: grad[*] as f32) variant <"any", {}, f32 entry <whole = ["dp"], partial = [], gradient = f32>> {
    %0 = step.to_owner %grad over ["dp"] of f32 : !step.buffer<[*], f32>
    step.cohort_scalars @any_scalars {
      step.yield
    }
    %1 = step.traverse @any_phase0 over [*] reads (%g = %0 : <[*], f32>) writes (%param : <[*], f32>) {
      step.yield %g : f32
    }
    %2 = step.from_owner %1 over ["dp"] : !step.buffer<[*], f32>
  }
}
