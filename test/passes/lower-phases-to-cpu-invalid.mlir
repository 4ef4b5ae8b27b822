// RUN: stepc-opt --step-lower-phases-to-cpu --split-input-file --verify-diagnostics %s

step.optimizer @unscheduled {
  // expected-error @+1 {{'step.rule' op is not scheduled}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @scalars_left {
  step.program @program(%p: param[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.cohort_scalars' op has no function yet}}
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @phase0 over [*] reads (%x = %p : <[*], f32>) writes (%p : <[*], f32>) {
      step.yield %x : f32
    }
  }
}
