// Adamax: Adam with the infinity norm.
// Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 2.
//
//   g     <- g + lambda * theta                       where lambda is not 0
//   m     <- beta1 * m + (1 - beta1) * g
//   u     <- max(beta2 * u, |g| + eps)
//   theta <- theta - lr / (1 - beta1^t) * m / u
//
// Formulas and names of states are those of torch.optim.Adamax, but for rounding. It
// departs from the paper, as torch does: eps is added to |g|, so that u is not 0, and
// there is a weight decay. optax adds eps to u, when it divides, in place of that.

step.optimizer @adamax {
  %lr = step.hyper "lr" = 2.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 0.0
  %maximize = step.option "maximize" = false
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*],
                 %u: state "exp_inf"[*], %t: count) {
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %signed = step.select %maximize, %ascent, %grad : [*]
    %pull = step.mul %theta, %lambda : [*], f64
    %pulled = step.add %signed, %pull : [*]
    %g = step.select %has_decay, %pulled, %signed : [*]

    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [*], [*], f64
    %size = step.abs %g : [*]
    %least = step.add %size, %eps : [*], f64
    %faded = step.mul %u, %beta2 : [*], f64
    %u1 = step.maximum %faded, %least : [*]

    %beta1_t = step.powi %beta1, %t
    %c1 = step.sub %one, %beta1_t : f64
    %step_size = step.div %lr, %c1 : f64
    %ratio = step.div %m1, %u1 : [*]
    %update = step.mul %ratio, %step_size : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %m1, %u1
  }
}
