// Tests what is refused of an optimizer, its hyper-parameters, options and rules.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

//===----------------------------------------------------------------------===//
// step.optimizer
//===----------------------------------------------------------------------===//

step.optimizer @names {
  // expected-note @+1 {{first declared here}}
  %a = step.hyper "lr" = 1.0
  // expected-error @+1 {{'step.hyper' op declares 'lr' a second time}}
  %b = step.hyper "lr" = 2.0
}

// -----

step.optimizer @names {
  // expected-note @+1 {{first declared here}}
  %a = step.hyper "nesterov" = 1.0
  // expected-error @+1 {{'step.option' op declares 'nesterov' a second time}}
  %b = step.option "nesterov" = true
}

// -----

step.optimizer @body {
  // expected-error @+1 {{'arith.constant' op is not allowed in the body of an optimizer, only hyper-parameters, options, constants, scalars, statistics, definitions of scalars and rules}}
  %0 = arith.constant 1.0 : f64
}

// -----

step.optimizer @body {
  %lr = step.hyper "lr" = 1.0
  // expected-error @+1 {{'step.neg' op is not allowed in the body of an optimizer, only hyper-parameters, options, constants, scalars, statistics, definitions of scalars and rules}}
  %0 = step.neg %lr : f64
}

// -----

// expected-error @+1 {{'step.optimizer' op region should have no arguments}}
"step.optimizer"() <{sym_name = "arguments"}> ({
^bb0(%arg0: f64):
}) : () -> ()

// -----

// expected-error @+1 {{expects region #0 to have 0 or 1 blocks}}
"step.optimizer"() <{sym_name = "blocks"}> ({
^bb0:
^bb1:
}) : () -> ()

// -----

// expected-error @+1 {{expected valid '@'-identifier for symbol name}}
step.optimizer {
}

// -----

// expected-error @+1 {{'step.optimizer' op has an empty optimizer name}}
"step.optimizer"() <{sym_name = ""}> ({
^bb0:
}) : () -> ()

// -----

