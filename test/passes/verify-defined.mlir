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

step.optimizer @bound {
  // expected-error @+1 {{'step.rule' op is bound before the bind stage}}
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    step.return %p
  }
}
