// Tests what is refused of operations of programs, and of memory by address.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

//===----------------------------------------------------------------------===//
// step.cohort_scalars
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.cohort_scalars' op expects parent op 'step.program'}}
step.cohort_scalars @scalars {
  step.yield
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.cohort_scalars' op has an empty scalars name}}
    "step.cohort_scalars"() <{sym_name = ""}> ({
      step.yield
    }) : () -> ()
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.cohort_scalars' op does not end in 'step.yield'}}
    step.cohort_scalars @scalars {
      "test.terminator"() : () -> ()
    }
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.cohort_scalars' op yields 'f64' for 'i1'}}
    %x = step.cohort_scalars @scalars {
      %x = arith.constant 1.0 : f64
      step.yield %x : f64
    } : i1
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.traverse @k over [*] reads (%a = %p : <[*], f32>) writes (%p : <[*], f32>) {
      %v = arith.constant 1.0 : f64
      // expected-error @+1 {{operands are of several types: 'f32', 'f32', 'f64'}}
      %l = step.lerp %a, %a, %v : f32, f32, f64
      step.yield %l : f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      // expected-error @+1 {{'step.prefetch' op is not allowed in a body, only arith and math without side effects}}
      step.prefetch %t
      step.yield
    }
    step.traverse @k over [*] {
      step.yield
    }
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.traverse
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.traverse' op expects parent op 'step.program'}}
step.traverse @k over [*] {
  step.yield
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op has an empty traversal name}}
    "step.traverse"() <{sym_name = "", over = !step.tensor<*>, operandSegmentSizes = array<i32: 0, 0, 0, 0>}> ({
      step.yield
    }) : () -> ()
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op does not end in 'step.yield'}}
    step.traverse @k over [*] reads (%e = %p : <[*], f32>) {
      "test.terminator"() : () -> ()
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op goes over 'f32', which are no dims of a tensor}}
    step.traverse @k over f32 {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op goes over '!step.tensor<z, m>' in a program of '!step.buffer<[n, m], f32>'}}
    step.traverse @k over [z, m] {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op goes over '!step.tensor<n, k>' in a program of '!step.buffer<[n, m], f32>'}}
    step.traverse @k over [n, k] {
      step.yield
    }
  }
}

// -----

// A dim twice is no other dim.
step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op reads '!step.buffer<[n, m], f32>' over '!step.tensor<n, n>'}}
    %s1 = step.traverse @k over [n, n] reads (%e = %p : <[n, m], f32>) writes (%s : <[n, n], f32>) {
      step.yield %e : f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op gives '!step.partial<sum, [n, m] to [q, 1]>' over '!step.tensor<n, m>'}}
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to [q, 1]) {
      step.yield %e : f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op reads '!step.buffer<[n, m], f32>' over '!step.tensor<n, 1>'}}
    step.traverse @k over [n, 1] reads (%e = %p : <[n, m], f32>) {
      step.yield
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op writes '!step.buffer<[n, 1], f32>' over '!step.tensor<n, m>'}}
    %r1 = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) writes (%r : <[n, 1], f32>) {
      step.yield %e : f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op gives '!step.partial<sum, [n, 1] to []>' over '!step.tensor<n, m>'}}
    %sum = "step.traverse"(%p) <{sym_name = "k", over = !step.tensor<n, m>, operandSegmentSizes = array<i32: 1, 0, 0, 0>}> ({
    ^bb0(%e: f32):
      step.yield %e : f32
    }) : (!step.buffer<[n, m], f32>) -> !step.partial<sum, [n, 1] to []>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op gives 0 results for 1 written buffers}}
    "step.traverse"(%p) <{sym_name = "k", over = !step.tensor<*>, operandSegmentSizes = array<i32: 0, 0, 1, 0>}> ({
      step.yield
    }) : (!step.buffer<[*], f32>) -> ()
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as bf16) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op takes 'f32'; buffers and scalars give 'bf16'}}
    "step.traverse"(%p) <{sym_name = "k", over = !step.tensor<*>, operandSegmentSizes = array<i32: 1, 0, 0, 0>}> ({
    ^bb0(%e: f32):
      step.yield
    }) : (!step.buffer<[*], bf16>) -> ()
  }
}

// -----

