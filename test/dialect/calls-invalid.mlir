// Tests what is refused of scalars that are written once, and of their calls.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

step.optimizer @name {
  // expected-error @+1 {{'step.define' op has an empty definition name}}
  step.define @""(%x: f64) {
    step.yield %x : f64
  }
}

// -----

step.optimizer @name {
  // expected-note @+1 {{see existing symbol definition here}}
  step.define @any(%x: f64) {
    step.yield %x : f64
  }
  // expected-error @+1 {{redefinition of symbol named 'any'}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @argument {
  // expected-error @+1 {{'step.define' op takes 'f32'; only tensors, f64, i1 and i64 can be arguments}}
  step.define @f(%x: f32) {
    %y = step.constant 1.0
    step.yield %y : f64
  }
}

// -----

step.optimizer @reassociable {
  step.define @f(%x: [n, m]) {
    %xx = step.mul %x, %x : [n, m]
    // expected-error @+1 {{'step.mean' op is 'reassociable' in 'step.define', which is for what a rule itself does}}
    %y = step.mean %xx reassociable : [n, m]
    step.yield %y : f64
  }
}

// -----

step.optimizer @returned {
  step.define @f(%x: [n]) {
    %y = step.neg %x : [n]
    step.yield %y : [n]
  }
  step.rule @any(%p: param[n], %g: grad[n]) {
    %y = step.call @f(%g) : ([n]) -> [n]
    // expected-error @+1 {{'step.return' op returns for 'param' what a 'step.call' gives, and not a value that an operation of the rule makes}}
    step.return %y : [n]
  }
}

// -----

step.optimizer @ending {
  // expected-error @+1 {{'step.define' op does not end in 'step.yield'}}
  step.define @f(%x: f64) {
    "test.end"() : () -> ()
  }
}

// -----

step.optimizer @nothing {
  // expected-error @+1 {{'step.define' op yields nothing}}
  step.define @f(%x: f64) {
    step.yield
  }
}

// -----

step.optimizer @yields {
  // expected-error @+1 {{'step.define' op yields 'i64'; only tensors, f64 and i1 can be results}}
  step.define @f(%t: i64) {
    step.yield %t : i64
  }
}

// -----

step.optimizer @operation {
  step.define @f(%x: f64) {
    // expected-error @+1 {{'test.op' op is not allowed in 'step.define', only operations that compute a value, calls and repetitions}}
    "test.op"() : () -> ()
    step.yield %x : f64
  }
}

// -----

step.optimizer @outside {
  %s = step.scalar "s" = 1.0 over group
  step.define @f(%x: f64) {
    // expected-error @+1 {{'step.mul' op reads in 'step.define' what is no argument, hyper-parameter, option or constant}}
    %y = step.mul %x, %s : f64
    step.yield %y : f64
  }
}

// -----

step.optimizer @outside {
  %n = step.option "n" = 3
  step.define @f(%x: f64) {
    // expected-error @+1 {{'step.powi' op reads in 'step.define' what is no argument, hyper-parameter, option or constant}}
    %y = step.powi %x, %n
    step.yield %y : f64
  }
}

// -----

step.optimizer @unknown {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.call' op calls 'f', which no 'step.define' makes}}
    %x = step.call @f() : () -> f64
    step.return %p
  }
}

// -----

// Each has its own.
step.fragment @owner {
  %lr = step.hyper "lr" = 1.0
  step.define @f() {
    step.yield %lr : f64
  }
  step.rule @any(%g: grad[*]) {
    step.return %g
  }
}
step.optimizer @unknown {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.call' op calls 'f', which no 'step.define' makes}}
    %x = step.call @f() : () -> f64
    step.return %p
  }
}

// -----

step.optimizer @itself {
  step.define @f(%x: f64) {
    // expected-error @+1 {{'step.call' op calls 'f' before its definition ends; none calls itself, or what stands behind it}}
    %y = step.call @f(%x) : (f64) -> f64
    step.yield %y : f64
  }
}

// -----

step.optimizer @each_other {
  step.define @f(%x: f64) {
    // expected-error @+1 {{'step.call' op calls 'g' before its definition ends; none calls itself, or what stands behind it}}
    %y = step.call @g(%x) : (f64) -> f64
    step.yield %y : f64
  }
  step.define @g(%x: f64) {
    %y = step.call @f(%x) : (f64) -> f64
    step.yield %y : f64
  }
}

// -----

step.optimizer @number {
  step.define @f(%x: f64, %t: i64) {
    step.yield %x : f64
  }
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.call' op passes ('i64') to 'f', which takes ('f64', 'i64')}}
    %x = step.call @f(%t) : (i64) -> f64
    step.return %p
  }
}

// -----

step.optimizer @results {
  step.define @f(%x: f64) {
    step.yield %x : f64
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %one = step.constant 1.0
    // expected-error @+1 {{'step.call' op expects ('f64', 'i1') of 'f', which yields ('f64')}}
    %x, %y = step.call @f(%one) : (f64) -> (f64, i1)
    step.return %p
  }
}

// -----

step.optimizer @tensor {
  step.define @f(%x: f64) {
    step.yield %x : f64
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.call' op passes ('!step.tensor<*>') to 'f', which takes ('f64')}}
    %x = step.call @f(%g) : ([*]) -> f64
    step.return %p
  }
}

// -----

// Each calls the one before it twice: 2^14 operations of thirteen definitions.
step.optimizer @many {
  step.define @f0(%x: f64) {
    step.yield %x : f64
  }
  step.define @f1(%x: f64) {
    %y = step.call @f0(%x) : (f64) -> f64
    %z = step.call @f0(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f2(%x: f64) {
    %y = step.call @f1(%x) : (f64) -> f64
    %z = step.call @f1(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f3(%x: f64) {
    %y = step.call @f2(%x) : (f64) -> f64
    %z = step.call @f2(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f4(%x: f64) {
    %y = step.call @f3(%x) : (f64) -> f64
    %z = step.call @f3(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f5(%x: f64) {
    %y = step.call @f4(%x) : (f64) -> f64
    %z = step.call @f4(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f6(%x: f64) {
    %y = step.call @f5(%x) : (f64) -> f64
    %z = step.call @f5(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f7(%x: f64) {
    %y = step.call @f6(%x) : (f64) -> f64
    %z = step.call @f6(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f8(%x: f64) {
    %y = step.call @f7(%x) : (f64) -> f64
    %z = step.call @f7(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f9(%x: f64) {
    %y = step.call @f8(%x) : (f64) -> f64
    %z = step.call @f8(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f10(%x: f64) {
    %y = step.call @f9(%x) : (f64) -> f64
    %z = step.call @f9(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f11(%x: f64) {
    %y = step.call @f10(%x) : (f64) -> f64
    %z = step.call @f10(%y) : (f64) -> f64
    step.yield %z : f64
  }
  step.define @f12(%x: f64) {
    %y = step.call @f11(%x) : (f64) -> f64
    // expected-error @+1 {{'step.call' op is one of calls that make 16381 operations, the most are 10000}}
    %z = step.call @f11(%y) : (f64) -> f64
    step.yield %z : f64
  }
}
