// Tests what is refused of what is done again, or in some steps.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

//===----------------------------------------------------------------------===//
// step.repeat
//===----------------------------------------------------------------------===//

step.optimizer @negative {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.repeat' op attribute 'times' failed to satisfy constraint: 64-bit signless integer attribute whose value is non-negative}}
    %x = step.repeat -1 (%a: [*] = %g) {
      step.yield %a : [*]
    }
    step.return %p
  }
}

// -----

step.optimizer @nothing {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.repeat' op gives no value}}
    step.repeat 2 () {
      step.yield
    }
    step.return %p
  }
}

// -----

step.optimizer @types {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.repeat' op yields ('!step.tensor<m, n>') for ('!step.tensor<n, m>')}}
    %x = step.repeat 2 (%a: [n, m] = %g) {
      %b = step.transpose %a : [n, m]
      step.yield %b : [m, n]
    }
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @open {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.repeat' op does not end in 'step.yield'}}
    %x = step.repeat 2 (%a: [*] = %g) {
      "test.end"() : () -> ()
    }
    step.return %p
  }
}

// -----

// What an operation says of its values is checked too.
step.optimizer @generic {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.repeat' op makes ('!step.tensor<*>') of ('!step.tensor<*>'), and its body takes ()}}
    %x = "step.repeat"(%g) <{times = 2}> ({
      "step.yield"(%g) : (!step.tensor<*>) -> ()
    }) : (!step.tensor<*>) -> !step.tensor<*>
    step.return %p
  }
}

// -----

step.optimizer @effect {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %x = step.repeat 2 (%a: [*] = %g) {
      // expected-error @+1 {{'test.op' op is not allowed in 'step.repeat', only operations that compute a value, calls and repetitions}}
      "test.op"() : () -> ()
      step.yield %a : [*]
    }
    step.return %p
  }
}

// -----

step.optimizer @inserted {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %f: fresh) {
    %x = step.repeat 2 (%a: [n, m] = %g) {
      // expected-error @+1 {{'step.sum' op is not allowed in 'step.repeat', only operations that compute a value, calls and repetitions}}
      %s = step.sum %a unless %f : [n, m]
      %b = step.mul %a, %s : [n, m], f64
      step.yield %b : [n, m]
    }
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @reassociable {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    %x = step.repeat 2 (%a: [n, m] = %g) {
      %aa = step.mul %a, %a : [n, m]
      // expected-error @+1 {{'step.mean' op is 'reassociable' in 'step.repeat', which is for what a rule itself does}}
      %s = step.mean %aa reassociable : [n, m]
      %b = step.mul %a, %s : [n, m], f64
      step.yield %b : [n, m]
    }
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @returned {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %x = step.repeat 2 (%a: [*] = %g) {
      %b = step.neg %a : [*]
      step.yield %b : [*]
    }
    // expected-error @+1 {{'step.return' op returns for 'param' what a 'step.repeat' gives, and not a value that an operation of the rule makes}}
    step.return %x
  }
}

// -----

step.optimizer @outside {
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
  // expected-error @+1 {{'step.repeat' op expects parent op to be one of 'step.rule, step.define, step.repeat, step.when'}}
  "step.repeat"() <{times = 2}> ({
    "step.yield"() : () -> ()
  }) : () -> ()
}

// -----

step.optimizer @read {
  %steps = step.option "steps" = 3
  step.rule @any(%p: param[*], %g: grad[*]) {
    %x = step.repeat 2 (%a: [*] = %g) {
      // expected-error @+1 {{'step.to_f64' op reads option 'steps', an integer, which only conditions and dims can}}
      %s = step.to_f64 %steps
      %b = step.mul %a, %s : [*], f64
      step.yield %b : [*]
    }
    step.return %p
  }
}

// -----

// What a definition repeats reads no more than it may.
step.optimizer @defined {
  %scale = step.scalar "scale" = 1.0 over group
  step.define @f(%x: [n]) {
    %y = step.repeat 2 (%a: [n] = %x) {
      // expected-error @+1 {{'step.mul' op reads in 'step.define' what is no argument, hyper-parameter, option or constant}}
      %b = step.mul %a, %scale : [n], f64
      step.yield %b : [n]
    }
    step.yield %y : [n]
  }
}

// -----

step.optimizer @many {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.repeat' op makes more than 10000 operations with what stands before it}}
    %x = step.repeat 5001 (%a: [*] = %g) {
      %b = step.neg %a : [*]
      step.yield %b : [*]
    }
    step.return %p
  }
}

