// Tests what is refused of programs, phases and memory by address.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

//===----------------------------------------------------------------------===//
// step.program
//===----------------------------------------------------------------------===//

#variant = #step.variant<"any", {}, f32>
// expected-error @+1 {{'step.program' op expects parent op 'step.optimizer'}}
step.program @any_0 variant #variant operands [] {
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @first {
  // expected-error @+1 {{'step.program' op does not begin with a scalar phase}}
  step.program @any_0 variant #variant operands [] {
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @first {
  // expected-error @+1 {{'step.program' op does not begin with a scalar phase}}
  step.program @any_0 variant #variant operands [] {
    step.phase @update slots 0 operands [] {
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @names {
  // expected-error @+1 {{'step.program' op has an empty program name}}
  "step.program"() <{sym_name = "", variant = #variant, operands = []}> ({
  ^bb0:
  }) : () -> ()
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @names {
  step.program @any_0 variant #variant operands [] {
    // expected-error @+1 {{'step.scalar_phase' op has an empty phase name}}
    "step.scalar_phase"() <{sym_name = ""}> ({
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }) : () -> ()
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @names {
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op has an empty phase name}}
    "step.phase"() <{sym_name = "", num_slots = 0 : i64, operands = []}> ({
      step.yield
    }) : () -> ()
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @phases {
  // expected-error @+1 {{'step.program' op has no phase}}
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @phases {
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'arith.constant' op is not allowed in a program, only phases}}
    %0 = arith.constant 1.0 : f64
    step.phase @update slots 0 operands [] {
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @slots {
  %lr = step.hyper "lr" = 1.0
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%a: f64, %count: i64, %fresh: i1):
      step.yield %a : f64
    }
    // expected-error @+1 {{'step.phase' op has 2 slots; the scalar phase has 1}}
    step.phase @update slots 2 operands [] {
    ^bb0(%a: f64, %b: f64):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#f32 = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#bf16 = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = bf16, reads = true, writes = false>
step.optimizer @operands {
  step.program @any_0 variant #variant operands [#f32] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op works on 'param', which the program does not have in that storage and shape}}
    step.phase @update slots 0 operands [#bf16] {
    ^bb0(%p: bf16):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @operands {
  // expected-error @+1 {{attribute 'operands' failed to satisfy constraint: operands of a phase}}
  step.program @any_0 variant #variant operands ["param"] {
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.scalar_phase
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.scalar_phase' op expects parent op 'step.program'}}
step.scalar_phase @scalars {
^bb0(%count: i64, %fresh: i1):
  step.yield
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @scalars {
  step.program @any_0 variant #variant operands [] {
    // expected-error @+1 {{'step.scalar_phase' op expects a non-empty block}}
    step.scalar_phase @scalars {
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @scalars {
  step.program @any_0 variant #variant operands [] {
    // expected-error @+1 {{'step.scalar_phase' op does not end in 'step.yield'}}
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      "test.terminator"() : () -> ()
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @scalars {
  step.program @any_0 variant #variant operands [] {
    // expected-error @+1 {{'step.scalar_phase' op takes other arguments than f64 hyper-parameters, an i64 count and i1 flags}}
    step.scalar_phase @scalars {
    ^bb0(%lr: f64):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @scalars {
  step.program @any_0 variant #variant operands [] {
    // expected-error @+1 {{'step.scalar_phase' op takes other arguments than f64 hyper-parameters, an i64 count and i1 flags}}
    step.scalar_phase @scalars {
    ^bb0(%lr: f32, %count: i64, %fresh: i1):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @scalars {
  step.program @any_0 variant #variant operands [] {
    // expected-error @+1 {{'step.scalar_phase' op takes other arguments than f64 hyper-parameters, an i64 count and i1 flags}}
    step.scalar_phase @scalars {
    ^bb0(%fresh: i1, %count: i64):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @scalars {
  step.program @any_0 variant #variant operands [] {
    // expected-error @+1 {{'step.scalar_phase' op yields 'i64' for a slot, which is f64}}
    step.scalar_phase @scalars {
    ^bb0(%lr: f64, %count: i64, %fresh: i1):
      step.yield %lr, %count : f64, i64
    }
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.phase
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.phase' op expects parent op 'step.program'}}
step.phase @update slots 0 operands [] {
  step.yield
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @phase {
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op does not end in 'step.yield'}}
    step.phase @update slots 0 operands [] {
      "test.terminator"() : () -> ()
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @phase {
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op has -1 slots and 0 arguments}}
    step.phase @update slots -1 operands [] {
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @phase {
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    // expected-error @+1 {{'step.phase' op has 4611686018427387904 slots and 1 arguments}}
    step.phase @update slots 4611686018427387904 operands [] {
    ^bb0(%a: f64):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#param = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = bf16, reads = true, writes = false>
step.optimizer @phase {
  step.program @any_0 variant #variant operands [#param] {
    step.scalar_phase @scalars {
    ^bb0(%lr: f64, %count: i64, %fresh: i1):
      step.yield %lr : f64
    }
    // An element comes in its storage type.
    // expected-error @+1 {{'step.phase' op takes 'f64', 'f32'; slots and operands give 'f64', 'bf16'}}
    step.phase @update slots 1 operands [#param] {
    ^bb0(%lr: f64, %p: f32):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
#param = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = false, writes = true>
step.optimizer @phase {
  step.program @any_0 variant #variant operands [#param] {
    step.scalar_phase @scalars {
    ^bb0(%lr: f64, %count: i64, %fresh: i1):
      step.yield %lr : f64
    }
    // expected-error @+1 {{'step.phase' op yields 'f64'; operands give 'f32'}}
    step.phase @update slots 1 operands [#param] {
    ^bb0(%lr: f64):
      step.yield %lr : f64
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @phase {
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%lr: f64, %count: i64, %fresh: i1):
      step.yield %lr : f64
    }
    step.phase @update slots 1 operands [] {
    ^bb0(%lr: f64):
      // expected-error @+1 {{'step.neg' op is not allowed in a phase, only arith and math without side effects}}
      %0 = step.neg %lr : f64
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @phase {
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      step.yield
    }
    step.phase @update slots 0 operands [] {
      // expected-error @+1 {{'test.unknown' op is not allowed in a phase, only arith and math without side effects}}
      "test.unknown"() : () -> ()
      step.yield
    }
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.yield
//===----------------------------------------------------------------------===//

step.optimizer @yield {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.yield' op expects parent op to be one of 'step.scalars, step.define, step.scalar_phase, step.phase, step.tensor_scalars'}}
    step.yield
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.view
//===----------------------------------------------------------------------===//

%address = arith.constant 64 : i64
// expected-error @+1 {{'step.view' op makes 'memref<4xf32>', which is not a one-dimensional contiguous memref of dynamic extent}}
%0 = step.view %address : memref<4xf32>

// -----

%address = arith.constant 64 : i64
// expected-error @+1 {{'step.view' op makes 'memref<?xf32, strided<[2]>>', which is not a one-dimensional contiguous memref of dynamic extent}}
%0 = step.view %address : memref<?xf32, strided<[2]>>

// -----

%address = arith.constant 64 : i64
// expected-error @+1 {{'step.view' op result #0 must be 1D memref of any type values, but got 'memref<?x?xf32>'}}
%0 = step.view %address : memref<?x?xf32>

// -----

// expected-note @+1 {{prior use here}}
%address = arith.constant 64 : i32
// expected-error @+1 {{use of value '%address' expects different type than prior uses: 'i64' vs 'i32'}}
step.prefetch %address write

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @hypers {
  step.program @any_0 variant #variant operands [] {
    // expected-error @+1 {{'step.scalar_phase' op takes 1 hyper-parameters, scalars and results; the optimizer has 0}}
    step.scalar_phase @scalars {
    ^bb0(%lr: f64, %count: i64, %fresh: i1):
      step.yield %lr : f64
    }
    step.phase @update slots 1 operands [] {
    ^bb0(%a: f64):
      step.yield
    }
  }
}

// -----

#variant = #step.variant<"any", {}, f32>
step.optimizer @memory {
  step.program @any_0 variant #variant operands [] {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %fresh: i1):
      // expected-error @+1 {{'step.prefetch' op is not allowed in a phase, only arith and math without side effects}}
      step.prefetch %count
      step.yield
    }
    step.phase @update slots 0 operands [] {
    ^bb0:
      step.yield
    }
  }
}

// -----

#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = true>
step.optimizer @flags {
  step.program @any_0 variant <"any", {}, f32> operands [#p] {
    // expected-error @+1 {{'step.scalar_phase' op takes 2 fresh flags; the program has 1}}
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %f: i1, %g: i1):
      step.yield
    }
    step.phase @phase0 slots 0 operands [#p] {
    ^bb0(%x: f32):
      step.yield %x : f32
    }
  }
}

// -----

#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = true>
step.optimizer @flags {
  // expected-error @+1 {{'step.program' op asks whether 'param' is fresh, which is no state of it}}
  step.program @any_0 variant <"any", {}, f32> operands [#p] attributes {fresh = [["param"]]} {
    step.scalar_phase @scalars {
    ^bb0(%count: i64, %f: i1):
      step.yield
    }
    step.phase @phase0 slots 0 operands [#p] {
    ^bb0(%x: f32):
      step.yield %x : f32
    }
  }
}
