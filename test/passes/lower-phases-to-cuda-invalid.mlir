// RUN: stepc-opt --step-lower-phases-to-cuda --split-input-file --verify-diagnostics %s

step.optimizer @unscheduled {
  // expected-error @+1 {{'step.rule' op is not scheduled}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = true>
step.optimizer @scalars_left {
  step.program @program variant <"any", {}, f32> operands [#p] {
    // expected-error @+1 {{'step.scalar_phase' op has no function yet}}
    step.scalar_phase @scalars {
    ^bb0(%t: i64, %fresh: i1):
      step.yield
    }
    step.phase @phase0 slots 0 operands [#p] {
    ^bb0(%x: f32):
      step.yield %x : f32
    }
  }
}

// -----

#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f64, reads = true, writes = true>
#a = #step.accumulator<combiner = sum, direction = row, partial = "partial">
step.optimizer @many {
  step.program @program variant <"any", {}, f64> operands [#p] attributes {workspace = [#step.buffer<"partial", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%t: i64, %fresh: i1):
      step.yield
    }
    // 96 are the most.
    step.phase @phase0 slots 0 operands [#p] attributes {space = #step<space tiles>, accumulators = [#a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a]} {
    ^bb0(%x: f64):
      step.yield %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x : f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64
    }
    // expected-error @+1 {{'step.phase' op has more reductions along rows than a block of cuda has shared memory for}}
    step.phase @phase1 slots 0 operands [#p] attributes {space = #step<space tiles>, accumulators = [#a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a, #a]} {
    ^bb0(%x: f64):
      step.yield %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x : f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64
    }
  }
}

// -----

#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = bf16, reads = true, writes = true>
#i = #step.operand<kind = position, name = "position", shape = !step.tensor<*>, storage = i64, reads = false, writes = false>
step.optimizer @positions {
  // expected-error @+1 {{'step.program' op rounds stochastically, which has no kernels for cuda}}
  step.program @program variant <"any", {}, f32> operands [#p, #i] {
    step.scalar_phase @scalars {
    ^bb0(%t: i64, %fresh: i1):
      step.yield
    }
    step.phase @phase0 slots 0 operands [#p, #i] {
    ^bb0(%x: bf16):
      step.yield %x : bf16
    }
  }
}
