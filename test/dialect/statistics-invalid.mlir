// Tests what is refused of statistics, kept scalars, what is made of them, of
// rules' conditions, and of fragments.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

//===----------------------------------------------------------------------===//
// step.statistic, step.contribute
//===----------------------------------------------------------------------===//

step.optimizer @names {
  // expected-note @+1 {{first declared here}}
  %a = step.hyper "norm" = 1.0
  // expected-error @+1 {{'step.statistic' op declares 'norm' a second time}}
  %b = step.statistic "norm" sum over model
}

// -----

step.optimizer @names {
  // expected-error @+1 {{'step.statistic' op has an empty statistic name}}
  %a = step.statistic "" sum over model
}

// -----

step.optimizer @kind {
  // expected-error @+1 {{'step.statistic' op 'a' is a mean; a statistic is a sum or an amax}}
  %a = step.statistic "a" mean over model
}

// -----

step.optimizer @kind {
  // expected-error @+1 {{'median' is not one of sum, mean, amax}}
  %a = step.statistic "a" median over model
}

// -----

step.optimizer @scope {
  // expected-error @+1 {{'tensor' is neither model nor group}}
  %a = step.statistic "a" sum over tensor
}

// -----

step.optimizer @contribute {
  %a = step.hyper "a" = 1.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.contribute' op contributes to something that is not a statistic}}
    step.contribute %a, %a
    step.return %p
  }
}

// -----

step.optimizer @contribute {
  %a = step.statistic "a" sum over model
  step.rule @any(%p: param[*], %g: grad[*]) {
    %s = step.sum %g : [*]
    step.contribute %a, %s
    // expected-error @+1 {{'step.contribute' op contributes to statistic 'a' a second time in this rule}}
    step.contribute %a, %s
    step.return %p
  }
}

// -----

step.optimizer @contribute {
  %a = step.statistic "a" sum over model
  // expected-error @+1 {{'step.contribute' op expects parent op to be one of 'step.rule, step.program'}}
  step.contribute %a, %a
}

// -----

step.optimizer @reads {
  %a = step.statistic "a" sum over model
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.mul' op reads statistic 'a' in a rule, where it is not complete}}
    %0 = step.mul %g, %a : [*], f64
    step.return %0
  }
}

// -----

step.optimizer @reads {
  %a = step.statistic "a" sum over model
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.contribute' op reads statistic 'a' in a rule, where it is not complete}}
    step.contribute %a, %a
    step.return %p
  }
}

// -----

step.optimizer @cycle {
  %a = step.statistic "a" sum over model
  %r = step.scalars over model {
    %0 = step.sqrt %a : f64
    step.yield %0 : f64
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.mul %g, %r : [*], f64
    %s = step.sum %0 : [*]
    // expected-error @+1 {{'step.contribute' op contributes to statistic 'a' what depends on it}}
    step.contribute %a, %s
    step.return %p
  }
}

// -----

