// RUN: stepc-opt --step-verify-bound --split-input-file --verify-diagnostics %s

step.optimizer @fine {
  step.rule @any(%p: param[*] as bf16, %g: grad[*] as bf16) variant <"any", {}, f32> {
    %p1 = step.sub %p, %g : [*]
    %r = step.round %p1 to bf16 : [*]
    step.return %r
  }
}

// -----

step.optimizer @unbound {
  // expected-error @+1 {{'step.rule' op is not bound}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @wide {
  // expected-error @+1 {{'step.rule' op stores 'm' as 'f64', wider than the compute type 'f32'}}
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32, %m: state "m"[*] as f64) variant <"any", {}, f32> {
    step.return %p, %m
  }
}

// -----

step.optimizer @guarded {
  %keep = step.option "keep" = true
  // expected-error @+1 {{'step.rule' op still guards state 'm' when bound}}
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32, %m: state "m"[*] if %keep as f32) variant <"any", {keep = true}, f32> {
    step.return %p, %m
  }
}

// -----

step.optimizer @stored {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %p1 = step.sub %p, %g : [*]
    // expected-error @+1 {{'step.stored' op is left in a bound rule}}
    %s = step.stored %p1 as [0] : [*]
    step.return %s
  }
}

// -----

// What the define stage makes other operations of.
step.optimizer @called {
  step.define @f(%x: [*]) {
    step.yield %x : [*]
  }
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.call' op is left in a bound rule}}
    %s = step.call @f(%g) : ([*]) -> [*]
    %p1 = step.neg %s : [*]
    step.return %p1
  }
}

// -----

step.optimizer @repeated {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.repeat' op is left in a bound rule}}
    %x = step.repeat 2 (%a: [*] = %g) {
      step.yield %a : [*]
    }
    step.return %p
  }
}

// -----

step.optimizer @sometimes {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32, %f: fresh) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.when' op is left in a bound rule}}
    %x = step.when %f, %g : [*] {
      step.yield %p : [*]
    }
    step.return %p
  }
}

// -----

step.optimizer @identity {
  step.rule @any(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.identity' op is left in a bound rule}}
    %x = step.identity : [n, n]
    step.return %p : [n, m]
  }
}

// -----

step.optimizer @option {
  %flip = step.option "flip" = false
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {flip = false}, f32> {
    // expected-error @+1 {{'step.select' op uses an option in a bound rule}}
    %d = step.select %flip, %p, %g : [*]
    step.return %d
  }
}

// -----

step.optimizer @halves {
  // expected-error @+1 {{'step.rule' op stores 'r' as 'i16', and returns no lower half for it}}
  step.rule @any(%p: param[*] as bf16, %g: grad[*] as bf16, %r: state "r"[*] as i16) variant <"any", {}, f32> {
    %p1 = step.upper_half %p : [*]
    step.return %p1, %g
  }
}
