// Divides gradients by the loss scale, where the loss was multiplied by a constant.
//
//   g <- g / loss_scale
//
// One rounding. torch, DeepSpeed and ColossalAI multiply by 1 / loss_scale, which is
// the same for powers of two. The first fragment, before any clipping. The gradients
// must be checked for overflow elsewhere; the dynamic scalers do.

step.fragment @unscale {
  %scale = step.hyper "loss_scale" = 1.0

  step.rule @any(%g: grad[*]) {
    %g1 = step.div %g, %scale : [*], f64
    step.return %g1
  }
}
