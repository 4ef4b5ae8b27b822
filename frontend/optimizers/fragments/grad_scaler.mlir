// Unscales gradients and skips a step with an overflow, for a loss scale that is kept
// elsewhere: by torch.amp.GradScaler, of which one serves several optimizers.
// Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2.
//
//   g <- g / s
//   overflow (a gradient is infinite or NaN): the step is skipped
//
// s is the scale that the loss was multiplied by. torch multiplies by 1 / s, the same
// for powers of two. Gradients are checked before they are unscaled. The first fragment,
// before any clipping.

step.fragment @grad_scaler {
  %scale = step.hyper "grad_scale" = 65536.0
  %largest = step.statistic "largest" amax over model

  step.scalars over model {
    %infinity = step.constant 0x7FF0000000000000
    %below = step.compare lt, %largest, %infinity : f64 // not for NaN
    %overflow = step.not %below : i1
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