// -----

step.optimizer @nested {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %x = step.repeat 100 (%a: [*] = %g) {
      // expected-error @+1 {{'step.repeat' op makes more than 10000 operations with what stands before it}}
      %b = step.repeat 50 (%c: [*] = %a) {
        %d = step.neg %c : [*]
        step.yield %d : [*]
      }
      step.yield %b : [*]
    }
    step.return %p
  }
}

// -----

step.optimizer @called {
  step.define @f(%x: [*]) {
    %a = step.neg %x : [*]
    %b = step.neg %a : [*]
    step.yield %b : [*]
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %x = step.repeat 2001 (%a: [*] = %g) {
      // expected-error @+1 {{'step.call' op is one of calls that make 10005 operations, the most are 10000}}
      %b = step.call @f(%a) : ([*]) -> [*]
      step.yield %b : [*]
    }
    step.return %p
  }
}

// -----

//===----------------------------------------------------------------------===//
// step.when
//===----------------------------------------------------------------------===//

step.optimizer @of_a_tensor {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %s = step.sum %g : [*]
    %zero = step.constant 0.0
    %due = step.compare lt, %s, %zero : f64
    // expected-error @+1 {{'step.when' op has a condition that is made of more than counts, fresh flags, hyper-parameters, options and constants}}
    %x = step.when %due, %g : [*] {
      step.yield %p : [*]
    }
    %p1 = step.sub %p, %x : [*]
    step.return %p1
  }
}

// -----

step.optimizer @of_a_round {
  %norm = step.statistic "norm" sum over model
  %late = step.scalars over model {
    %one = step.constant 1.0
    %more = step.compare gt, %norm, %one : f64
    step.yield %more : i1
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %s = step.sum %g : [*]
    step.contribute %norm, %s
    // expected-error @+1 {{'step.when' op has a condition that is made of more than counts, fresh flags, hyper-parameters, options and constants}}
    %x = step.when %late, %g : [*] {
      step.yield %p : [*]
    }
    %p1 = step.sub %p, %x : [*]
    step.return %p1
  }
}

// -----

step.optimizer @of_a_call {
  step.define @size(%x: [n]) {
    %sum = step.sum %x : [n]
    step.yield %sum : f64
  }
  step.define @later(%t: i64, %size: f64) {
    %number = step.to_f64 %t
    %due = step.compare lt, %number, %size : f64
    step.yield %due : i1
  }
  step.rule @any(%p: param[n], %g: grad[n], %t: count) {
    %size = step.call @size(%g) : ([n]) -> f64
    %due = step.call @later(%t, %size) : (i64, f64) -> i1
    // expected-error @+1 {{'step.when' op has a condition that is made of more than counts, fresh flags, hyper-parameters, options and constants}}
    %x = step.when %due, %g : [n] {
      step.yield %p : [n]
    }
    %p1 = step.sub %p, %x : [n]
    step.return %p1 : [n]
  }
}

// -----

step.optimizer @types {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %f: fresh) {
    // expected-error @+1 {{'step.when' op yields ('!step.tensor<m, n>') for ('!step.tensor<n, m>')}}
    %x = step.when %f, %g : [n, m] {
      %b = step.transpose %g : [n, m]
      step.yield %b : [m, n]
    }
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @generic {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %f: fresh) {
    // expected-error @+1 {{'step.when' op makes ('f64') in place of ('!step.tensor<n, m>')}}
    %x = "step.when"(%f, %g) ({
      "step.yield"(%g) : (!step.tensor<n, m>) -> ()
    }) : (i1, !step.tensor<n, m>) -> f64
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @arguments {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %f: fresh) {
    // expected-error @+1 {{'step.when' op has a body that takes 1 arguments}}
    %x = "step.when"(%f, %g) ({
    ^bb0(%a: f64):
      "step.yield"(%g) : (!step.tensor<n, m>) -> ()
    }) : (i1, !step.tensor<n, m>) -> !step.tensor<n, m>
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @nested {
  step.rule @any(%p: param[*], %g: grad[*], %f: fresh) {
    %x = step.when %f, %g : [*] {
      // expected-error @+1 {{'step.when' op expects parent op 'step.rule'}}
      %y = step.when %f, %g : [*] {
        step.yield %p : [*]
      }
      step.yield %y : [*]
    }
    step.return %p
  }
}
