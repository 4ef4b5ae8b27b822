// Dynamic loss scaling as in ColossalAI's DynamicGradScaler.
// Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2.
//
// s is the scale that the loss was multiplied by, k counts steps without overflow, h
// overflows since s last grew.
//
//   g <- g / s
//   overflow (a gradient is infinite or NaN): the step is skipped,
//     h <- h + 1,  k <- 0,
//     where h >= hysteresis:  s <- max(s * backoff_factor, min_scale)
//   else:
//     k <- k + 1
//     where k is growth_interval:  s <- min(s * growth_factor, max_scale),
//                                  k <- 0,  h <- 0
//
// The defaults are those of its HybridParallelPlugin. min_scale=None and
// max_scale=None there are 0 and infinity here.
//
// ColossalAI unscales by the scale that it has updated already, so that the gradients
// of a step in which it grows are divided by twice what the loss was multiplied by;
// here s is the one of the backward pass. It keeps s in f32: the same for powers of
// two; and its state_dict forgets h and k. The first fragment, before any clipping.

step.fragment @colossal_scaler {
  %growth = step.hyper "growth_factor" = 2.0
  %backoff = step.hyper "backoff_factor" = 0.5
  %interval = step.hyper "growth_interval" = 1000.0
  %hysteresis = step.hyper "hysteresis" = 2.0
  %min_scale = step.hyper "min_scale" = 1.0
  %max_scale = step.hyper "max_scale" = 4294967296.0
  %scale = step.scalar "scale" = 65536.0 over model
  %steps = step.scalar "growth_step" = 0.0 over model
  %overflows = step.scalar "hysteresis_step" = 0.0 over model
  %largest = step.statistic "largest" amax over model

  step.scalars over model {
    %zero = step.constant 0.0
    %one = step.constant 1.0
    %infinity = step.constant 0x7FF0000000000000
    %below = step.compare lt, %largest, %infinity : f64 // not for NaN
    %overflow = step.not %below : i1

    %again = step.add %overflows, %one : f64
    %lowers = step.compare ge, %again, %hysteresis : f64
    %smaller = step.mul %scale, %backoff : f64
    %lowered = step.maximum %smaller, %min_scale : f64
    %scale_if_over = step.select %lowers, %lowered, %scale : f64

    %more = step.add %steps, %one : f64
    %grows = step.compare ge, %more, %interval : f64
    %larger = step.mul %scale, %growth : f64
    %raised = step.minimum %larger, %max_scale : f64
    %scale_if_fine = step.select %grows, %raised, %scale : f64
    %steps_if_fine = step.select %grows, %zero, %more : f64
    %overflows_if_fine = step.select %grows, %zero, %overflows : f64

    %scale1 = step.select %overflow, %scale_if_over, %scale_if_fine : f64
    %steps1 = step.select %overflow, %zero, %steps_if_fine : f64
    %overflows1 = step.select %overflow, %again, %overflows_if_fine : f64
    step.update %scale, %scale1 always
    step.update %steps, %steps1 always
    step.update %overflows, %overflows1 always
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
