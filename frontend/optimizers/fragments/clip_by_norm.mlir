// Clips the gradients of the model by their common 2-norm.
// Pascanu et al., "On the difficulty of training recurrent neural networks", ICML
// 2013, algorithm 1.
//
//   n <- square root of the sum of the squares of all gradients
//   g <- g * min(max_norm / (n + 1e-6), 1)
//
// As torch.nn.utils.clip_grad_norm_, 1e-6 included; the paper has none. The squares
// are rounded to the compute type and added in f64. torch adds in the gradients'
// type, and takes the norm of the tensors' norms. ColossalAI and DeepSpeed divide by
// max(1, (n + 1e-6) / max_norm), which is the same but for rounding. A norm that is
// NaN makes all gradients NaN, an infinite one those that are finite 0, as in torch.
// Clipping comes last: after unscaling, and after clipping by value.

step.fragment @clip_by_norm {
  %max_norm = step.hyper "max_norm" = 1.0
  %norm2 = step.statistic "norm2" sum over model

  %coef = step.scalars over model {
    %one = step.constant 1.0
    %tiny = step.constant 1.0e-6
    %norm = step.sqrt %norm2 : f64
    %divisor = step.add %norm, %tiny : f64
    %ratio = step.div %max_norm, %divisor : f64
    %bounded = step.minimum %ratio, %one : f64
    step.report "grad_norm", %norm
    step.report "clip_coef", %bounded
    step.yield %bounded : f64
  }

  step.rule @any(%g: grad[*]) {
    %gg = step.mul %g, %g : [*]
    %sum = step.sum %gg : [*]
    step.contribute %norm2, %sum
    %g1 = step.mul %g, %coef : [*], f64
    step.return %g1
  }
}
