// Tests what is refused of dims that a rule makes of others.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics

step.optimizer @nothing {
  // expected-error @+1 {{dim 'r' follows from no dim of the param}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim r = 4 {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @below {
  // expected-error @+1 {{dim 'r' has a number below 1}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim r = min 0, n {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @below {
  // expected-error @+1 {{dim 'r' has a number below 1}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim r = n / 0 {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @numbers {
  // expected-error @+1 {{a dim is the least of two numbers}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim r = min 4, n, 5 {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @options {
  %rank = step.option "rank" = 4
  // expected-error @+1 {{a dim is the least of two options}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim r = min %rank, n, %rank {
    step.return %p : [n, m]
  }
}

// -----

step.fragment @fragment {
  // expected-error @+1 {{'step.rule' op has dims of its own in a fragment}}
  step.rule @any(%g: grad[*]) dim r = n {
    step.return %g
  }
}

// -----

step.optimizer @many {
  // expected-error @+1 {{'step.rule' op has 4 dims that follow from others, the most are 3}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim a = n dim b = n dim c = n dim d = n {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @known {
  // expected-error @+1 {{'step.rule' op has dim 'm' twice}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim m = n {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @twice {
  // expected-error @+1 {{'step.rule' op has dim 'r' twice}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim r = n dim r = m {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @leading {
  // expected-error @+1 {{'step.rule' op has dim 'r' of '...b', which is no single dim of the param}}
  step.rule @any(%p: param[...b, m], %g: grad[...b, m]) dim r = ...b {
    step.return %p : [...b, m]
  }
}

// -----

step.optimizer @other {
  // expected-error @+1 {{'step.rule' op has dim 'r' of 'k', which is no single dim of the param}}
  step.rule @any(%p: param[n, m], %g: grad[n, m]) dim r = min n, k {
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @elements {
  // expected-error @+1 {{'step.rule' op has dim 'r' of '*', which is no single dim of the param}}
  step.rule @any(%p: param[*], %g: grad[*]) dim r = * {
    step.return %p
  }
}

// -----

step.optimizer @operands {
  %rank = step.option "rank" = 4
  // expected-error @+1 {{'step.rule' op has 0 dims of options and 1 operands for them}}
  "step.rule"(%rank) <{bound_dims = [#step.bound_dim<name = "r", of = ["n"]>], operandSegmentSizes = array<i32: 0, 0, 1>, roles = [#step.role<kind = param, name = "">, #step.role<kind = grad, name = "">], sym_name = "any"}> ({
  ^bb0(%p: !step.tensor<n>, %g: !step.tensor<n>):
    step.return %p : [n]
  }) : (i64) -> ()
}

// -----

step.optimizer @no_operand {
  // expected-error @+1 {{'step.rule' op has dim 'r' of something that is not an integer option}}
  "step.rule"() <{bound_dims = [#step.bound_dim<name = "r", of = ["n"], optional = true>], operandSegmentSizes = array<i32: 0, 0, 0>, roles = [#step.role<kind = param, name = "">, #step.role<kind = grad, name = "">], sym_name = "any"}> ({
  ^bb0(%p: !step.tensor<n>, %g: !step.tensor<n>):
    step.return %p : [n]
  }) : () -> ()
}

// -----

step.optimizer @states {
  // expected-error @+1 {{'step.rule' op state 's' has dim 'q', which the param does not have}}
  step.rule @any(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, q]) dim r = n {
    step.return %p, %s : [n, m], [n, q]
  }
}
