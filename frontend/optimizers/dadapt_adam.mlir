// Adam that finds its learning rate, by D-Adaptation.
// Defazio and Mishchenko, "Learning-Rate-Free Learning by D-Adaptation", ICML 2023,
// algorithm 5, as in the authors' package dadaptation, version 3.
//
// d, a lower bound of the distance from the start to a solution, and a are of a group;
// q = sqrt(beta2).
//
//   g     <- g + weight_decay * theta        without decouple, where weight_decay is not 0
//   rate  <- lr * d, with use_bias_correction * sqrt(1 - beta2^t) / (1 - beta1^t)
//   n     <- rate * <g, s / (sqrt(v) + eps)>                   the old s and v
//   m     <- beta1 * m + (1 - beta1) * rate * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   s     <- q * s + (1 - q) * rate * g
//   a     <- q * a + (1 - q) * n
//   d     <- max(d, min(a / ((1 - q) * |s|_1), d * growth_rate))   for the next step
//   theta <- theta - weight_decay * rate * theta               with decouple
//   theta <- theta - m / (sqrt(v) + eps)
//
// n and |s|_1 are summed over the tensors of a group; while |s|_1 is 0, d stays. The
// scalar "d" begins with d0. dadaptation has one d, of all groups, with the
// hyper-parameters of the first; here each group finds its own, from its own.

step.optimizer @dadapt_adam {
  %lr = step.hyper "lr" = 1.0
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 0.0
  %growth = step.hyper "growth_rate" = 1.7976931348623157e+308
  %decouple = step.option "decouple" = false
  %bias_correction = step.option "use_bias_correction" = false
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0
  %zero = step.constant 0.0
  %one = step.constant 1.0
  %d = step.scalar "d" = 1.0e-6 over group
  %a = step.scalar "numerator_weighted" = 0.0 over group
  %numerator = step.statistic "numerator" sum over group
  %s_l1 = step.statistic "s_l1" sum over group

  // q, and 1 - q.
  step.define @q() {
    %q = step.sqrt %beta2 : f64
    %w = step.sub %one, %q : f64
    step.yield %q, %w : f64, f64
  }

  step.scalars over group {
    %q, %w = step.call @q() : () -> (f64, f64)
    %a_part = step.mul %q, %a : f64
    %n_part = step.mul %w, %numerator : f64
    %a1 = step.add %a_part, %n_part : f64
    step.update %a, %a1
    %divisor = step.mul %w, %s_l1 : f64
    %estimate = step.div %a1, %divisor : f64
    %most = step.mul %d, %growth : f64
    %bounded = step.minimum %estimate, %most : f64
    %grows = step.compare gt, %bounded, %d : f64
    %larger = step.select %grows, %bounded, %d : f64
    %still = step.compare eq, %s_l1, %zero : f64
    %d1 = step.select %still, %d, %larger : f64
    step.update %d, %d1
    step.report "d", %d
    step.yield
  }

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %s: state "s"[*], %t: count) {
    %decay = step.mul %theta, %lambda : [*], f64
    %decayed = step.add %grad, %decay : [*]
    %l2 = step.select %has_decay, %decayed, %grad : [*]
    %g = step.select %decouple, %grad, %l2 : [*]

    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %rest1 = step.sub %one, %beta1_t : f64
    %rest2 = step.sub %one, %beta2_t : f64
    %root_rest2 = step.sqrt %rest2 : f64
    %correction = step.div %root_rest2, %rest1 : f64
    %lr_d = step.mul %lr, %d : f64
    %corrected = step.mul %lr_d, %correction : f64
    %rate = step.select %bias_correction, %corrected, %lr_d : f64

    %old_root = step.sqrt %v : [*]
    %old_denom = step.add %old_root, %eps : [*], f64
    %s_scaled = step.div %s, %old_denom : [*]
    %gs = step.mul %g, %s_scaled : [*]
    %dot = step.sum %gs : [*]
    %n = step.mul %rate, %dot : f64
    step.contribute %numerator, %n

    %w1 = step.sub %one, %beta1 : f64
    %m_gain = step.mul %rate, %w1 : f64
    %m_part = step.mul %m, %beta1 : [*], f64
    %m_new = step.mul %g, %m_gain : [*], f64
    %m1 = step.add %m_part, %m_new : [*]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %g_part = step.mul %g, %w2 : [*], f64
    %v_gain = step.mul %g_part, %g : [*]
    %v1 = step.add %v_kept, %v_gain : [*]
    %q, %w = step.call @q() : () -> (f64, f64)
    %s_gain = step.mul %rate, %w : f64
    %s_part = step.mul %s, %q : [*], f64
    %s_new = step.mul %g, %s_gain : [*], f64
    %s1 = step.add %s_part, %s_new : [*]
    %s_abs = step.abs %s1 : [*]
    %s_sum = step.sum %s_abs : [*]
    step.contribute %s_l1, %s_sum

    %shrink = step.mul %lambda, %rate : f64
    %keep = step.sub %one, %shrink : f64
    %shrunk = step.mul %theta, %keep : [*], f64
    %from = step.select %decouple, %shrunk, %theta : [*]
    %root = step.sqrt %v1 : [*]
    %denom = step.add %root, %eps : [*], f64
    %update = step.div %m1, %denom : [*]
    %theta1 = step.sub %from, %update : [*]
    step.return %theta1, %m1, %v1, %s1
  }
}
