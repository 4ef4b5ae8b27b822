// RUN: stepc-opt --step-verify-scheduled --split-input-file --verify-diagnostics %s

#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = true>
step.optimizer @fine {
  %lr = step.hyper "lr" = 1.0
  step.program @fine_any_0 variant <"any", {}, f32> operands [#p] {
    step.scalar_phase @scalars {
    ^bb0(%lr_value: f64, %t: i64, %f: i1):
      step.yield
    }
    step.phase @phase0 slots 0 operands [#p] {
    ^bb0(%x: f32):
      %y = arith.addf %x, %x : f32
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

#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = true>
step.optimizer @twice {
  // expected-error @+1 {{'step.program' op has 2 phases that write 'param', instead of 1}}
  step.program @twice_any_0 variant <"any", {}, f32> operands [#p] {
    step.scalar_phase @scalars {
    ^bb0(%t: i64, %f: i1):
      step.yield
    }
    step.phase @phase0 slots 0 operands [#p] {
    ^bb0(%x: f32):
      step.yield %x : f32
    }
    step.phase @phase1 slots 0 operands [#p] {
    ^bb0(%x: f32):
      step.yield %x : f32
    }
  }
}

// -----

#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = true>
step.optimizer @fast {
  step.program @fast_any_0 variant <"any", {}, f32> operands [#p] {
    step.scalar_phase @scalars {
    ^bb0(%t: i64, %f: i1):
      step.yield
    }
    step.phase @phase0 slots 0 operands [#p] {
    ^bb0(%x: f32):
      // expected-error @+1 {{'arith.addf' op has fast-math flags, which change values}}
      %y = arith.addf %x, %x fastmath<contract> : f32
      step.yield %y : f32
    }
  }
}

// -----

// A scalar of the whole tensor is known when all of its rows have been traversed.
#p = #step.operand<kind = param, name = "param", shape = !step.tensor<n, m>, storage = f32, reads = true, writes = false>
#w = #step.operand<kind = param, name = "param", shape = !step.tensor<n, m>, storage = f32, reads = true, writes = true>
step.optimizer @early {
  step.program @early_any_0 variant <"any", {}, f32> operands [#w] attributes {tensor_slots = 1 : i64, workspace = [#step.buffer<"partial0", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%t: i64, %f: i1):
      step.yield
    }
    step.phase @phase0 slots 0 operands [#p] attributes {accumulators = [#step.accumulator<combiner = sum, direction = row, partial = "partial0">], space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %x: f32):
      step.yield %x : f32
    }
    step.combine "partial0" sum of tiles to tensor slot 0
    // expected-error @+1 {{'step.phase' op is trailing, but more than rows' own stands between it and the phase of tiles before it}}
    step.phase @phase1 trailing slots 0 operands [#w] attributes {space = #step<space tiles>, tensor_slots = 1 : i64} {
    ^bb0(%s: f64, %x: f32):
      step.yield %x : f32
    }
  }
}
