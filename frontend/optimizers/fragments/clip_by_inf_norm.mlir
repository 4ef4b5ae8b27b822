// Clips the gradients of the model by their largest magnitude.
//
//   n <- the largest |g| of all gradients
//   g <- g * min(max_norm / (n + 1e-6), 1)
//
// As torch.nn.utils.clip_grad_norm_ with norm_type=inf. A NaN anywhere makes all
// gradients NaN. Clipping comes last: after unscaling, and after clipping by value.

step.fragment @clip_by_inf_norm {
  %max_norm = step.hyper "max_norm" = 1.0
  %largest = step.statistic "largest" amax over model

  %coef = step.scalars over model {
    %zero = step.constant 0.0
    %one = step.constant 1.0
    %tiny = step.constant 1.0e-6
    %norm = step.maximum %largest, %zero : f64  // -Inf where there is no gradient
    %divisor = step.add %norm, %tiny : f64
    %ratio = step.div %max_norm, %divisor : f64
    %bounded = step.minimum %ratio, %one : f64
    step.report "grad_norm", %norm
    step.report "clip_coef", %bounded
    step.yield %bounded : f64
  }

  step.rule @any(%g: grad[*]) {
    %size = step.abs %g : [*]
    %most = step.amax %size : [*]
    step.contribute %largest, %most
    %g1 = step.mul %g, %coef : [*], f64
    step.return %g1
  }
}
