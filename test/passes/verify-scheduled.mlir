// RUN: stepc-opt --step-verify-scheduled --split-input-file --verify-diagnostics %s

step.optimizer @fine {
  step.program @fine_any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %p1 = step.traverse @phase0 over [n, m] reads (%e = %p : <[n, m], f32>) writes (%p : <[n, m], f32>) {
      %y = arith.addf %e, %e : f32
      step.yield %y : f32
    }
  }
}

// -----

step.optimizer @rule {
  // expected-error @+1 {{'step.rule' op is left after the schedule stage}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @fast {
  step.program @fast_any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %p1 = step.traverse @phase0 over [n, m] reads (%e = %p : <[n, m], f32>) writes (%p : <[n, m], f32>) {
      // expected-error @+1 {{'arith.addf' op has fast-math flags, which change values}}
      %y = arith.addf %e, %e fastmath<contract> : f32
      step.yield %y : f32
    }
  }
}

// -----

step.optimizer @forgotten {
  step.program @forgotten_any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @sums over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to [n, 1]) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.combine' op makes a buffer that is used after a round and not kept}}
    %rows = step.combine %sum : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    step.exchange round 0
    step.traverse @late over [n, m] reads (%r = %rows : <[n, 1], f32>) {
      step.yield
    }
  }
}

// -----

step.optimizer @hoarded {
  step.program @hoarded_any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @sums over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to [n, 1]) {
      step.yield %e : f32
    }
    %rows = step.combine %sum : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    // expected-error @+1 {{'step.keep' op keeps a buffer that no later segment uses}}
    %kept = step.keep %rows : !step.buffer<[n, 1], f32>
    step.traverse @early over [n, m] reads (%r = %kept : <[n, 1], f32>) {
      step.yield
    }
  }
}

// -----

// What is of rows may stand before a trailing traversal.
step.optimizer @strips {
  step.program @strips_any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @sums over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to [n, 1]) {
      step.yield %e : f32
    }
    %rows = step.combine mean %sum : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %twice = step.traverse @twice over [n, 1] reads (%r = %rows : <[n, 1], f32>) makes (f32) {
      %y = arith.addf %r, %r : f32
      step.yield %y : f32
    }
    step.traverse @trails trailing over [n, m] reads (%r = %twice : <[n, 1], f32>) {
      step.yield
    }
  }
}

// -----

step.optimizer @first {
  step.program @first_any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op is trailing, but more than rows' own stands between it and the kernel before it}}
    step.traverse @trails trailing over [n, m] {
      step.yield
    }
  }
}

// -----

step.optimizer @columns {
  step.program @columns_any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @sums over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to [1, m]) {
      step.yield %e : f32
    }
    %columns = step.combine %sum : !step.partial<sum, [n, m] to [1, m]> -> !step.buffer<[1, m], f32>
    // expected-error @+1 {{'step.traverse' op is trailing, but more than rows' own stands between it and the kernel before it}}
    step.traverse @trails trailing over [n, m] {
      step.yield
    }
  }
}

// -----

step.optimizer @number {
  step.program @number_any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @sums over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    %whole = step.combine %sum : !step.partial<sum, [n, m] to []> -> f64
    // expected-error @+1 {{'step.traverse' op is trailing, but more than rows' own stands between it and the kernel before it}}
    step.traverse @trails trailing over [n, m] {
      step.yield
    }
  }
}

// -----

step.optimizer @reduced {
  step.program @reduced_any_0(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @sums over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to [n, 1]) {
      step.yield %e : f32
    }
    %rows = step.combine %sum : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %over = step.traverse @over over [n, 1] reads (%r = %rows : <[n, 1], f32>) partials (sum to []) {
      step.yield %r : f32
    }
    // expected-error @+1 {{'step.traverse' op is trailing, but more than rows' own stands between it and the kernel before it}}
    step.traverse @trails trailing over [n, m] {
      step.yield
    }
    %whole = step.combine %over : !step.partial<sum, [n, 1] to []> -> f64
  }
}
