// Tests what is refused of programs: how their operations stand together.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

//===----------------------------------------------------------------------===//
// step.program
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.program' op expects parent op 'step.optimizer'}}
step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
}

// -----

step.optimizer @opt {
  // expected-error @+1 {{'step.program' op has an empty program name}}
  "step.program"() <{sym_name = "", roles = [], variant = #step.variant<"any", {}, f32>}> ({
  ^bb0:
  }) : () -> ()
}

// -----

step.optimizer @opt {
  // expected-error @+1 {{'step.program' op has 0 roles for 1 arguments}}
  "step.program"() <{sym_name = "any_0", roles = [], variant = #step.variant<"any", {}, f32>}> ({
  ^bb0(%p: !step.buffer<[*], f32>):
  }) : () -> ()
}

// -----

step.optimizer @opt {
  // expected-error @+1 {{'step.program' op has 'param' of type '!step.buffer<[*], f32>'}}
  "step.program"() <{sym_name = "any_0", roles = [#step.role<kind = param, name = "", storage = bf16>], variant = #step.variant<"any", {}, f32>}> ({
  ^bb0(%p: !step.buffer<[*], f32>):
  }) : () -> ()
}

// -----

step.optimizer @opt {
  // expected-error @+1 {{'step.program' op has no param}}
  step.program @any_0(%g: grad[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  // expected-error @+1 {{'step.program' op has a fresh that names no states}}
  step.program @any_0(%p: param[*] as f32, %f: fresh) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  // expected-error @+1 {{'step.program' op asks whether 'm' is fresh, which is no state of it}}
  step.program @any_0(%p: param[*] as f32, %f: fresh("m")) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  // expected-error @+1 {{'step.program' op has no scalars of the cohort}}
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  // expected-error @+1 {{'step.program' op has no traversal}}
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  %o = step.option "o" = true
  // expected-error @+1 {{expected states without guards in a program}}
  step.program @any_0(%p: param[*] as f32, %m: state "m"[*] if %o as f32) variant <"any", {}, f32> {
  }
}

// -----

step.optimizer @opt {
  // expected-error @+1 {{expected a storage type for 'param'}}
  step.program @any_0(%p: param[*]) variant <"any", {}, f32> {
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @k over [*] {
      step.yield
    }
    // expected-error @+1 {{'test.unknown' op is not allowed in a program, only its operations and arith and math without side effects}}
    "test.unknown"() : () -> ()
  }
}

// -----

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-note @+1 {{it is written here}}
    %p1 = step.traverse @w over [*] reads (%e = %p : <[*], f32>) writes (%p : <[*], f32>) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.traverse' op uses a buffer that was written}}
    step.traverse @r over [*] reads (%e = %p : <[*], f32>) {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op writes a buffer twice}}
    %p1:2 = step.traverse @w over [*] reads (%e = %p : <[*], f32>) writes (%p : <[*], f32>, %p : <[*], f32>) {
      step.yield %e, %e : f32, f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op leaves a partial result that is not combined once}}
    %sum = step.traverse @k over [*] reads (%e = %p : <[*], f32>) partials (sum to []) {
      step.yield %e : f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op leaves a partial result that is not combined once}}
    %sum = step.traverse @k over [*] reads (%e = %p : <[*], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    %a = step.combine %sum : !step.partial<sum, [*] to []> -> f64
    %b = step.combine mean %sum : !step.partial<sum, [*] to []> -> f64
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{buffer of 'index', which is none of f32, f64, bf16, f16, i16, i64}}
    %made = step.traverse @v over [*] reads (%e = %p : <[*], f32>) makes (index) {
      step.yield %e : f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @k over [*] {
      step.yield
    }
    %made = step.traverse @v over [*] reads (%e = %p : <[*], f32>) makes (f32) {
      step.yield %e : f32
    }
    %kept = step.keep %made : !step.buffer<[*], f32>
    // expected-error @+1 {{'step.keep' op keeps a buffer that is kept anyway}}
    %other = step.keep %p : !step.buffer<[*], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %made = step.traverse @v over [*] reads (%e = %p : <[*], f32>) makes (f32) {
      step.yield %e : f32
    }
    %kept = step.keep %made : !step.buffer<[*], f32>
    // expected-error @+1 {{'step.keep' op keeps a buffer that is kept anyway}}
    %other = step.keep %kept : !step.buffer<[*], f32>
  }
}

// -----

// What is kept is the same memory.
step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %made = step.traverse @v over [*] reads (%e = %p : <[*], f32>) makes (f32) {
      step.yield %e : f32
    }
    %kept = step.keep %made : !step.buffer<[*], f32>
    // expected-note @+1 {{it is written here}}
    %new = step.traverse @w over [*] reads (%e = %made : <[*], f32>) writes (%made : <[*], f32>) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.traverse' op uses a buffer that was written}}
    step.traverse @r over [*] reads (%e = %kept : <[*], f32>) {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @k over [*] reads (%e = %p : <[*], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.combine' op leaves a share that is not received once}}
    %share = step.combine %sum : !step.partial<sum, [*] to []> -> !step.share<sum, [*] to []>
  }
}

// -----

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

step.optimizer @opt {
  %lr = step.hyper "lr" = 1.0
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @k over [*] {
      step.yield
    }
    // expected-error @+1 {{'math.sqrt' op uses a scalar of the outside, which only scalars of the cohort do}}
    %root = math.sqrt %lr : f64
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @k over [*] {
      step.yield
    }
    // expected-error @+1 {{'arith.sitofp' op uses a scalar of the outside, which only scalars of the cohort do}}
    %number = arith.sitofp %t : i64 to f64
  }
}

// -----

step.optimizer @opt {
  %flag = step.option "flag" = true
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    %f = step.cohort_scalars @scalars {
      // expected-error @+1 {{'step.yield' op uses what no scalar function is given}}
      step.yield %flag : i1
    } : i1
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  %norm = step.statistic "norm" sum over model
  %n = step.scalars over model attributes {round = 0 : i64} {
    step.yield %norm : f64
  }
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    %x = step.cohort_scalars @scalars {
      // expected-error @+1 {{'step.yield' op uses in segment 0 a result of a round that is not over}}
      step.yield %n : f64
    } : f64
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  %lr = step.hyper "lr" = 1.0
  %norm = step.statistic "norm" sum over model
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    %x = step.cohort_scalars @scalars {
      step.yield %lr : f64
    } : f64
    step.traverse @k over [*] {
      step.yield
    }
    // expected-error @+1 {{'step.contribute' op asks for a scalar of the tensor and names one of the cohort}}
    step.contribute %norm, %x
  }
}

// -----

//===----------------------------------------------------------------------===//
// Rounds
//===----------------------------------------------------------------------===//

step.optimizer @opt {
  %norm = step.statistic "norm" sum over model
  step.scalars over model attributes {round = 0 : i64} {
    %finite = step.is_finite %norm : f64
    %overflow = step.not %finite : i1
    step.skip_if %overflow
    step.yield
  }
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op writes in segment 0, before it is known whether the step is skipped}}
    %p1 = step.traverse @w over [*] reads (%e = %p : <[*], f32>) writes (%p : <[*], f32>) {
      step.yield %e : f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @k over [*] {
      step.yield
    }
    // expected-error @+1 {{'step.exchange' op is round 1 and stands where round 0 is}}
    step.exchange round 1
  }
}