step.optimizer @rules {
  // expected-note @+1 {{see existing symbol definition here}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
  // expected-error @+1 {{redefinition of symbol named 'any'}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.hyper
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.hyper' op expects parent op to be one of 'step.optimizer, step.fragment'}}
%lr = step.hyper "lr" = 1.0

// -----

step.optimizer @hyper {
  // expected-error @+1 {{'step.hyper' op has an empty hyper-parameter name}}
  %lr = step.hyper "" = 1.0
}

// -----

step.optimizer @hyper {
  // expected-error @+1 {{'step.hyper' op 'lr' has a default that is not finite}}
  %lr = step.hyper "lr" = 0x7FF0000000000000
}

// -----

step.optimizer @hyper {
  // expected-error @+1 {{'step.hyper' op 'lr' has a default that is not finite}}
  %lr = step.hyper "lr" = 0x7FF8000000000000
}

// -----

step.optimizer @hyper {
  // expected-error @+1 {{expected a floating-point number}}
  %lr = step.hyper "lr" = true
}

// -----

step.optimizer @hyper {
  // expected-error @+1 {{unexpected decimal integer literal for a floating point value}}
  %lr = step.hyper "lr" = 1 // expected-note {{add a trailing dot to make the literal a float}}
}

// -----

// MLIR reports this at the token that follows the alias.
// expected-error @+4 {{attribute type different than expected: expected 'f64', but got 'f32'}}
#narrow = 1.0 : f32
step.optimizer @hyper {
  %lr = step.hyper "lr" = #narrow
}

// -----

step.optimizer @hyper {
  // expected-error @+1 {{attribute 'default_value' failed to satisfy constraint: 64-bit float attribute}}
  %lr = "step.hyper"() <{name = "lr", default_value = 1.0 : f32}> : () -> f64
}

// -----

//===----------------------------------------------------------------------===//
// step.option
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.option' op expects parent op to be one of 'step.optimizer, step.fragment'}}
%a = step.option "a" = true

// -----

step.optimizer @option {
  // expected-error @+1 {{'step.option' op has an empty option name}}
  %a = step.option "" = true
}

// -----

step.optimizer @option {
  // expected-error @+1 {{expected true, false, an integer or a comparison of a hyper-parameter}}
  %a = step.option "a" = "1"
}

// -----

step.optimizer @option {
  %lr = step.hyper "lr" = 1.0
  // expected-error @+1 {{'neq' is not one of lt, le, gt, ge, eq, ne}}
  %a = step.option "a" = %lr neq 0.0
}

// -----

step.optimizer @option {
  %lr = step.hyper "lr" = 1.0
  // expected-error @+1 {{expected a floating-point number}}
  %a = step.option "a" = %lr ne "0"
}

// -----

step.optimizer @option {
  %c = step.constant 1.0
  // expected-error @+1 {{'step.option' op 'a' compares something that is not a hyper-parameter}}
  %a = step.option "a" = %c ne 0.0
}

// -----

step.optimizer @option {
  // expected-error @+1 {{'step.option' op 'a' needs either a default or a comparison}}
  %a = "step.option"() <{name = "a"}> : () -> i1
}

// -----

step.optimizer @option {
  %lr = step.hyper "lr" = 1.0
  // A default and a comparison.
  // expected-error @+1 {{'step.option' op 'a' needs either a default or a comparison}}
  %a = "step.option"(%lr) <{name = "a", default_value = true, predicate = #step<predicate ne>, threshold = 0.0 : f64}> : (f64) -> i1
}

// -----

step.optimizer @option {
  %lr = step.hyper "lr" = 1.0
  // A comparison with nothing.
  // expected-error @+1 {{'step.option' op 'a' needs either a default or a comparison}}
  %a = "step.option"(%lr) <{name = "a", predicate = #step<predicate ne>}> : (f64) -> i1
}

// -----

step.optimizer @option {
  // A comparison of nothing.
  // expected-error @+1 {{'step.option' op 'a' needs either a default or a comparison}}
  %a = "step.option"() <{name = "a", predicate = #step<predicate ne>, threshold = 0.0 : f64}> : () -> i1
}

// -----

//===----------------------------------------------------------------------===//
// step.rule
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.rule' op expects parent op to be one of 'step.optimizer, step.fragment'}}
step.rule @any(%p: param[*], %g: grad[*]) {
  step.return %p
}

// -----

step.optimizer @kinds {
  // expected-error @+1 {{'step.rule' op needs exactly one param: 0}}
  step.rule @any(%g: grad[*]) {
    step.return
  }
}

// -----

step.optimizer @kinds {
  // expected-error @+1 {{'step.rule' op needs exactly one param: 2}}
  step.rule @any(%p: param[*], %q: param[*], %g: grad[*]) {
    step.return %p, %q
  }
}

// -----

step.optimizer @kinds {
  // expected-error @+1 {{'step.rule' op needs exactly one grad: 0}}
  step.rule @any(%p: param[*]) {
    step.return %p
  }
}

// -----

step.optimizer @kinds {
  // expected-error @+1 {{'step.rule' op takes at most one count: 2}}
  step.rule @any(%p: param[*], %g: grad[*], %t: count, %u: count) {
    step.return %p
  }
}

// -----

step.optimizer @kinds {
  // expected-error @+1 {{'step.rule' op takes at most one fresh: 2}}
  step.rule @any(%p: param[*], %g: grad[*], %t: fresh, %u: fresh) {
    step.return %p
  }
}

// -----

step.optimizer @kinds {
  // expected-error @+1 {{'step.rule' op asks whether state 'n' is fresh, which it does not have}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*], %t: fresh("m", "n")) {
    step.return %p, %m
  }
}

// -----

step.optimizer @kinds {
  // expected-error @+1 {{'step.rule' op takes 65 freshes, the most are 64}}
  step.rule @any(%p: param[*], %g: grad[*],
                 %f0: fresh(), %f1: fresh(), %f2: fresh(), %f3: fresh(), %f4: fresh(), %f5: fresh(),
                 %f6: fresh(), %f7: fresh(), %f8: fresh(), %f9: fresh(), %f10: fresh(), %f11: fresh(),
                 %f12: fresh(), %f13: fresh(), %f14: fresh(), %f15: fresh(), %f16: fresh(), %f17: fresh(),
                 %f18: fresh(), %f19: fresh(), %f20: fresh(), %f21: fresh(), %f22: fresh(), %f23: fresh(),
                 %f24: fresh(), %f25: fresh(), %f26: fresh(), %f27: fresh(), %f28: fresh(), %f29: fresh(),
                 %f30: fresh(), %f31: fresh(), %f32: fresh(), %f33: fresh(), %f34: fresh(), %f35: fresh(),
                 %f36: fresh(), %f37: fresh(), %f38: fresh(), %f39: fresh(), %f40: fresh(), %f41: fresh(),
                 %f42: fresh(), %f43: fresh(), %f44: fresh(), %f45: fresh(), %f46: fresh(), %f47: fresh(),
                 %f48: fresh(), %f49: fresh(), %f50: fresh(), %f51: fresh(), %f52: fresh(), %f53: fresh(),
                 %f54: fresh(), %f55: fresh(), %f56: fresh(), %f57: fresh(), %f58: fresh(), %f59: fresh(),
                 %f60: fresh(), %f61: fresh(), %f62: fresh(), %f63: fresh(), %f64: fresh()) {
    step.return %p
  }
}

// -----

step.optimizer @kinds {
  // expected-error @+1 {{'weight' is not one of param, grad, state, count, fresh, position}}
  step.rule @any(%p: weight[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @dims {
  // expected-error @+1 {{'step.rule' op has param and grad of different dims: '!step.tensor<n, m>' and '!step.tensor<m, n>'}}
  step.rule @any(%p: param[n, m], %g: grad[m, n]) {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @dims {
  // expected-error @+1 {{'step.rule' op state 'row' has dim 'k', which the param does not have}}
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, k]) {
    step.return %p, %r : [n, m], [n, k]
  }
}

// -----

// `*` is all dims of a param of any rank, not of one of two dims.
step.optimizer @dims {
  // expected-error @+1 {{'step.rule' op state 'm' has dim '*', which the param does not have}}
  step.rule @any(%p: param[n, m], %g: grad[n, m], %m: state "m"[*]) {
    step.return %p, %m : [n, m], [*]
  }
}

// -----

step.optimizer @dims {
  // expected-error @+1 {{expected the dims of a tensor, as [n, m]}}
  step.rule @any(%p: param f64, %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @dims {
  // expected-error @+1 {{expected the dims of a tensor, as [n, m]}}
  step.rule @any(%p: param mask[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @states {
  // expected-error @+1 {{'step.rule' op has an empty state name}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state ""[*]) {
    step.return %p, %m
  }
}

// -----

step.optimizer @states {
  // expected-error @+1 {{'step.rule' op declares state 'm' twice}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*], %n: state "m"[*]) {
    step.return %p, %m, %n
  }
}

// -----

step.optimizer @states {
  // expected-error @+1 {{expected string}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state[*]) {
    step.return %p, %m
  }
}

// -----

step.optimizer @states {
  // expected-error @+1 {{expected attribute value}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*] = zero) {
    step.return %p, %m
  }
}

// -----

step.optimizer @guards {
  // A constant is not an option: nothing could tell its name to the runtime.
  %yes = step.constant true
  // expected-error @+1 {{'step.rule' op has a guard that is not an option}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*] if %yes) {
    step.return %p, %m
  }
}

// -----

step.optimizer @guards {
  %lr = step.hyper "lr" = 1.0 // expected-note {{prior use here}}
  // expected-error @+1 {{use of value '%lr' expects different type than prior uses: 'i1' vs 'f64'}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*] if %lr) {
    step.return %p, %m
  }
}

// -----

step.optimizer @guards {
  // expected-error @+1 {{'step.rule' op has 1 guarded states and 0 guards}}
  "step.rule"() <{sym_name = "any", roles = [
      #step.role<kind = param, name = "">, #step.role<kind = grad, name = "">,
      #step.role<kind = state, name = "m", init = 0.0 : f64, guarded = true>]}> ({
  ^bb0(%p: !step.tensor<*>, %g: !step.tensor<*>, %m: !step.tensor<*>):
    step.return %p, %m
  }) : () -> ()
}

// -----

step.optimizer @guards {
  %a = step.option "a" = true
  // expected-error @+1 {{'step.rule' op has 0 guarded states and 1 guards}}
  "step.rule"(%a) <{sym_name = "any", operandSegmentSizes = array<i32: 1, 0, 0>, roles = [
      #step.role<kind = param, name = "">, #step.role<kind = grad, name = "">]}> ({
  ^bb0(%p: !step.tensor<*>, %g: !step.tensor<*>):
    step.return %p
  }) : (i1) -> ()
}

// -----

step.optimizer @name {
  // expected-error @+1 {{'step.rule' op has an empty rule name}}
  "step.rule"() <{sym_name = "", roles = []}> ({
  ^bb0:
    step.return
  }) : () -> ()
}

// -----

step.optimizer @roles {
  // expected-error @+1 {{'step.rule' op has 1 roles and 2 arguments}}
  "step.rule"() <{sym_name = "any", roles = [#step.role<kind = param, name = "">]}> ({
  ^bb0(%p: !step.tensor<*>, %g: !step.tensor<*>):
    step.return %p
  }) : () -> ()
}

// -----

step.optimizer @roles {
  // expected-error @+1 {{'step.rule' op argument 1 has role 'grad' and type 'f64'}}
  "step.rule"() <{sym_name = "any", roles = [
      #step.role<kind = param, name = "">, #step.role<kind = grad, name = "">]}> ({
  ^bb0(%p: !step.tensor<*>, %g: f64):
    step.return %p
  }) : () -> ()
}

// -----

step.optimizer @roles {
  // expected-error @+1 {{'step.rule' op argument 2 has role 'count' and type 'i32'}}
  "step.rule"() <{sym_name = "any", roles = [
      #step.role<kind = param, name = "">, #step.role<kind = grad, name = "">,
      #step.role<kind = count, name = "">]}> ({
  ^bb0(%p: !step.tensor<*>, %g: !step.tensor<*>, %t: i32):
    step.return %p
  }) : () -> ()
}

// -----

step.optimizer @roles {
  // expected-error @+1 {{'step.rule' op argument 2 has role 'fresh' and type 'i64'}}
  "step.rule"() <{sym_name = "any", roles = [
      #step.role<kind = param, name = "">, #step.role<kind = grad, name = "">,
      #step.role<kind = fresh, name = "">]}> ({
  ^bb0(%p: !step.tensor<*>, %g: !step.tensor<*>, %f: i64):
    step.return %p
  }) : () -> ()
}

// -----

step.optimizer @roles {
  // expected-error @+1 {{attribute 'roles' failed to satisfy constraint: roles of a rule}}
  "step.rule"() <{sym_name = "any", roles = ["param"]}> ({
  ^bb0(%p: !step.tensor<*>):
    step.return %p
  }) : () -> ()
}

// -----

step.optimizer @roles {
  // expected-error @+1 {{requires attribute 'roles'}}
  "step.rule"() <{sym_name = "any"}> ({
  ^bb0(%p: !step.tensor<*>):
    step.return %p
  }) : () -> ()
}

// -----

step.optimizer @attributes {
  // expected-error @+1 {{attribute 'roles' occurs more than once in the attribute list}}
  step.rule @any(%p: param[*], %g: grad[*]) attributes {roles = []} {
    step.return %p
  }
}

// -----

step.optimizer @attributes {
  // expected-error @+1 {{attribute 'variant' failed to satisfy constraint: which rule, with which options, compute type and layout, a variant is}}
  step.rule @any(%p: param[*], %g: grad[*]) attributes {variant = 1} {
    step.return %p
  }
}

// -----

step.optimizer @attributes {
  // expected-error @+1 {{expected '<'}}
  step.rule @any(%p: param[*], %g: grad[*]) variant "any" {
    step.return %p
  }
}

// -----

step.optimizer @body {
  // expected-error @+1 {{'step.rule' op expects a non-empty block}}
  step.rule @any(%p: param[*], %g: grad[*]) {
  }
}

// -----

step.optimizer @body {
  // expected-error @+1 {{'step.rule' op does not end in 'step.return'}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    "test.terminator"() : () -> ()
  }
}

// -----

step.optimizer @body {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{block with no terminator}}
    %0 = step.neg %g : [*]
  }
}

// -----

step.optimizer @body {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{redefinition of SSA value '%p'}}
    %p = step.neg %g : [*] // expected-note @-2 {{previously defined here}}
    step.return %p
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.return
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.return' op expects parent op 'step.rule'}}
step.return

// -----

step.optimizer @given {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*] given) {
    // expected-error @+1 {{'step.return' op returns 2 values; the rule has a param and 0 states beside those that are given}}
    step.return %p, %m
  }
}

