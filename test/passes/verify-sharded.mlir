// RUN: stepc-opt --step-verify-sharded --split-input-file --verify-diagnostics %s

step.optimizer @fine {
  %sum = step.statistic "sum" sum over model
  step.rule @any(%p: param[n] as f32, %g: grad[n] as f32) variant <"any", {}, f32, <{n = ["dp"]}>> {
    %part = step.sum %g : [n]
    step.contribute %sum, %part
    %whole = step.sum %g across [dp] : [n]
    %p1 = step.mul %p, %whole : [n], f64
    step.return %p1 : [n]
  }
}

// -----

step.optimizer @forgotten {
  step.rule @any(%p: param[n] as f32, %g: grad[n] as f32) variant <"any", {}, f32, <{n = ["dp"]}>> {
    // expected-error @+1 {{'step.sum' op has a rank's part of the sum over dim 'n' as its result, which is used as if it were the whole}}
    %part = step.sum %g : [n]
    %p1 = step.mul %p, %part : [n], f64
    step.return %p1 : [n]
  }
}

// -----

// A part of a sum is no part of a maximum.
step.optimizer @kinds {
  %most = step.statistic "most" amax over model
  step.rule @any(%p: param[n] as f32, %g: grad[n] as f32) variant <"any", {}, f32, <{n = ["dp"]}>> {
    // expected-error @+1 {{'step.sum' op has a rank's part of the sum over dim 'n' as its result, which is used as if it were the whole}}
    %part = step.sum %g : [n]
    step.contribute %most, %part
    step.return %p : [n]
  }
}

// -----

step.optimizer @twice {
  step.rule @any(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"any", {}, f32, <{n = ["dp"]}>> {
    // expected-error @+1 {{'step.sum' op is across ranks that all have what it reduces}}
    %row = step.sum %g over [m] across [dp] : [n, m]
    %p1 = step.mul %p, %row : [n, m], [n, 1]
    step.return %p1 : [n, m]
  }
}

// -----

step.optimizer @wrong {
  step.rule @any(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"any", {}, f32, <{m = ["tp"], n = ["dp"]}>> {
    // expected-error @+1 {{'step.sum' op is across ["dp"], where the layout is #step.layout<{m = ["tp"], n = ["dp"]}>}}
    %row = step.sum %g over [m] across [dp] : [n, m]
    %p1 = step.mul %p, %row : [n, m], [n, 1]
    step.return %p1 : [n, m]
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

step.optimizer @unsummed {
  // expected-error @+1 {{'step.rule' op has no 'step.all_reduce' over ["dp"]}}
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32 entry <whole = [], partial = ["dp"], gradient = f32, wire = f32>> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
}

// -----

step.optimizer @apart {
  // expected-error @+1 {{'step.rule' op has no 'step.all_gather' over ["dp"]}}
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}> entry <whole = ["dp"], partial = [], gradient = f32>> {
    %0 = step.all_slice %g over ["dp"] of f32 : [*]
    %p1 = step.sub %p, %0 : [*]
    step.return %p1
  }
}

// -----

step.optimizer @needless {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.all_reduce' op is not what brings the gradient of the variant, or takes its param, there}}
    %0 = step.all_reduce %g over ["dp"] of f32 wire f32 : [*]
    %p1 = step.sub %p, %0 : [*]
    step.return %p1
  }
}
