// Tests what is refused of the operations on values.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

step.optimizer @operands {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = arith.constant 1.0 : f32
    // expected-error @+1 {{'step.neg' op operand #0 must be a tensor or an f64 scalar, but got 'f32'}}
    %1 = step.neg %0 : f32
    step.return %p
  }
}

// -----

step.optimizer @operands {
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // The count is no number to calculate with, but step.powi's exponent.
    // expected-error @+1 {{'step.mul' op operand #1 must be a tensor or an f64 scalar, but got 'i64'}}
    %1 = step.mul %p, %t : [*], i64
    step.return %1
  }
}

// -----

step.optimizer @operands {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.compare lt, %p, %g : [*]
    // expected-error @+1 {{'step.maximum' op operand #0 must be a tensor or an f64 scalar, but got '!step.mask<*>'}}
    %1 = step.maximum %0, %0 : mask[*]
    step.return %1
  }
}

// -----

step.optimizer @operands {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.compare lt, %p, %g : [*]
    // expected-error @+1 {{'step.lerp' op operand #2 must be a tensor or a scalar, but got '!step.mask<*>'}}
    %1 = step.lerp %p, %g, %0 : [*], [*], mask[*]
    step.return %1
  }
}

// -----

step.optimizer @operands {
  // expected-note @+1 {{prior use here}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{use of value '%p' expects different type than prior uses: 'i1' vs '!step.tensor<*>'}}
    %1 = step.select %p, %p, %g : [*]
    step.return %1
  }
}

// -----

step.optimizer @operands {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.compare lt, %p, %g : [*]
    // expected-error @+1 {{'step.compare' op operand #1 must be a tensor or an f64 scalar, but got '!step.mask<*>'}}
    %1 = step.compare eq, %p, %0 : [*], mask[*]
    step.return %p
  }
}

// -----

step.optimizer @operands {
  // expected-note @+1 {{prior use here}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{use of value '%p' expects different type than prior uses: '!step.tensor<n, m>' vs '!step.tensor<*>'}}
    %1 = step.add %p, %g : [n, m]
    step.return %1
  }
}

// -----

step.optimizer @short_types {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{expected one type for all operands, or one for each: 2 operands, 3 types}}
    %1 = step.add %p, %g : [*], [*], [*]
    step.return %1
  }
}

// -----

step.optimizer @short_types {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{expected one type for all operands, or one for each: 3 operands, 2 types}}
    %1 = step.lerp %p, %g, %g : [*], [*]
    step.return %1
  }
}

// -----

step.optimizer @short_types {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.add' needs the types of its operands, as ': [*], f64'}}
    %1 = step.add %p, %g
    step.return %1
  }
}

// -----

step.optimizer @results {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+2 {{'step.neg' op inferred type(s) '!step.tensor<*>' are incompatible with return type(s) of operation 'f64'}}
    // expected-error @+1 {{'step.neg' op failed to infer returned types}}
    %1 = "step.neg"(%g) : (!step.tensor<*>) -> f64
    step.return %p
  }
}

// -----

step.optimizer @results {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+2 {{'step.compare' op inferred type(s) '!step.mask<*>' are incompatible with return type(s) of operation 'i1'}}
    // expected-error @+1 {{'step.compare' op failed to infer returned types}}
    %1 = "step.compare"(%g, %p) <{predicate = #step<predicate lt>}> : (!step.tensor<*>, !step.tensor<*>) -> i1
    step.return %p
  }
}

// -----

//===----------------------------------------------------------------------===//
// Broadcasting
//===----------------------------------------------------------------------===//

// Dims of other names may be of other extents.
step.optimizer @broadcast {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[m, n]) {
    // expected-error @+1 {{operands do not broadcast: '!step.tensor<n, m>', '!step.tensor<m, n>'}}
    %1 = step.add %p, %s : [n, m], [m, n]
    step.return %1, %s : [n, m], [m, n]
  }
}

// -----

// The same in the generic form, which says its result type.
step.optimizer @broadcast {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[m, n]) {
    // expected-error @+2 {{operands do not broadcast: '!step.tensor<n, m>', '!step.tensor<m, n>'}}
    // expected-error @+1 {{'step.add' op failed to infer returned types}}
    %1 = "step.add"(%p, %s) : (!step.tensor<n, m>, !step.tensor<m, n>) -> !step.tensor<n, m>
    step.return %1, %s : [n, m], [m, n]
  }
}