// -----

step.optimizer @count {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    // expected-error @+1 {{'step.return' op returns 1 values; the rule has a param and 1 states}}
    step.return %p
  }
}

// -----

step.optimizer @types {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1]) {
    // expected-error @+1 {{'step.return' op returns '!step.tensor<n, m>' for 'row', which is '!step.tensor<n, 1>'}}
    step.return %p, %g : [n, m], [n, m]
  }
}

// -----

step.optimizer @types {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1]) {
    // expected-error @+1 {{'step.return' op returns '!step.tensor<n, 1>' for 'param', which is '!step.tensor<n, m>'}}
    step.return %r, %r : [n, 1], [n, 1]
  }
}

// -----

step.optimizer @types {
  // expected-note @+1 {{prior use here}}
  step.rule @any(%p: param[n], %g: grad[n]) {
    // Without types the values are of any rank.
    // expected-error @+1 {{use of value '%p' expects different type than prior uses: '!step.tensor<*>' vs '!step.tensor<n>'}}
    step.return %p
  }
}

// -----

step.optimizer @types {
  step.rule @any(%p: param[n], %g: grad[n]) {
    // expected-error @+1 {{number of operands and types do not match: got 1 operands and 2 types}}
    step.return %p : [n], [n]
  }
}

// -----

step.optimizer @types {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %lr = step.constant 1.0
    // expected-error @+1 {{'step.return' op operand #0 must be variadic of a tensor with symbolic dims, but got 'f64'}}
    step.return %lr : f64
  }
}

