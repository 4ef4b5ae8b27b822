// LARS: SGD with momentum, each tensor's rate in proportion to its length.
// You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017,
// algorithm 1.
//
//   r     <- trust_coefficient * |theta| / (|g| + weight_decay * |theta| + eps)
//   v     <- momentum * v + lr * r * (g + weight_decay * theta)
//   theta <- theta - v
//
// eps is 0 in the paper. r is 1 where |theta| is 0 or the divisor is 0, or one of them
// NaN, as in pytorch_optimizer: a NaN in the gradient stays in its element. With
// vectors_as_sgd, tensors of fewer than two dims (biases, normalization) have r = 1
// and no decay, as is common practice; the paper has no such exception.
//
// Without lr_in_momentum the momentum is gathered without lr, which multiplies it
// when it is used:  v <- momentum * v + r * (...);  theta <- theta - lr * v.  The same
// while lr is constant, and what torch's SGD does. It is needed for nesterov, where
// theta <- theta - lr * (r * (...) + momentum * v).
//
// apex' LARC, on top of torch's SGD, is lr_in_momentum=false with an eps of 1e-8 and
// bound_ratio: min(r / lr, 1) in place of r, so that lr bounds the tensor's own rate. Where
// |theta| or |g| is 0 it leaves the decay out, which is not in the paper; here
// theta = 0 has none, and g = 0 leaves the decay alone. pytorch_optimizer's LARS is
// lr_in_momentum=false, vectors_as_sgd=true.

step.optimizer @lars {
  %lr = step.hyper "lr" = 1.0e-3
  %mu = step.hyper "momentum" = 0.9
  %lambda = step.hyper "weight_decay" = 0.0
  %trust = step.hyper "trust_coefficient" = 1.0e-3
  %eps = step.hyper "eps" = 0.0
  %lr_in_momentum = step.option "lr_in_momentum" = true
  %nesterov = step.option "nesterov" = false
  %bound_ratio = step.option "bound_ratio" = false
  %vectors_as_sgd = step.option "vectors_as_sgd" = false
  %maximize = step.option "maximize" = false
  %has_momentum = step.option "has_momentum" = %mu ne 0.0
  %one = step.constant 1.0

  step.rule @vector(%theta: param[*], %grad: grad[*],
                    %v: state "momentum_buffer"[*] if %has_momentum)
      where rank lt 2, %vectors_as_sgd {
    %ascent = step.neg %grad : [*]
    %g = step.select %maximize, %ascent, %grad : [*]
    %gain = step.select %lr_in_momentum, %lr, %one : f64
    %rate = step.select %lr_in_momentum, %one, %lr : f64
    %d = step.mul %g, %gain : [*], f64
    %kept = step.mul %v, %mu : [*], f64
    %v1 = step.add %kept, %d : [*]
    %ahead = step.mul %v1, %mu : [*], f64
    %looking = step.add %d, %ahead : [*]
    %moving = step.select %nesterov, %looking, %v1 : [*]
    %direction = step.select %has_momentum, %moving, %d : [*]
    %update = step.mul %direction, %rate : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %v1
  }

  step.rule @any(%theta: param[*], %grad: grad[*],
                 %v: state "momentum_buffer"[*] if %has_momentum) {
    %zero = step.constant 0.0
    %ascent = step.neg %grad : [*]
    %g = step.select %maximize, %ascent, %grad : [*]
    %theta_sq = step.mul %theta, %theta : [*]
    %theta_sum = step.sum %theta_sq : [*]
    %theta_norm = step.sqrt %theta_sum : f64
    %gg = step.mul %g, %g : [*]
    %g_sum = step.sum %gg : [*]
    %g_norm = step.sqrt %g_sum : f64
    %long = step.mul %trust, %theta_norm : f64
    %decay_norm = step.mul %lambda, %theta_norm : f64
    %both = step.add %g_norm, %decay_norm : f64
    %divisor = step.add %both, %eps : f64
    %quotient = step.div %long, %divisor : f64
    %has_theta = step.compare gt, %theta_norm, %zero : f64
    %has_divisor = step.compare gt, %divisor, %zero : f64
    %both_there = step.and %has_theta, %has_divisor : i1
    %adapted = step.select %both_there, %quotient, %one : f64
    %per_lr = step.div %adapted, %lr : f64
    %bounded = step.minimum %per_lr, %one : f64
    %r = step.select %bound_ratio, %bounded, %adapted : f64

    %lr_r = step.mul %lr, %r : f64
    %gain = step.select %lr_in_momentum, %lr_r, %r : f64
    %rate = step.select %lr_in_momentum, %one, %lr : f64
    %decay = step.mul %theta, %lambda : [*], f64
    %decayed = step.add %g, %decay : [*]
    %d = step.mul %decayed, %gain : [*], f64
    %kept = step.mul %v, %mu : [*], f64
    %v1 = step.add %kept, %d : [*]
    %ahead = step.mul %v1, %mu : [*], f64
    %looking = step.add %d, %ahead : [*]
    %moving = step.select %nesterov, %looking, %v1 : [*]
    %direction = step.select %has_momentum, %moving, %d : [*]
    %update = step.mul %direction, %rate : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %v1
  }
}
