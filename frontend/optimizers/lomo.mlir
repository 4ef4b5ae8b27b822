// LOMO: gradient descent without any state, so that each parameter can be updated
// as soon as its gradient is there.
// Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited
// Resources", ACL 2024, algorithm 1.
//
//   theta <- theta - lr * weight_decay * theta
//   theta <- theta - lr * g
//
// Clipping and the loss scale are fragments: unscale.mlir, clip_by_value.mlir,
// clip_by_norm.mlir, in that order. The authors' lomo_optim has these two lines, in
// f32 whatever the parameter's type; but it takes the norm in a backward pass of its
// own, of gradients that are not yet clipped by value, so that with both it clips
// more than was asked for.

step.optimizer @lomo {
  %lr = step.hyper "lr" = 1.0e-3
  %lambda = step.hyper "weight_decay" = 0.0

  step.rule @any(%theta: param[*], %g: grad[*]) {
    %one = step.constant 1.0
    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    %theta1 = step.mul %theta, %keep : [*], f64
    %update = step.mul %g, %lr : [*], f64
    %theta2 = step.sub %theta1, %update : [*]
    step.return %theta2
  }
}