// Through another statistic, in another rule.
step.optimizer @cycle {
  %a = step.statistic "a" sum over model
  %b = step.statistic "b" sum over model
  %ra = step.scalars over model { step.yield %a : f64 }
  %rb = step.scalars over model { step.yield %b : f64 }
  step.rule @one(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.contribute' op contributes to statistic 'a' what depends on it}}
    step.contribute %a, %rb
    step.return %p
  }
  step.rule @two(%p: param[*], %g: grad[*]) {
    step.contribute %b, %ra
    step.return %p
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.scalar
//===----------------------------------------------------------------------===//

step.optimizer @names {
  // expected-error @+1 {{'step.scalar' op has an empty scalar name}}
  %a = step.scalar "" = 1.0 over model
}

// -----

step.optimizer @init {
  // expected-error @+1 {{'step.scalar' op 'a' has an initial value that is not finite}}
  %a = step.scalar "a" = 0x7FF0000000000000 over model
}

// -----

//===----------------------------------------------------------------------===//
// step.scalars
//===----------------------------------------------------------------------===//

step.optimizer @scope {
  // expected-error @+1 {{'tensor' is neither model nor group}}
  step.scalars over tensor { step.yield }
}

// -----

step.optimizer @end {
  // expected-error @+1 {{'step.scalars' op does not end in 'step.yield'}}
  step.scalars over model {
    "test.end"() : () -> ()
  }
}

// -----

step.optimizer @body {
  step.scalars over model {
    // expected-error @+1 {{'test.op' op is not allowed in 'step.scalars', only operations on scalars, calls, updates, reports and skips}}
    "test.op"() : () -> ()
    step.yield
  }
}

// -----

step.optimizer @body {
  %h = step.hyper "h" = 1.0
  %o = step.option "o" = 1
  step.scalars over model {
    // expected-error @+1 {{'step.powi' op works on 'i64' in 'step.scalars'; only f64 and i1 can stand there}}
    %0 = step.powi %h, %o
    step.yield
  }
}

// -----

step.optimizer @body {
  %a = step.statistic "a" sum over group
  step.scalars over model {
    // expected-error @+1 {{'step.sqrt' op reads over model what is over group}}
    %0 = step.sqrt %a : f64
    step.yield
  }
}

// -----

step.optimizer @body {
  %a = step.scalar "a" = 0.0 over group
  %r = step.scalars over group { step.yield %a : f64 }
  step.scalars over model {
    // expected-error @+1 {{'step.report' op reads over model what is over group}}
    step.report "r", %r
    step.yield
  }
}

// -----

step.optimizer @results {
  %h = step.hyper "h" = 1.0
  // expected-error @+1 {{'step.scalars' op has results 'i1' and yields 'f64'}}
  %a = "step.scalars"() <{scope = #step<scope model>}> ({
    step.yield %h : f64
  }) : () -> i1
}

// -----

//===----------------------------------------------------------------------===//
// step.update, step.report, step.skip_if
//===----------------------------------------------------------------------===//

step.optimizer @update {
  %a = step.hyper "a" = 1.0
  step.scalars over model {
    // expected-error @+1 {{'step.update' op updates something that is not a scalar}}
    step.update %a, %a
    step.yield
  }
}

// -----

step.optimizer @update {
  %a = step.scalar "a" = 1.0 over model
  step.scalars over group {
    // expected-error @+1 {{'step.update' op updates scalar 'a', which is over model, over group}}
    step.update %a, %a
    step.yield
  }
}

// -----

step.optimizer @update {
  %a = step.scalar "a" = 1.0 over model
  step.scalars over model {
    // expected-note @+1 {{first updated here}}
    step.update %a, %a
    step.yield
  }
  step.scalars over model {
    // expected-error @+1 {{'step.update' op updates scalar 'a' a second time}}
    step.update %a, %a always
    step.yield
  }
}

// -----

step.optimizer @report {
  %a = step.hyper "a" = 1.0
  step.scalars over model {
    // expected-error @+1 {{'step.report' op has an empty report name}}
    step.report "", %a
    step.yield
  }
}

// -----

step.optimizer @report {
  %a = step.hyper "a" = 1.0
  step.scalars over model {
    // expected-note @+1 {{first declared here}}
    step.report "a", %a
    step.yield
  }
  step.scalars over group {
    // expected-error @+1 {{'step.report' op declares 'a' a second time}}
    step.report "a", %a
    step.yield
  }
}

// -----

step.optimizer @skip {
  %a = step.option "a" = true
  step.scalars over group {
    // expected-error @+1 {{'step.skip_if' op skips over group; only the whole step is skipped}}
    step.skip_if %a
    step.yield
  }
}

// -----

//===----------------------------------------------------------------------===//
// Integer options and conditions of rules
//===----------------------------------------------------------------------===//

step.optimizer @option {
  // expected-error @+1 {{'step.option' op 'a' has type 'i1', which is not its default's}}
  %a = "step.option"() <{name = "a", default_integer = 1 : i64}> : () -> i1
}

// -----

step.optimizer @option {
  // expected-error @+1 {{'step.option' op 'a' needs either a default or a comparison}}
  %a = "step.option"() <{name = "a", default_integer = 1 : i64, default_value = true}> : () -> i1
}

// -----

step.optimizer @option {
  %a = step.option "a" = 3
  %b = step.option "b" = true
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    %lr = step.constant 1.0
    // expected-error @+1 {{'step.powi' op reads option 'a', an integer, which only conditions and dims can}}
    %0 = step.powi %lr, %a
    step.return %p
  }
}

// -----

step.optimizer @conditions {
  // expected-error @+1 {{expected rank, extent or an option}}
  step.rule @any(%p: param[*], %g: grad[*]) where {
    step.return %p
  }
}

// -----

step.optimizer @conditions {
  // expected-error @+1 {{'is' is not one of lt, le, gt, ge, eq, ne}}
  step.rule @any(%p: param[*], %g: grad[*]) where rank is 2 {
    step.return %p
  }
}

// -----

step.optimizer @conditions {
  %a = step.hyper "a" = 1.0
  %b = step.option "b" = %a ne 0.0
  // expected-error @+1 {{'step.rule' op has a condition on option 'b', which can change from step to step}}
  step.rule @any(%p: param[*], %g: grad[*]) where %b {
    step.return %p
  }
}

// -----

step.optimizer @conditions {
  %a = step.option "a" = 3
  // expected-error @+1 {{'step.rule' op has a condition on something that is not an option}}
  "step.rule"(%a) <{sym_name = "any", operandSegmentSizes = array<i32: 0, 1, 0>,
      conditions = [#step.condition<kind = option, predicate = eq>], roles = [
      #step.role<kind = param, name = "">, #step.role<kind = grad, name = "">]}> ({
  ^bb0(%p: !step.tensor<*>, %g: !step.tensor<*>):
    step.return %p
  }) : (i64) -> ()
}

// -----

step.optimizer @conditions {
  %a = step.option "a" = true
  // expected-error @+1 {{'step.rule' op has a condition on something that is not an integer option}}
  "step.rule"(%a) <{sym_name = "any", operandSegmentSizes = array<i32: 0, 1, 0>,
      conditions = [#step.condition<kind = rank, predicate = eq>], roles = [
      #step.role<kind = param, name = "">, #step.role<kind = grad, name = "">]}> ({
  ^bb0(%p: !step.tensor<*>, %g: !step.tensor<*>):
    step.return %p
  }) : (i1) -> ()
}