// A scalar is there in the compute type.
step.optimizer @opt {
  step.program @any_0(%p: param[*] as bf16, %t: count) variant <"any", {}, f32> {
    %s:2 = step.cohort_scalars @scalars {
      %x = arith.constant 1.0 : f64
      step.yield %x, %t : f64, i64
    } : f64, i64
    // expected-error @+1 {{'step.traverse' op takes 'bf16', 'f64', 'i64'; buffers and scalars give 'bf16', 'f32', 'i64'}}
    step.traverse @k over [*] reads (%e = %p : <[*], bf16>) scalars (%w = %s#0 as f64, %n = %s#1 as i64) {
      step.yield
    }
  }
}

// -----

// Nothing of the outside is seen but by an argument.
step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    %s = step.cohort_scalars @scalars {
      %x = arith.constant 1.0 : f64
      step.yield %x : f64
    } : f64
    %p1 = step.traverse @k over [*] writes (%p : <[*], f32>) {
      // expected-error @+1 {{use of undeclared SSA value name}}
      %w = arith.truncf %s : f64 to f32
      step.yield %w : f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as bf16) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op yields 'f32'; the results are of 'bf16'}}
    %p1 = step.traverse @k over [*] writes (%p : <[*], bf16>) {
      %x = arith.constant 1.0 : f32
      step.yield %x : f32
    }
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %zero = arith.constant 0.0 : f64
    %c = step.carried "c"
    %flag = arith.cmpf une, %c, %zero : f64
    // expected-error @+1 {{'step.traverse' op is left out, but is no kernel or writes buffers}}
    %p1 = step.traverse @k unless %flag over [*] reads (%e = %p : <[*], f32>) writes (%p : <[*], f32>) {
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
    %zero = arith.constant 0.0 : f64
    %c = step.carried "c"
    %flag = arith.cmpf une, %c, %zero : f64
    // expected-error @+1 {{'step.traverse' op is trailing, but is no kernel or may be left out}}
    step.traverse @k trailing unless %flag over [*] reads (%e = %p : <[*], f32>) {
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
    step.traverse @k over [*] reads (%e = %p : <[*], f32>) {
      // expected-error @+1 {{'test.unknown' op is not allowed in a body, only arith and math without side effects}}
      %y = "test.unknown"(%e) : (f32) -> f32
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
    // expected-error @+1 {{'most' is not one of sum, amax}}
    %sum = step.traverse @k over [*] reads (%e = %p : <[*], f32>) partials (most to []) {
      step.yield %e : f32
    }
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.combine, step.exchange, step.receive
//===----------------------------------------------------------------------===//

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to [n, 1]) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.combine' op makes 'f64' of '!step.partial<sum, [n, m] to [n, 1]>'}}
    %x = step.combine %sum : !step.partial<sum, [n, m] to [n, 1]> -> f64
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.combine' op makes '!step.share<amax, [n, m] to []>' of '!step.partial<sum, [n, m] to []>'}}
    %x = step.combine %sum : !step.partial<sum, [n, m] to []> -> !step.share<amax, [n, m] to []>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.combine' op makes a mean of a share}}
    %x = step.combine mean %sum : !step.partial<sum, [n, m] to []> -> !step.share<sum, [n, m] to []>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (amax to []) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.combine' op makes a mean of '!step.partial<amax, [n, m] to []>'}}
    %x = step.combine mean %sum : !step.partial<amax, [n, m] to []> -> f64
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %zero = arith.constant 0.0 : f64
    %c = step.carried "c"
    %flag = arith.cmpf une, %c, %zero : f64
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.combine' op is left out otherwise than its traversal}}
    %x = step.combine %sum unless %flag : !step.partial<sum, [n, m] to []> -> f64
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %zero = arith.constant 0.0 : f64
    %c = step.carried "c"
    %flag = arith.cmpf une, %c, %zero : f64
    %sum = step.traverse @k unless %flag over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to [n, 1]) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.combine' op leaves out '!step.partial<sum, [n, m] to [n, 1]>', which is more than a number}}
    %x = step.combine %sum unless %flag : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    %share = step.combine %sum : !step.partial<sum, [n, m] to []> -> !step.share<sum, [n, m] to []>
    // expected-error @+1 {{'step.exchange' op gives '!step.share<amax, [n, m] to []>' for '!step.share<sum, [n, m] to []>'}}
    %x = "step.exchange"(%share) <{round = 0 : i64, over = [["n"]]}> : (!step.share<sum, [n, m] to []>) -> !step.share<amax, [n, m] to []>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    %share = step.combine %sum : !step.partial<sum, [n, m] to []> -> !step.share<sum, [n, m] to []>
    // expected-error @+1 {{'step.exchange' op has dims for 0 of 1 shares}}
    %x = "step.exchange"(%share) <{round = 0 : i64, over = []}> : (!step.share<sum, [n, m] to []>) -> !step.share<sum, [n, m] to []>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @k over [n, m] {
      step.yield
    }
    // expected-error @+1 {{'step.receive' op receives nothing}}
    %x = "step.receive"() : () -> f64
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum0 = step.traverse @k0 over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    %share0 = step.combine %sum0 : !step.partial<sum, [n, m] to []> -> !step.share<sum, [n, m] to []>
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to [n, 1]) {
      step.yield %e : f32
    }
    %share = step.combine %sum : !step.partial<sum, [n, m] to [n, 1]> -> !step.share<sum, [n, m] to [n, 1]>
    // expected-error @+1 {{'step.receive' op receives shares of several reductions: '!step.share<sum, [n, m] to []>', '!step.share<sum, [n, m] to [n, 1]>'}}
    %x = step.receive %share0, %share : !step.share<sum, [n, m] to []>, !step.share<sum, [n, m] to [n, 1]> -> f64
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sum = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) partials (sum to []) {
      step.yield %e : f32
    }
    %share = step.combine %sum : !step.partial<sum, [n, m] to []> -> !step.share<sum, [n, m] to []>
    // expected-error @+1 {{'step.receive' op makes '!step.buffer<[n, 1], f32>' of '!step.share<sum, [n, m] to []>'}}
    %x = step.receive %share : !step.share<sum, [n, m] to []> -> !step.buffer<[n, 1], f32>
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.product, step.transposed
//===----------------------------------------------------------------------===//

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op makes '!step.buffer<[n, n], f64>' in a program of 'f32'}}
    %x = step.product %p, %p transposed : <[n, m], f32>, <[n, m], f32> -> <[n, n], f64>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op makes '!step.buffer<[n, n], bf16>' in a program of 'f32'}}
    %x = step.product %p, %p transposed : <[n, m], f32>, <[n, m], f32> -> <[n, n], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %halves = step.traverse @halves over [n, m] makes (i16) {
      %zero = arith.constant 0 : i16
      step.yield %zero : i16
    }
    // expected-error @+1 {{'step.product' op takes '!step.buffer<[n, m], i16>', which has no floats}}
    %x = step.product %p transposed, %halves : <[n, m], f32>, <[n, m], i16> -> <[m, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n] as f32, %s: state "s"[n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op takes '!step.buffer<[n], f32>', which has no two dims of a matrix}}
    %x = step.product %p, %p : <[n], f32>, <[n], f32> -> <[n, n], f32>
  }
}

