// Tests what is refused of types and dims, in their short and long forms.
// RUN: stepc-opt %s -split-input-file -verify-diagnostics -allow-unregistered-dialect

// expected-error @+1 {{a shape has at least one dim; '*' is any rank}}
"test.op"() : () -> !step.tensor<>

// -----

// expected-error @+1 {{a shape has at least one dim; '*' is any rank}}
"test.op"() : () -> !step.mask<>

// -----

// expected-error @+1 {{dim '*' stands for a whole shape and cannot be one of several: 2 dims}}
"test.op"() : () -> !step.tensor<n, *>

// -----

// expected-error @+1 {{dim '*' stands for a whole shape and cannot be one of several: 3 dims}}
"test.op"() : () -> !step.mask<*, *, n>

// -----

// expected-error @+1 {{buffer of 'index', which is none of f32, f64, bf16, f16, i16, i64}}
"test.op"() : () -> !step.buffer<[n], index>

// -----

// Only an extent of one broadcasts; any other one has no meaning.
// expected-error @+1 {{dim '2' is neither a name, nor 1, nor *}}
"test.op"() : () -> !step.tensor<2>

// -----

// expected-error @+1 {{dim '-1' is neither a name, nor 1, nor *}}
"test.op"() : () -> !step.tensor<n, -1>

// -----

// expected-error @+1 {{dim 'n.x' is neither a name, nor 1, nor *}}
"test.op"() : () -> !step.mask<n.x>

// -----

// expected-error @+1 {{expected a name, 1 or * as a dim}}
"test.op"() : () -> !step.tensor<"n">

// -----

// expected-error @+1 {{expected a name, 1 or * as a dim}}
"test.op"() : () -> !step.tensor<n,>

// -----

// expected-error @+1 {{expected a name, 1 or * as a dim}}
"test.op"() : () -> !step.tensor<?>

// -----

// A number in another base would not print as it was written.
// expected-error @+1 {{expected '>'}}
"test.op"() : () -> !step.tensor<0x1>

// -----

// expected-error @+1 {{integer value too large}}
"test.op"() : () -> !step.tensor<123456789012345678901234567890>

// -----

// expected-error @+1 {{expected '>'}}
"test.op"() : () -> !step.tensor<n m>

// -----

step.optimizer @short {
  // expected-error @+1 {{expected a name, 1 or * as a dim}}
  step.rule @any(%p: param[], %g: grad[]) {
    step.return %p
  }
}

// -----

step.optimizer @short {
  // expected-error @+1 {{dim '7' is neither a name, nor 1, nor *}}
  step.rule @any(%p: param[7], %g: grad[7]) {
    step.return %p
  }
}

// -----

step.optimizer @short {
  // expected-error @+1 {{expected ']'}}
  step.rule @any(%p: param[**], %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @short {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{expected '['}}
    %0 = step.neg %p : mask
    step.return %p
  }
}

// -----

step.optimizer @short {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{dim '*' stands for a whole shape and cannot be one of several: 2 dims}}
    %0 = step.select %p, %p, %p : mask[*, n], [*]
    step.return %p
  }
}