// -----

// Dims are not added in front: ranks must agree.
step.optimizer @broadcast {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[m]) {
    // expected-error @+1 {{operands do not broadcast: '!step.tensor<n, m>', '!step.tensor<m>'}}
    %1 = step.mul %p, %s : [n, m], [m]
    step.return %1, %s : [n, m], [m]
  }
}

// -----

// The third operand's shape counts too.
step.optimizer @broadcast {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[m, 1]) {
    // expected-error @+1 {{operands do not broadcast: '!step.tensor<n, m>', '!step.tensor<n, m>', '!step.tensor<m, 1>'}}
    %1 = step.lerp %p, %g, %s : [n, m], [n, m], [m, 1]
    step.return %1, %s : [n, m], [m, 1]
  }
}

// -----

// A mask's shape counts as a tensor's does.
step.optimizer @broadcast {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[m, n]) {
    %0 = step.compare lt, %s, %s : [m, n]
    // expected-error @+1 {{operands do not broadcast: '!step.mask<m, n>', '!step.tensor<n, m>', '!step.tensor<n, m>'}}
    %1 = step.select %0, %p, %g : mask[m, n], [n, m]
    step.return %1, %s : [n, m], [m, n]
  }
}

// -----

step.optimizer @broadcast {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[m, n]) {
    // expected-error @+1 {{operands do not broadcast: '!step.tensor<n, m>', '!step.tensor<m, n>'}}
    %0 = step.compare lt, %p, %s : [n, m], [m, n]
    step.return %p, %s : [n, m], [m, n]
  }
}

// -----

//===----------------------------------------------------------------------===//
// Single operations
//===----------------------------------------------------------------------===//

step.optimizer @constant {
  // expected-error @+1 {{expected a floating-point number}}
  %0 = step.constant "one"
}

// -----

step.optimizer @constant {
  // expected-error @+1 {{unexpected decimal integer literal for a floating point value}}
  %0 = step.constant 1 // expected-note {{add a trailing dot to make the literal a float}}
}

// -----

step.optimizer @constant {
  // expected-error @+1 {{op result #0 must be 64-bit float or 1-bit signless integer, but got 'f32'}}
  %0 = "step.constant"() <{value = 1.0 : f32}> : () -> f32
}

// -----

step.optimizer @constant {
  // expected-error @+1 {{failed to verify that all of {value, result} have same type}}
  %0 = "step.constant"() <{value = 1.0 : f64}> : () -> i1
}

// -----

// The attribute of a dialect that is not known has a type too.
step.optimizer @constant {
  // expected-error @+1 {{'step.constant' op has value #test<"x"> : f64, which is neither a float nor a boolean}}
  %0 = "step.constant"() <{value = #test<"x"> : f64}> : () -> f64
}

// -----

step.optimizer @compare {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'less' is not one of lt, le, gt, ge, eq, ne}}
    %0 = step.compare less, %p, %g : [*]
    step.return %p
  }
}

// -----

step.optimizer @powi {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.constant 0.9
    // expected-note @+1 {{prior use here}}
    %1 = step.constant 2.0
    // expected-error @+1 {{use of value '%1' expects different type than prior uses: 'i64' vs 'f64'}}
    %2 = step.powi %0, %1
    step.return %p
  }
}

// -----

step.optimizer @powi {
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.powi' op operand #0 must be 64-bit float, but got '!step.tensor<*>'}}
    %0 = "step.powi"(%p, %t) : (!step.tensor<*>, i64) -> f64
    step.return %p
  }
}

// -----

step.optimizer @pow {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.pow' op operand #1 must be a tensor or a scalar, but got 'i64'}}
    %0 = "step.pow"(%lr, %t) : (f64, i64) -> f64
    step.return %p
  }
}

// -----

step.optimizer @to_f64 {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.constant 0.9
    // expected-note @-1 {{prior use here}}
    // expected-error @+1 {{use of value '%0' expects different type than prior uses: 'i64' vs 'f64'}}
    %1 = step.to_f64 %0
    step.return %p
  }
}

// -----

//===----------------------------------------------------------------------===//
// Operations that passes insert
//===----------------------------------------------------------------------===//

step.optimizer @stored {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.stored' op names no role}}
    %0 = step.stored %p as [] : [*]
    step.return %0
  }
}

