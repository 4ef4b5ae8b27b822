// RAdam: Adam with a rectified variance.
// Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", ICLR 2020,
// algorithm 2.
//
//   g     <- g + lambda * theta                       where lambda is not 0
//   m     <- beta1 * m + (1 - beta1) * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   rho_inf = 2 / (1 - beta2) - 1
//   rho_t   = rho_inf - 2 * t * beta2^t / (1 - beta2^t)
//   where rho_t > 5:
//     r_t   = sqrt((rho_t - 4)(rho_t - 2) rho_inf / ((rho_inf - 4)(rho_inf - 2) rho_t))
//     theta <- theta - lr * r_t * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps)
//   elsewhere:
//     theta <- theta - lr / (1 - beta1^t) * m
//
// With decoupled_weight_decay the first line is theta <- theta - lr * lambda * theta.
//
// Formulas and names of states are those of torch.optim.RAdam, but for rounding. It
// departs from the paper, as torch does: the bound is 5, as in the authors' code, not
// 4; the paper has no eps, and its weight decay is the decoupled one.

step.optimizer @radam {
  %lr = step.hyper "lr" = 1.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 0.0
  %decoupled = step.option "decoupled_weight_decay" = false
  %maximize = step.option "maximize" = false
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %t: count) {
    %one = step.constant 1.0
    %two = step.constant 2.0
    %four = step.constant 4.0
    %five = step.constant 5.0
    %ascent = step.neg %grad : [*]
    %signed = step.select %maximize, %ascent, %grad : [*]

    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    %shrunk = step.mul %theta, %keep : [*], f64
    %theta1 = step.select %decoupled, %shrunk, %theta : [*]
    %pull = step.mul %theta, %lambda : [*], f64
    %pulled = step.add %signed, %pull : [*]
    %l2 = step.select %has_decay, %pulled, %signed : [*]
    %g = step.select %decoupled, %signed, %l2 : [*]

    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [*], [*], f64
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %g_part = step.mul %g, %w2 : [*], f64
    %v_gain = step.mul %g_part, %g : [*]
    %v1 = step.add %v_kept, %v_gain : [*]

    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %c1 = step.sub %one, %beta1_t : f64
    %c2 = step.sub %one, %beta2_t : f64
    %length = step.div %two, %w2 : f64
    %rho_inf = step.sub %length, %one : f64
    %number = step.to_f64 %t
    %twice = step.mul %two, %number : f64
    %weighted = step.mul %twice, %beta2_t : f64
    %lost = step.div %weighted, %c2 : f64
    %rho = step.sub %rho_inf, %lost : f64
    %rectified = step.compare gt, %rho, %five : f64

    %rho_4 = step.sub %rho, %four : f64
    %rho_2 = step.sub %rho, %two : f64
    %rho_42 = step.mul %rho_4, %rho_2 : f64
    %above = step.mul %rho_42, %rho_inf : f64
    %inf_4 = step.sub %rho_inf, %four : f64
    %inf_2 = step.sub %rho_inf, %two : f64
    %inf_42 = step.mul %inf_4, %inf_2 : f64
    %below = step.mul %inf_42, %rho : f64
    %square = step.div %above, %below : f64
    %r_t = step.sqrt %square : f64

    %plain = step.div %lr, %c1 : f64
    %root_c2 = step.sqrt %c2 : f64
    %corrected = step.mul %plain, %root_c2 : f64
    %adaptive = step.mul %corrected, %r_t : f64
    %alpha_t = step.select %rectified, %adaptive, %plain : f64
    %root = step.sqrt %v1 : [*]
    %with_eps = step.add %root, %eps : [*], f64
    %denom = step.select %rectified, %with_eps, %one : [*], f64
    %ratio = step.div %m1, %denom : [*]
    %update = step.mul %ratio, %alpha_t : [*], f64
    %theta2 = step.sub %theta1, %update : [*]
    step.return %theta2, %m1, %v1
  }
}