// -----

step.optimizer @conditions {
  // expected-error @+1 {{'step.rule' op has 1 conditions of options and 0 operands for them}}
  "step.rule"() <{sym_name = "any", operandSegmentSizes = array<i32: 0, 0, 0>,
      conditions = [#step.condition<kind = option, predicate = eq>], roles = [
      #step.role<kind = param, name = "">, #step.role<kind = grad, name = "">]}> ({
  ^bb0(%p: !step.tensor<*>, %g: !step.tensor<*>):
    step.return %p
  }) : () -> ()
}

// -----

// expected-error @+1 {{a condition of an option has no value, no other extent, and the predicate eq or ne}}
"test.op"() {a = #step.condition<kind = option, predicate = lt>} : () -> ()

// -----

//===----------------------------------------------------------------------===//
// step.fragment
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'step.fragment' op has an empty fragment name}}
step.fragment @"" {}

// -----

// expected-error @+1 {{'step.fragment' op needs exactly one rule: 0}}
step.fragment @rules {}

// -----

// expected-error @+1 {{'step.fragment' op needs exactly one rule: 2}}
step.fragment @rules {
  step.rule @one(%g: grad[*]) { step.return %g }
  step.rule @two(%g: grad[*]) { step.return %g }
}

// -----

step.fragment @body {
  // expected-error @+1 {{'arith.constant' op is not allowed in the body of a fragment, only hyper-parameters, options, constants, scalars, statistics, definitions of scalars and rules}}
  %0 = arith.constant 1.0 : f64
  step.rule @one(%g: grad[*]) { step.return %g }
}

// -----

step.fragment @roles {
  // expected-error @+1 {{'step.rule' op has 'grad' in a fragment, which sees either a grad or a param and states}}
  step.rule @any(%p: param[*], %g: grad[*]) { step.return %g }
}

// -----

step.fragment @roles {
  // expected-error @+1 {{'step.rule' op has 'm' in a fragment, which sees either a grad or a param and states}}
  step.rule @any(%g: grad[*], %m: state "m"[*]) { step.return %g }
}

// -----

step.fragment @roles {
  // expected-error @+1 {{'step.rule' op needs exactly one grad: 0}}
  step.rule @any(%t: count) { step.return }
}

// -----

step.fragment @dims {
  // expected-error @+1 {{'step.rule' op has 'grad' of other dims than [*] in a fragment}}
  step.rule @any(%g: grad[n]) { step.return %g : [n] }
}

// -----

step.fragment @dims {
  // expected-error @+1 {{'step.rule' op has 'm' of other dims than [*] in a fragment}}
  step.rule @any(%p: param[*], %m: state "m"[1]) { step.return %m : [1] }
}

// -----

step.fragment @guarded {
  %o = step.option "o" = true
  // expected-error @+1 {{'step.rule' op guards state 'm' in a fragment}}
  step.rule @any(%p: param[*], %m: state "m"[*] if %o) { step.return %m }
}

// -----

step.fragment @given {
  // expected-error @+1 {{'step.rule' op has state 'm' given in a fragment, which writes its states}}
  step.rule @any(%p: param[*], %m: state "m"[*] given) { step.return %m }
}

// -----

step.fragment @roles {
  // expected-error @+1 {{'step.rule' op needs exactly one param: 2}}
  step.rule @any(%p: param[*], %q: param[*]) { step.return }
}

// -----

step.fragment @states {
  // expected-error @+1 {{'step.rule' op declares state 'm' twice}}
  step.rule @any(%p: param[*], %m: state "m"[*], %n: state "m"[*]) {
    step.return %m, %n
  }
}

// -----

step.fragment @return {
  step.rule @any(%p: param[*], %m: state "m"[*]) {
    // expected-error @+1 {{'step.return' op returns 2 values; the rule has 1 states}}
    step.return %p, %m
  }
}

// -----

step.fragment @conditions {
  // expected-error @+1 {{'step.rule' op has conditions in a fragment}}
  step.rule @any(%g: grad[*]) where rank ge 2 { step.return %g }
}

// -----

step.fragment @bound {
  // expected-error @+1 {{'step.rule' op is bound in a fragment}}
  step.rule @any(%g: grad[*] as f32) variant <"any", {}, f32> { step.return %g }
}

// -----

step.fragment @return {
  step.rule @any(%g: grad[*]) {
    // expected-error @+1 {{'step.return' op returns 2 values; the rule has a grad and 0 states}}
    step.return %g, %g
  }
}

// -----

step.optimizer @opt {
  %norm = step.statistic "norm" sum over model
  step.rule @any(%p: param[*], %g: grad[*]) {
    %sum = step.sum %g : [*]
    // expected-error @+1 {{'step.contribute' op contributes a part, which only programs do}}
    step.contribute %norm, %sum partial ["n"]
    step.return %p
  }
}