// -----

step.optimizer @stored {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.stored' op names role 2, which is no param or state of the rule}}
    %0 = step.stored %p as [0, 2] : [*]
    step.return %0
  }
}

// -----

step.optimizer @stored {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.stored' op names role -1, which is no param or state of the rule}}
    %0 = step.stored %p as [-1] : [*]
    step.return %0
  }
}

// -----

step.optimizer @stored {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.stored' op names role 1, which is no param or state of the rule}}
    %0 = step.stored %p as [1] : [*]
    step.return %0
  }
}

// -----

%0 = "builtin.unrealized_conversion_cast"() : () -> !step.tensor<*>
// expected-error @+1 {{'step.stored' op expects parent op 'step.rule'}}
%1 = step.stored %0 as [0] : [*]

// -----

step.optimizer @stored {
  step.rule @any(%p: param[n], %g: grad[n]) {
    // expected-error @+1 {{failed to verify that all of {operand, result} have same type}}
    %0 = "step.stored"(%p) <{roles = array<i64: 0>}> : (!step.tensor<n>) -> !step.tensor<*>
    step.return %p : [n]
  }
}

// -----

step.optimizer @halves {
  step.rule @any(%p: param[*] as f64, %g: grad[*] as f64) variant <"any", {}, f64> {
    // expected-error @+1 {{'step.upper_half' op is for bound rules that compute in f32}}
    %0 = step.upper_half %p : [*]
    step.return %0
  }
}

// -----

step.optimizer @unbound_halves {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.join_halves' op is for bound rules that compute in f32}}
    %0 = step.join_halves %p, %g : [*]
    step.return %0
  }
}

// -----

step.optimizer @unbound_carried {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.carried' op is for bound rules}}
    %0 = step.carried "x"
    step.return %p : [*]
  }
}

// -----

step.optimizer @carried_twice {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.carried' op 'x' is kept by several step.carry}}
    %0 = step.carried "x"
    %1 = step.sum %p : [*]
    step.carry %1 as %0 of %1
    step.carry %1 as %0 of %1
    step.return %p : [*]
  }
}

// -----

step.optimizer @carry_of_nothing {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %0 = step.sum %p : [*]
    // expected-error @+1 {{'step.carry' op keeps a value for what is no 'step.carried'}}
    step.carry %0 as %0 of %0
    step.return %p : [*]
  }
}

// -----

step.optimizer @stochastic {
  %seed = step.hyper "rounding_seed" = 0.0
  step.rule @any(%p: param[*] as bf16, %g: grad[*] as bf16, %i: position[*] as i64, %t: count)
      variant <"any", {}, f32> {
    %s = step.to_i64 %seed
    // expected-error @+1 {{'step.round_stochastic' op takes for a position what is not the rule's}}
    %0 = step.round_stochastic %p at %g, %s, %t of "" : [*]
    step.return %0
  }
}

// -----

step.optimizer @stochastic_f64 {
  %seed = step.hyper "rounding_seed" = 0.0
  step.rule @any(%p: param[*] as f64, %g: grad[*] as f64, %i: position[*] as i64, %t: count)
      variant <"any", {}, f64> {
    %s = step.to_i64 %seed
    // expected-error @+1 {{'step.round_stochastic' op is for bound rules that compute in f32}}
    %0 = step.round_stochastic %p at %i, %s, %t of "" : [*]
    step.return %0
  }
}

// -----

step.optimizer @unbound_position {
  // expected-error @+1 {{'step.rule' op has a position, which is added by binding}}
  step.rule @any(%p: param[*], %g: grad[*], %i: position[*]) {
    step.return %p
  }
}

// -----

step.optimizer @position_storage {
  // expected-error @+1 {{storage type 'f32' of a position is not i64}}
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32, %i: position[*] as f32) variant <"any", {}, f32> {
    step.return %p
  }
}

// -----

step.optimizer @round {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.round' op rounds to 'f64', which is none of f32, bf16, f16}}
    %0 = step.round %p to f64 : [*]
    step.return %0
  }
}

// -----

%0 = "builtin.unrealized_conversion_cast"() : () -> !step.tensor<*>
// expected-error @+1 {{'step.broadcast' op expects parent op 'step.rule'}}
%1 = step.broadcast %0 : [*] to [*]
