// RUN: stepc-opt --split-input-file --verify-diagnostics %s

step.optimizer @o {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.all_reduce' op is over no axis}}
    %0 = step.all_reduce %g over [] of f32 wire f32 : [*]
    step.return %p
  }
}

// -----

step.optimizer @o {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.reduce_scatter' op adds up and has no wire}}
    %0 = step.reduce_scatter %g over ["dp"] of f32 : [*]
    step.return %p
  }
}

// -----

step.optimizer @o {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.all_slice' op adds nothing up and has a wire}}
    %0 = step.all_slice %g over ["dp"] of f32 wire f32 : [*]
    step.return %p
  }
}

// -----

step.optimizer @o {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.all_reduce' op is not of the gradient}}
    %0 = step.all_reduce %p over ["dp"] of f32 wire f32 : [*]
    step.return %0
  }
}

// -----

step.optimizer @o {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // expected-error @+1 {{'step.all_gather' op is used for something else than the param}}
    %0 = step.all_gather %p over ["dp"] : [*]
    %p1 = step.sub %0, %g : [*]
    step.return %p1
  }
}

// -----

step.optimizer @o {
  step.program @any(%param: param[*] as f32, %grad: grad[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @any_scalars {
      step.yield
    }
    %1 = step.traverse @any_phase0 over [*] reads (%g = %grad : <[*], f32>) writes (%param : <[*], f32>) {
      step.yield %g : f32
    }
    // expected-error @+1 {{'step.all_gather' op is not of the param}}
    %2 = step.all_gather %grad over ["dp"] : !step.buffer<[*], f32>
  }
}

// -----

step.optimizer @o {
  step.program @any(%param: param[*] as f32, %grad: grad[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @any_scalars {
      step.yield
    }
    // expected-error @+1 {{'step.all_reduce' op brings a gradient behind what needs it}}
    %0 = step.all_reduce %grad over ["dp"] of f32 wire f32 : !step.buffer<[*], f32>
    %1 = step.traverse @any_phase0 over [*] reads (%g = %0 : <[*], f32>) writes (%param : <[*], f32>) {
      step.yield %g : f32
    }
  }
}

// -----

step.optimizer @o {
  step.program @any(%param: param[*] as f32, %grad: grad[*] as f32) variant <"any", {}, f32> {
    // expected-note @+1 {{it is written here}}
    %0 = step.all_reduce %grad over ["dp"] of f32 wire f32 : !step.buffer<[*], f32>
    step.cohort_scalars @any_scalars {
      step.yield
    }
    // expected-error @+1 {{'step.traverse' op uses a buffer that was written}}
    %1 = step.traverse @any_phase0 over [*] reads (%g = %grad : <[*], f32>) writes (%param : <[*], f32>) {
      step.yield %g : f32
    }
  }
}

// -----

step.optimizer @o {
  step.program @any(%param: param[*] as f32, %grad: grad[*] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @any_scalars {
      step.yield
    }
    // expected-error @+1 {{'step.all_gather' op takes the param from what comes behind it}}
    %2 = step.all_gather %param over ["dp"] : !step.buffer<[*], f32>
    %1 = step.traverse @any_phase0 over [*] reads (%g = %grad : <[*], f32>) writes (%param : <[*], f32>) {
      step.yield %g : f32
    }
  }
}
