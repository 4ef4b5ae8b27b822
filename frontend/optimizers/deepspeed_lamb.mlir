// LAMB as in DeepSpeed's FusedLamb, and ColossalAI's Lamb.
// You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76
// minutes", ICLR 2020; DeepSpeed's kernel fused_lamb_cuda.
//
//   m     <- beta1 * m + (1 - beta1) * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   u     <- m / (sqrt(v) + eps) + weight_decay * theta,
//            with eps_inside_sqrt m / sqrt(v + eps) + ...
//   a     <- lr * sqrt(1 - beta2^t) / (1 - beta1^t), or without bias_correction lr
//   theta <- theta - a * r * u,
//            r = |theta| / |u|, with clamp_ratio from min_coeff to max_coeff,
//            with adam 1
//
// r is 1 where |theta| or |u| is 0.
//
// It departs from the paper (lamb.mlir) as DeepSpeed does: nothing in u is
// corrected, so eps is larger beside a young v, and the correction that remains
// scales the whole step, which the trust ratio has made as long as lr * |theta|. It
// is kept for models tuned with it. ColossalAI's Lamb has no clamp, an eps of 1e-6,
// no bias_correction by default (its DistributedLamb has one), and adam. Both clip outside:
// clip_by_norm.mlir. States are named as in both.

step.optimizer @deepspeed_lamb {
  %lr = step.hyper "lr" = 1.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 0.0
  %min_coeff = step.hyper "min_coeff" = 0.01
  %max_coeff = step.hyper "max_coeff" = 10.0
  %bias_correction = step.option "bias_correction" = true
  %eps_inside_sqrt = step.option "eps_inside_sqrt" = false
  %clamp_ratio = step.option "clamp_ratio" = true
  %adam = step.option "adam" = false

  step.rule @any(%theta: param[*], %g: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %t: count) {
    %zero = step.constant 0.0
    %one = step.constant 1.0
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [*], f64
    %m_gain = step.mul %g, %w1 : [*], f64
    %m1 = step.add %m_kept, %m_gain : [*]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %g_part = step.mul %g, %w2 : [*], f64
    %v_gain = step.mul %g_part, %g : [*]
    %v1 = step.add %v_kept, %v_gain : [*]

    %root = step.sqrt %v1 : [*]
    %outside = step.add %root, %eps : [*], f64
    %v_eps = step.add %v1, %eps : [*], f64
    %inside = step.sqrt %v_eps : [*]
    %denom = step.select %eps_inside_sqrt, %inside, %outside : [*]
    %ratio = step.div %m1, %denom : [*]
    %decay = step.mul %theta, %lambda : [*], f64
    %u = step.add %ratio, %decay : [*]

    %theta_sq = step.mul %theta, %theta : [*]
    %theta_sum = step.sum %theta_sq : [*]
    %theta_norm = step.sqrt %theta_sum : f64
    %uu = step.mul %u, %u : [*]
    %u_sum = step.sum %uu : [*]
    %u_norm = step.sqrt %u_sum : f64
    %trust = step.div %theta_norm, %u_norm : f64
    %at_least = step.maximum %trust, %min_coeff : f64
    %at_most = step.minimum %at_least, %max_coeff : f64
    %bounded = step.select %clamp_ratio, %at_most, %trust : f64
    %no_theta = step.compare eq, %theta_norm, %zero : f64
    %no_u = step.compare eq, %u_norm, %zero : f64
    %none = step.or %no_theta, %no_u : i1
    %adapted = step.select %none, %one, %bounded : f64
    %factor = step.select %adam, %one, %adapted : f64

    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %rest1 = step.sub %one, %beta1_t : f64
    %rest2 = step.sub %one, %beta2_t : f64
    %root_rest2 = step.sqrt %rest2 : f64
    %correction = step.div %root_rest2, %rest1 : f64
    %lr_t = step.mul %lr, %correction : f64
    %step_size = step.select %bias_correction, %lr_t, %lr : f64
    %rate = step.mul %step_size, %factor : f64
    %update = step.mul %u, %rate : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %m1, %v1
  }
}