// -----

// What the operands have in common.
step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op makes '!step.buffer<[n, m], f32>' of '!step.buffer<[n, m], f32>' and '!step.buffer<[n, m], f32>'}}
    %x = step.product %p, %p : <[n, m], f32>, <[n, m], f32> -> <[n, m], f32>
  }
}

// -----

// Rows, and columns.
step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op makes '!step.buffer<[m, m], f32>' of '!step.buffer<[n, m], f32>' and '!step.buffer<[n, m], f32>'}}
    %x = step.product %p, %p transposed : <[n, m], f32>, <[n, m], f32> -> <[m, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op makes '!step.buffer<[m, n], f32>' of '!step.buffer<[n, m], f32>' and '!step.buffer<[n, n], f32>'}}
    %x = step.product %p, %s : <[n, m], f32>, <[n, n], f32> -> <[m, n], f32>
  }
}

// -----

// Batches.
step.optimizer @opt {
  step.program @any_0(%p: param[k, n, m] as f32, %s: state "s"[1, m, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op makes '!step.buffer<[k, n, n], f32>' of '!step.buffer<[k, n, m], f32>' and '!step.buffer<[1, m, n], f32>'}}
    %x = step.product %p, %s : <[k, n, m], f32>, <[1, m, n], f32> -> <[k, n, n], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[k, n, m] as f32, %s: state "s"[m, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op makes '!step.buffer<[k, n, n], f32>' of '!step.buffer<[k, n, m], f32>' and '!step.buffer<[m, n], f32>'}}
    %x = step.product %p, %s : <[k, n, m], f32>, <[m, n], f32> -> <[k, n, n], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[k, n, m] as f32, %s: state "s"[1, n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op makes '!step.buffer<[1, n, n], f32>' of '!step.buffer<[k, n, m], f32>' and '!step.buffer<[k, n, m], f32>'}}
    %x = step.product %p, %p transposed : <[k, n, m], f32>, <[k, n, m], f32> -> <[1, n, n], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op makes '!step.buffer<[n, m], f32>', which cannot be symmetric}}
    %x = step.product %s, %p symmetric : <[n, n], f32>, <[n, m], f32> -> <[n, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.product' op is wide and rounded}}
    %x = step.product %s, %p wide rounded : <[n, n], f32>, <[n, m], f32> -> <[n, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as bf16, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.transposed' op makes '!step.buffer<[m, n], bf16>' in a program of 'f32'}}
    %x = step.transposed %p : <[n, m], bf16> -> <[m, n], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %halves = step.traverse @halves over [n, m] makes (i16) {
      %zero = arith.constant 0 : i16
      step.yield %zero : i16
    }
    // expected-error @+1 {{'step.transposed' op takes '!step.buffer<[n, m], i16>', which has no floats}}
    %x = step.transposed %halves : <[n, m], i16> -> <[m, n], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[*] as f32, %s: state "s"[*] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.transposed' op takes '!step.buffer<[*], f32>', which has no two dims of a matrix}}
    %x = step.transposed %p : <[*], f32> -> <[*], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.transposed' op makes '!step.buffer<[n, m], f32>' of '!step.buffer<[n, m], f32>'}}
    %x = step.transposed %p : <[n, m], f32> -> <[n, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[k, n, m] as f32, %s: state "s"[1, n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.transposed' op makes '!step.buffer<[m, n, k], f32>' of '!step.buffer<[k, n, m], f32>'}}
    %x = step.transposed %p : <[k, n, m], f32> -> <[m, n, k], f32>
  }
}

// -----

// Of matrices of floats, into the compute type, as of products.
step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.leading' op makes '!step.buffer<[n, n], bf16>' in a program of 'f32'}}
    %x = step.leading %p : <[n, m], f32> -> <[n, n], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.leading' op makes '!step.buffer<[m, n], f32>' of '!step.buffer<[n, m], f32>'}}
    %x = step.leading %p : <[n, m], f32> -> <[m, n], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.eigenvectors' op makes '!step.buffer<[n, n], bf16>' in a program of 'f32'}}
    %x = step.eigenvectors %p : <[n, n], f32> -> <[n, n], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.eigenvectors' op takes '!step.buffer<[n, m], f32>', which is not square}}
    %x = step.eigenvectors %p : <[n, m], f32> -> <[n, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[m, m] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.eigenvectors' op makes '!step.buffer<[n, m], f32>' of '!step.buffer<[m, m], f32>'}}
    %x = step.eigenvectors %s : <[m, m], f32> -> <[n, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.eigenvectors' op makes '!step.buffer<[1, n], bf16>' in a program of 'f32'}}
    %x, %y = step.eigenvectors %p : <[n, n], f32> -> <[n, n], f32>, !step.buffer<[1, n], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.eigenvectors' op makes '!step.buffer<[n, 1], f32>' of '!step.buffer<[n, n], f32>'}}
    %x, %y = step.eigenvectors %p : <[n, n], f32> -> <[n, n], f32>, !step.buffer<[n, 1], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.indices' op makes '!step.buffer<[n, 1], bf16>' in a program of 'f32'}}
    %x = step.indices : <[n, 1], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.indices' op makes '!step.buffer<[n, n], f32>', which is neither columns nor rows}}
    %x = step.indices : <[n, n], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.indices' op makes '!step.buffer<[n], f32>', which is neither columns nor rows}}
    %x = step.indices : <[n], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.diagonals' op takes '!step.buffer<[n, m], f32>', which is not square}}
    %x = step.diagonals %p : <[n, m], f32> -> <[1, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.diagonals' op makes '!step.buffer<[n, 1], f32>' of '!step.buffer<[n, n], f32>'}}
    %x = step.diagonals %p : <[n, n], f32> -> <[n, 1], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.diagonals' op makes '!step.buffer<[1, n], bf16>' in a program of 'f32'}}
    %x = step.diagonals %p : <[n, n], f32> -> <[1, n], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.orthonormal' op makes '!step.buffer<[n, n], bf16>' in a program of 'f32'}}
    %x = step.orthonormal %p : <[n, n], f32> -> <[n, n], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.orthonormal' op makes '!step.buffer<[n, n], f32>' of '!step.buffer<[n, m], f32>'}}
    %x = step.orthonormal %p : <[n, m], f32> -> <[n, n], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %k: state "k"[1, m] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.sorted' op makes '!step.buffer<[n, m], bf16>' in a program of 'f32'}}
    %x = step.sorted %p by %k : <[n, m], f32>, <[1, m], f32> -> <[n, m], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %k: state "k"[1, m] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.sorted' op makes '!step.buffer<[n, n], f32>' of '!step.buffer<[n, m], f32>'}}
    %x = step.sorted %p by %k : <[n, m], f32>, <[1, m], f32> -> <[n, n], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %k: state "k"[n, 1] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-error @+1 {{'step.sorted' op sorts '!step.buffer<[n, m], f32>' by '!step.buffer<[n, 1], f32>'}}
    %x = step.sorted %p by %k : <[n, m], f32>, <[n, 1], f32> -> <[n, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %t: count, %i: position[n, m] as i64) variant <"any", {}, f32> {
    %s = step.cohort_scalars @scalars {
      %x = arith.constant 1.0 : f64
      step.yield %x : f64
    } : f64
    // expected-error @+1 {{'step.normals' op makes '!step.buffer<[n, m], bf16>' in a program of 'f32'}}
    %x = step.normals "z" %s, %t at %i : <[n, m], i64> -> <[n, m], bf16>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %t: count, %i: position[n, m] as i64) variant <"any", {}, f32> {
    %s = step.cohort_scalars @scalars {
      %x = arith.constant 1.0 : f64
      step.yield %x : f64
    } : f64
    // expected-error @+1 {{'step.normals' op takes for a position what is not the program's}}
    %x = step.normals "z" %s, %t at %p : <[n, m], f32> -> <[n, m], f32>
  }
}

// -----

step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %t: count, %i: position[n, m] as i64) variant <"any", {}, f32> {
    %s = step.cohort_scalars @scalars {
      %x = arith.constant 1.0 : f64
      step.yield %x : f64
    } : f64
    // expected-error @+1 {{'step.normals' op makes '!step.buffer<[n], f32>', which has no two dims of a matrix}}
    %x = step.normals "z" %s, %t at %i : <[n, m], i64> -> <[n], f32>
  }
}

// -----

// A buffer that was written is no operand.
step.optimizer @opt {
  step.program @any_0(%p: param[n, m] as f32, %s: state "s"[n, n] as f32, %t: count) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // expected-note @+1 {{it is written here}}
    %p1 = step.traverse @k over [n, m] reads (%e = %p : <[n, m], f32>) writes (%p : <[n, m], f32>) {
      step.yield %e : f32
    }
    // expected-error @+1 {{'step.product' op uses a buffer that was written}}
    %x = step.product %p, %p transposed : <[n, m], f32>, <[n, m], f32> -> <[n, n], f32>
  }
}

// -----

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'most' is not one of sum, amax}}
func.func private @reduced(!step.share<most, [n] to []>)

// -----

//===----------------------------------------------------------------------===//
// Memory by address
//===----------------------------------------------------------------------===//

func.func @view(%address: i64) {
  // expected-error @+1 {{'step.view' op makes 'memref<4xf32>', which is not a one-dimensional contiguous memref of dynamic extent}}
  %0 = step.view %address : memref<4xf32>
  return
}

// -----

func.func @view(%address: i64) {
  // expected-error @+1 {{'step.view' op makes 'memref<?xf32, strided<[2]>>', which is not a one-dimensional contiguous memref of dynamic extent}}
  %0 = step.view %address : memref<?xf32, strided<[2]>>
  return
}

// -----

func.func @view(%address: i64) {
  // expected-error @+1 {{'step.view' op result #0 must be 1D memref of any type values, but got 'memref<?x?xf32>'}}
  %0 = step.view %address : memref<?x?xf32>
  return
}

// -----

// expected-note @+1 {{prior use here}}
func.func @view(%address: i32) {
  // expected-error @+1 {{use of value '%address' expects different type than prior uses: 'i64' vs 'i32'}}
  %0 = step.view %address : memref<?xf32>
  return
}
