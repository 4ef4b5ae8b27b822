// Tests what is said of a definition's syntax: in the words of the language, and
// not in those of the parser, which knows no more than that it looked for an
// operation.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{'{' is never closed}}
step.optimizer @unclosed {
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %g
  }

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.powi' is written without types, found ':'}}
    %b = step.powi %lr, %t : f64
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.sum' is written without its result's type, found '->'}}
    %b = step.sum %g : [*] -> f64
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{expected the end of 'step.add', found ']]'}}
    %b = step.add %g, %g : [*] ]]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{expected an operation, as in %x = step.add %a, %b : [*], found '2.0'}}
    %b = 2.0
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.add' needs a type here, as [*], [n, m], mask[*], f64 or i1}}
    %b = step.add %g, %g :
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.add' needs one more operand, behind ','}}
    %b = step.add %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{expected a value, as %x, found '2.0'; a number is a value of step.constant}}
    %b = step.add %g, 2.0 : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'add' is written step.add}}
    %b = add %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.mull' is no operation; the nearest is step.mul}}
    %b = mull %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.quaternion' is no operation}}
    %b = step.quaternion %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.max' is no operation; it is written step.maximum}}
    %b = step.max %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.min' is no operation; it is written step.minimum}}
    %b = step.min %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.where' is no operation; it is written step.select CONDITION, A, B}}
    %b = step.where %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.clamp' is no operation; it is written step.maximum and step.minimum}}
    %b = step.clamp %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.square' is no operation; it is written step.mul %x, %x}}
    %b = step.square %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.rsqrt' is no operation; it is written step.sqrt and step.div}}
    %b = step.rsqrt %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.norm' is no operation; it is written step.mul, step.sum and step.sqrt}}
    %b = step.norm %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.number' is no operation; it is written step.constant 0.5}}
    %b = step.number %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.gt' is no operation; it is written step.compare lt, %a, %b}}
    %b = step.gt %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.exp2' is no operation; it is written step.pow}}
    %b = step.exp2 %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @syntax {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // expected-error @+1 {{'step.count' is no operation; it is written an argument of the rule}}
    %b = step.count %g, %g : [*]
    step.return %g
  }
}

// -----

step.optimizer @select {
  %on = step.option "on" = false
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{an i1 is a condition, whose type is left out}}
    %0 = step.select %on, %p, %g : i1, [*], [*]
    step.return %0
  }
}

// -----

step.optimizer @select {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.compare lt, %p, %g : [*]
    // expected-error @+1 {{'step.select' needs one more operand, behind ','}}
    %1 = step.select %0, %p, %g : mask[*]
    step.return %1
  }
}