// -----

// expected-error @+1 {{'step.optimizer' op has the optimizer name 'a,b' with a character that is not allowed at 1}}
step.optimizer @"a,b" {
}

// -----

step.optimizer @threshold {
  %a = step.hyper "a" = 1.0
  // expected-error @+1 {{'step.option' op 'o' compares with a value that is not finite}}
  %o = step.option "o" = %a gt 0x7FF0000000000000
}

// -----

step.optimizer @reserved {
  // expected-error @+1 {{'step.rule' op calls a state 'grad', which is the name of another role}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state "grad"[*]) {
    step.return %p, %m
  }
}

// -----

step.optimizer @storage {
  // expected-error @+1 {{'step.rule' op has no variant, but a storage type for 'm'}}
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*] as bf16) {
    step.return %p, %m
  }
}

// -----

step.optimizer @no_storage {
  // expected-error @+1 {{'step.rule' op has no storage type for 'grad'}}
  step.rule @any(%p: param[*] as f32, %g: grad[*]) variant <"any", {}, f32> {
    step.return %p
  }
}

// -----

step.optimizer @undecided {
  %o = step.option "o" = false
  // expected-error @+1 {{'step.rule' op has a variant that does not say what option 'o' is}}
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {o = 1 : i64}, f32> {
    step.return %p
  }
}

