// Sophia: a momentum over an estimate of the Hessian's diagonal, clipped.
// Liu, Li, Hall, Liang and Ma, "Sophia: A Scalable Stochastic Second-order Optimizer
// for Language Model Pre-training", ICLR 2024, algorithm 3.
//
//   m        <- beta1 * m + (1 - beta1) * g
//   h        <- beta2 * h + (1 - beta2) * estimate     in steps that have one
//   theta    <- theta - lr * lambda * theta
//   theta    <- theta - lr * clip(m / max(rho * h, eps), 1)
//
// As SophiaG of the authors' own code (Liuhong99/Sophia), which has bs * rho * h + eps
// below the line, and takes the sign of m times the ratio of absolute values. `bs` is
// the number of samples that the gradient is a mean of; the estimate is the square of a
// gradient whose labels are drawn from the model (Gauss-Newton-Bartlett, algorithm 2),
// or u * (H u) for a random u (Hutchinson, algorithm 1, with bs = 1).
//
// Whoever uses it writes the state "estimate" before a step in which `refresh` is not 0.

step.optimizer @sophia {
  %lr = step.hyper "lr" = 1.0e-4
  %beta1 = step.hyper "beta1" = 0.965
  %beta2 = step.hyper "beta2" = 0.99
  %rho = step.hyper "rho" = 0.04
  %eps = step.hyper "eps" = 1.0e-15
  %lambda = step.hyper "weight_decay" = 0.1
  %bs = step.hyper "bs" = 5120.0
  %refresh = step.hyper "refresh" = 0.0
  %maximize = step.option "maximize" = false
  %has_estimate = step.option "has_estimate" = %refresh ne 0.0
  %one = step.constant 1.0

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*],
                 %h: state "hessian"[*],
                 %estimate: state "estimate"[*] given if %has_estimate) {
    %ascent = step.neg %grad : [*]
    %g = step.select %maximize, %ascent, %grad : [*]

    %h_weight = step.sub %one, %beta2 : f64
    %h_kept = step.mul %h, %beta2 : [*], f64
    %h_gain = step.mul %estimate, %h_weight : [*], f64
    %h_new = step.add %h_kept, %h_gain : [*]
    %h1 = step.select %has_estimate, %h_new, %h : [*]

    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    %theta1 = step.mul %theta, %keep : [*], f64

    %m_weight = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [*], f64
    %m_gain = step.mul %g, %m_weight : [*], f64
    %m1 = step.add %m_kept, %m_gain : [*]

    %scale = step.mul %rho, %bs : f64
    %curvature = step.mul %h1, %scale : [*], f64
    %below = step.add %curvature, %eps : [*], f64
    %size = step.abs %m1 : [*]
    %ratio = step.div %size, %below : [*]
    %clipped = step.minimum %ratio, %one : [*], f64
    %sign = step.sign %m1 : [*]
    %direction = step.mul %sign, %clipped : [*]
    %update = step.mul %direction, %lr : [*], f64
    %theta2 = step.sub %theta1, %update : [*]
    step.return %theta2, %m1, %h1
  }
}
