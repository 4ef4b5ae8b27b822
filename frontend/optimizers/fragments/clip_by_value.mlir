// Clips each element of the gradients.
//
//   g <- min(max(g, -clip_value), clip_value)
//
// As torch.nn.utils.clip_grad_value_: NaN stays NaN. After unscaling, before clipping
// by a norm.

step.fragment @clip_by_value {
  %most = step.hyper "clip_value" = 1.0

  step.rule @any(%g: grad[*]) {
    %least = step.neg %most : f64
    %bounded = step.maximum %g, %least : [*], f64
    %g1 = step.minimum %bounded, %most : [*], f64
    step.return %g1
  }
}
