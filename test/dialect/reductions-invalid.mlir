// Tests what is refused of reductions, and of dims that stand for leading dims.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

// expected-error @+1 {{dim '...b' stands for leading dims and can only be first}}
"test.op"() : () -> !step.tensor<n, ...b>

// -----

// expected-error @+1 {{dim '...b' stands for leading dims and can only be first}}
"test.op"() : () -> !step.mask<...a, ...b>

// -----

// expected-error @+1 {{dim '*' stands for a whole shape and cannot be one of several: 2 dims}}
"test.op"() : () -> !step.tensor<...b, *>

// -----

// expected-error @+1 {{dim '...n.x' is neither a name, nor 1, nor *}}
"test.op"() : () -> !step.tensor<...n.x>

// -----

// expected-error @+1 {{expected a name, 1 or * as a dim}}
"test.op"() : () -> !step.tensor<...1>

// -----

// It broadcasts with nothing: how many dims it stands for is not known.
step.optimizer @batch {
  step.rule @any(%p: param[...b, n], %g: grad[...b, n], %s: state "s"[1, n]) {
    // expected-error @+1 {{operands do not broadcast: '!step.tensor<...b, n>', '!step.tensor<1, n>'}}
    %0 = step.add %p, %s : [...b, n], [1, n]
    step.return %0, %s : [...b, n], [1, n]
  }
}

// -----

step.optimizer @batch {
  step.rule @any(%p: param[...b, n], %g: grad[...b, n], %s: state "s"[1, n]) {
    // expected-error @+1 {{operands do not broadcast: '!step.tensor<1, n>', '!step.tensor<...b, n>'}}
    %0 = step.add %s, %p : [1, n], [...b, n]
    step.return %0, %s : [...b, n], [1, n]
  }
}

// -----

step.optimizer @over {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.sum' op reduces over no dim; without 'over' it reduces the whole tensor}}
    %0 = step.sum %g over [] : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @over {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.mean' op reduces over dim 'k', which its operand does not have}}
    %0 = step.mean %g over [n, k] : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @over {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.amax' op reduces over dim 'm' twice}}
    %0 = step.amax %g over [m, m] : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @over {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.sum' op reduces over '*', which is not the name of one dim}}
    %0 = step.sum %g over [*] : [*]
    step.return %p
  }
}

// -----

step.optimizer @over {
  step.rule @any(%p: param[...b, n], %g: grad[...b, n]) {
    // expected-error @+1 {{'step.sum' op reduces over '...b', which is not the name of one dim}}
    %0 = step.sum %g over [...b, n] : [...b, n]
    step.return %p : [...b, n]
  }
}

// -----

step.optimizer @over {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, 1]) {
    // expected-error @+1 {{'step.sum' op reduces over '1', which is not the name of one dim}}
    %0 = step.sum %s over [1] : [n, 1]
    step.return %p, %s : [n, m], [n, 1]
  }
}

// -----

step.optimizer @over {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{expected '['}}
    %0 = step.sum %g over n : [n, m]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @operand {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.sum' op operand #0 must be variadic of a tensor with symbolic dims, but got 'f64'}}
    %0 = step.sum %lr : f64
    step.return %p
  }
}

// -----

step.optimizer @operand {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.is_finite %g : [*]
    // expected-error @+1 {{'step.amax' op operand #0 must be variadic of a tensor with symbolic dims, but got '!step.mask<*>'}}
    %1 = step.amax %0 : mask[*]
    step.return %p
  }
}

// -----

step.optimizer @result {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+2 {{'step.sum' op failed to infer returned types}}
    // expected-error @+1 {{'step.sum' op inferred type(s) '!step.tensor<n, 1>' are incompatible with return type(s) of operation 'f64'}}
    %0 = "step.sum"(%g) <{operandSegmentSizes = array<i32: 1, 0>, over = ["m"]}> : (!step.tensor<n, m>) -> f64
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @logical {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.not' op operand #0 must be a mask or an i1, but got '!step.tensor<*>'}}
    %0 = step.not %g : [*]
    step.return %p
  }
}

// -----

step.optimizer @free {
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, 1]) {
    // expected-error @+1 {{'step.sum' op is 'reassociable', which only a sum or a mean of one whole tensor can be}}
    %0 = step.sum %g over [m] reassociable : [n, m]
    step.return %p, %0 : [n, m], [n, 1]
  }
}

// -----

step.optimizer @free {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.amax' op is 'reassociable', which only a sum or a mean of one whole tensor can be}}
    %0 = step.amax %g reassociable : [*]
    step.return %p
  }
}

// -----

step.optimizer @free {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.mean' op is 'reassociable', which only a sum or a mean of one whole tensor can be}}
    %0 = step.mean %g, %p reassociable : [*]
    step.return %p
  }
}

// -----

step.optimizer @left_out {
  %o = step.option "o" = false
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, 1]) {
    // expected-error @+1 {{'step.sum' op reduces dims, but only the reduction of a whole tensor can be left out by 'unless'}}
    %0 = step.sum %g over [m] unless %o : [n, m]
    step.return %p, %0 : [n, m], [n, 1]
  }
}

// -----

step.optimizer @none {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{reduces no tensor}}
    %0 = step.sum : [*]
    step.return %p
  }
}

// -----

step.optimizer @types {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "r"[n, 1]) {
    // expected-error @+1 {{'step.sum' op reduces tensors of different types together: '!step.tensor<n, m>', '!step.tensor<n, 1>'}}
    %0 = "step.sum"(%g, %r) <{operandSegmentSizes = array<i32: 2, 0>}> : (!step.tensor<n, m>, !step.tensor<n, 1>) -> f64
    step.return %p, %r : [n, m], [n, 1]
  }
}
