// RUN: stepc-opt --step-verify-defined --split-input-file --verify-diagnostics %s

step.optimizer @fine {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    %p1 = step.sub %p, %g : [*]
    %s = step.stored %p1 as [0] : [*]
    step.return %s, %m
  }
}

// -----

step.optimizer @unmarked {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    %m1 = step.add %m, %g : [*]
    // expected-error @+1 {{'step.return' op stores a value for 'm' that is not marked by 'step.stored'}}
    step.return %p, %m1
  }
}

// -----

step.optimizer @inserted {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.broadcast' op is no operation of a source definition}}
    %r = step.broadcast %p : [*] to [*]
    step.return %r
  }
}

// -----

step.optimizer @across {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.sum' op is no operation of a source definition}}
    %s = step.sum %p across [tp] : [*]
    step.return %p
  }
}

// -----

step.optimizer @bound {
  // expected-error @+1 {{'step.rule' op is bound before the bind stage}}
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    step.return %p
  }
}

// -----

step.optimizer @wrong_role {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    %x = step.add %m, %g : [*]
    // expected-error @+1 {{'step.stored' op is marked for 'param', for which the rule returns another value}}
    %s = step.stored %x as [0, 2] : [*]
    step.return %p, %s
  }
}

// -----

step.optimizer @other_role {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    %x = step.add %m, %g : [*]
    %s = step.stored %x as [0] : [*]
    // expected-error @+1 {{'step.return' op stores a value for 'm' that is not marked by 'step.stored'}}
    step.return %s, %s
  }
}

// -----

step.optimizer @scheduled {
  // expected-error @+1 {{'step.program' op is scheduled before the bind stage}}
  step.program @program(%p: param[*] as f32) variant <"any", {}, f32> elementwise {
    step.cohort_scalars @scalars {
      step.yield
    }
    step.traverse @phase0 over [*] reads (%x = %p : <[*], f32>) writes (%p : <[*], f32>) {
      step.yield %x : f32
    }
  }
}

// -----

step.optimizer @left_out {
  step.rule @any(%p: param[*], %g: grad[*], %f: fresh) {
    // expected-error @+1 {{'step.sum' op is no operation of a source definition}}
    %s = step.sum %g unless %f : [*]
    step.return %p
  }
}

// -----

step.optimizer @reassociable {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.sum' op is left after 'step-inline-calls', 'step-unroll-repeats', 'step-flatten-whens', 'step-expand-identities' and 'step-reassociate-means'}}
    %s = step.sum %g reassociable : [*]
    step.return %p
  }
}

// -----

step.optimizer @called {
  %lr = step.hyper "lr" = 1.0
  step.define @f() {
    step.yield %lr : f64
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.call' op is left after 'step-inline-calls', 'step-unroll-repeats', 'step-flatten-whens', 'step-expand-identities' and 'step-reassociate-means'}}
    %s = step.call @f() : () -> f64
    step.return %p
  }
}

// -----

step.optimizer @repeated {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.repeat' op is left after 'step-inline-calls', 'step-unroll-repeats', 'step-flatten-whens', 'step-expand-identities' and 'step-reassociate-means'}}
    %x = step.repeat 2 (%a: [*] = %g) {
      step.yield %a : [*]
    }
    step.return %p
  }
}

// -----

step.optimizer @sometimes {
  step.rule @any(%p: param[*], %g: grad[*], %f: fresh) {
    // expected-error @+1 {{'step.when' op is left after 'step-inline-calls', 'step-unroll-repeats', 'step-flatten-whens', 'step-expand-identities' and 'step-reassociate-means'}}
    %x = step.when %f, %g : [*] {
      step.yield %p : [*]
    }
    step.return %p
  }
}

// -----

// What passes leave out, no source says.
step.optimizer @skipped {
  step.rule @any(%p: param[n, n], %g: grad[n, n], %f: fresh) {
    // expected-error @+1 {{'step.eigh' op is no operation of a source definition}}
    %x = step.eigh %g unless %f : [n, n]
    step.return %p : [n, n]
  }
}

// -----

step.optimizer @identity {
  step.rule @any(%p: param[n, m], %g: grad[n, m]) {
    // expected-error @+1 {{'step.identity' op is left after 'step-inline-calls', 'step-unroll-repeats', 'step-flatten-whens', 'step-expand-identities' and 'step-reassociate-means'}}
    %x = step.identity : [n, n]
    step.return %p : [n, m]
  }
}