// -----

step.optimizer @foreign {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'arith.constant' op is not allowed in a rule, only operations of the language}}
    %x = arith.constant 1.0 : f64
    step.return %p
  }
}

// -----

step.optimizer @broadcast {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "r"[n, 1]) {
    // expected-error @+1 {{'step.broadcast' op cannot make '!step.tensor<n, 1>' of '!step.tensor<n, m>'}}
    %x = step.broadcast %p : [n, m] to [n, 1]
    step.return %p, %x : [n, m], [n, 1]
  }
}

// -----

step.optimizer @conditions {
  // expected-error @+1 {{expected integer value}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) where extent 0 le extent {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @conditions {
  %o = step.option "o" = 3
  // expected-error @+1 {{expected integer value}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) where extent 0 le extent %o {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @conditions {
  %o = step.option "o" = 3
  // expected-error @+1 {{'step.rule' op has 0 conditions of options and 1 operands for them}}
  "step.rule"(%o) <{sym_name = "any", operandSegmentSizes = array<i32: 0, 1, 0>,
      conditions = [#step.condition<kind = extent, predicate = le, other = 1>], roles = [
      #step.role<kind = param, name = "">, #step.role<kind = grad, name = "">]}> ({
  ^bb0(%p: !step.tensor<n, m>, %g: !step.tensor<n, m>):
    step.return %p : [n, m]
  }) : (i64) -> ()
}

// -----

// expected-error @+1 {{'step.optimizer' op has the optimizer name with bytes that are not UTF-8 at 1}}
step.optimizer @"x\FF" {
}
