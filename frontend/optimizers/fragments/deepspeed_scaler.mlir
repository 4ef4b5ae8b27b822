// Dynamic loss scaling as in DeepSpeed's DynamicLossScaler.
// Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2.
//
// s is the scale that the loss was multiplied by, k counts steps without overflow, h
// overflows before s is lowered.
//
//   g <- g / s
//   overflow (a gradient is infinite or NaN): the step is skipped,  k <- 0,
//     where delayed_shift or h is 1:  s <- max(s / scale_factor, min_scale)
//     else                            h <- h - 1
//   else:
//     k <- k + 1;  with consecutive_hysteresis  h <- delayed_shift
//     where k is scale_window:  s <- s * scale_factor,  h <- delayed_shift,  k <- 0
//
// With late_growth the first growth after an overflow, or the start, is one step
// later, as in DeepSpeed since version 0.17.1. An overflow at min_scale raises an
// error there; here it sets the report "at_min_scale", and the caller may.
//
// DeepSpeed unscales by the scale that it has updated already, so that the gradients
// of a step in which it grows are divided by twice what the loss was multiplied by;
// here s is the one of the backward pass. The first fragment, before any clipping.

step.fragment @deepspeed_scaler {
  %factor = step.hyper "scale_factor" = 2.0
  %window = step.hyper "scale_window" = 1000.0
  %min_scale = step.hyper "min_scale" = 1.0
  %shift = step.hyper "delayed_shift" = 1.0
  %consecutive = step.option "consecutive_hysteresis" = false
  %late_growth = step.option "late_growth" = true
  %scale = step.scalar "scale" = 4294967296.0 over model
  %steps = step.scalar "steps_without_overflow" = 0.0 over model
  %used = step.scalar "hysteresis_used" = 0.0 over model // delayed_shift - h
  %largest = step.statistic "largest" amax over model

  step.scalars over model {
    %zero = step.constant 0.0
    %one = step.constant 1.0
    %infinity = step.constant 0x7FF0000000000000
    %below = step.compare lt, %largest, %infinity : f64 // not for NaN
    %overflow = step.not %below : i1

    %left = step.sub %shift, %used : f64
    %lowers = step.compare le, %left, %one : f64
    %divided = step.div %scale, %factor : f64
    %lowered = step.maximum %divided, %min_scale : f64
    %scale_if_over = step.select %lowers, %lowered, %scale : f64
    %one_more = step.add %used, %one : f64
    %used_if_over = step.select %lowers, %used, %one_more : f64

    %late = step.select %late_growth, %one, %zero : f64
    %wait = step.add %window, %late : f64
    %more = step.add %steps, %one : f64
    %grows = step.compare ge, %more, %wait : f64
    %raised = step.mul %scale, %factor : f64
    %scale_if_fine = step.select %grows, %raised, %scale : f64
    %steps_if_fine = step.select %grows, %late, %more : f64
    %refills = step.or %grows, %consecutive : i1
    %used_if_fine = step.select %refills, %zero, %used : f64

    %scale1 = step.select %overflow, %scale_if_over, %scale_if_fine : f64
    %steps1 = step.select %overflow, %zero, %steps_if_fine : f64
    %used1 = step.select %overflow, %used_if_over, %used_if_fine : f64
    step.update %scale, %scale1 always
    step.update %steps, %steps1 always
    step.update %used, %used1 always

    %is_min = step.compare eq, %scale, %min_scale : f64
    %stuck = step.and %is_min, %lowers : i1
    %failed = step.and %stuck, %overflow : i1
    %failure = step.select %failed, %one, %zero : f64
    step.report "loss_scale", %scale
    step.report "at_min_scale", %failure
    step.skip_if %overflow
    step.yield
  }

  step.rule @any(%g: grad[*]) {
    %size = step.abs %g : [*]
    %most = step.amax %size : [*]
    step.contribute %largest, %most
    %g1 = step.div %g, %scale : [*], f64
    step.return %g1
  }
}
