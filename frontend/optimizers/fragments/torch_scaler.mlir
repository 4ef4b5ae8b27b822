// Dynamic loss scaling as in torch.amp.GradScaler.
// Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2.
//
// s is the scale that the loss was multiplied by, k counts steps without overflow.
//
//   g <- g / s
//   overflow (a gradient is infinite or NaN): the step is skipped,
//     s <- s * backoff_factor,  k <- 0
//   else:
//     k <- k + 1;  where k is growth_interval:  s <- s * growth_factor,  k <- 0
//
// A growth to more than f32 holds does not happen, as in torch. torch keeps s in f32:
// the same for powers of two of at least 2^-149, where torch's becomes 0. torch
// multiplies by 1 / s, the same for powers of two. Gradients are checked before they
// are unscaled, and the whole model is skipped; a GradScaler with two optimizers
// skips those that overflow. The first fragment, before any clipping.

step.fragment @torch_scaler {
  %growth = step.hyper "growth_factor" = 2.0
  %backoff = step.hyper "backoff_factor" = 0.5
  %interval = step.hyper "growth_interval" = 2000.0
  %scale = step.scalar "scale" = 65536.0 over model
  %tracker = step.scalar "growth_tracker" = 0.0 over model
  %largest = step.statistic "largest" amax over model

  step.scalars over model {
    %zero = step.constant 0.0
    %one = step.constant 1.0
    %infinity = step.constant 0x7FF0000000000000
    %overflowing = step.constant 3.4028235677973366e+38 // rounds to Inf in f32
    %below = step.compare lt, %largest, %infinity : f64 // not for NaN
    %overflow = step.not %below : i1
    %lowered = step.mul %scale, %backoff : f64
    %raised = step.mul %scale, %growth : f64
    %fits = step.compare lt, %raised, %overflowing : f64
    %next = step.select %fits, %raised, %scale : f64
    %more = step.add %tracker, %one : f64
    %grows = step.compare ge, %more, %interval : f64
    %scale_if_fine = step.select %grows, %next, %scale : f64
    %tracker_if_fine = step.select %grows, %zero, %more : f64
    %scale1 = step.select %overflow, %lowered, %scale_if_fine : f64
    %tracker1 = step.select %overflow, %zero, %tracker_if_fine : f64
    step.update %scale, %scale1 always
    step.update %tracker, %tracker1 always
    step.report "loss_scale", %scale
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
