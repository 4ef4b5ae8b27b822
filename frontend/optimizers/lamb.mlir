// LAMB: Adam's update, as long as the parameter that it moves.
// You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76
// minutes", ICLR 2020, algorithm 2.
//
//   m     <- beta1 * m + (1 - beta1) * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   u     <- m_hat / (sqrt(v_hat) + eps) + weight_decay * theta,  where
//   m_hat = m / (1 - beta1^t),  v_hat = v / (1 - beta2^t)
//   theta <- theta - lr * (phi(|theta|) / |u|) * u
//
// The factor is 1 where |theta| or |u| is 0. phi is the identity, or with clamp_phi
// min(max(z, phi_min), phi_max). Without bias_correction m_hat is m and v_hat is v,
// as in the third version of the preprint. The decay, of the old theta, belongs to u.
//
// Of the implementations no two agree. optax's is this one. fused_lamb.mlir is
// apex', and deepspeed_lamb.mlir is DeepSpeed's and ColossalAI's; their headers say
// how they depart. pytorch_optimizer's divides by |u| + eps, clamps |theta| to 10,
// divides lr alone by 1 - beta1^t unless told adam_debias=True, and decays theta
// outside u unless told weight_decouple=False: with these two, a tiny eps and
// clamp_phi, it is this one without bias_correction. bitsandbytes' has no trust
// ratio: its max_unorm bounds Adam's update.

step.optimizer @lamb {
  %lr = step.hyper "lr" = 1.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-6
  %lambda = step.hyper "weight_decay" = 0.0
  %phi_min = step.hyper "phi_min" = 0.0
  %phi_max = step.hyper "phi_max" = 10.0
  %bias_correction = step.option "bias_correction" = true
  %clamp_phi = step.option "clamp_phi" = false
  %maximize = step.option "maximize" = false

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %t: count) {
    %zero = step.constant 0.0
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %g = step.select %maximize, %ascent, %grad : [*]
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [*], f64
    %m_gain = step.mul %g, %w1 : [*], f64
    %m1 = step.add %m_kept, %m_gain : [*]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %g_part = step.mul %g, %w2 : [*], f64
    %v_gain = step.mul %g_part, %g : [*]
    %v1 = step.add %v_kept, %v_gain : [*]

    // m_hat / (sqrt(v_hat) + eps) = m * scale / (sqrt(v) + eps_t).
    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %rest1 = step.sub %one, %beta1_t : f64
    %rest2 = step.sub %one, %beta2_t : f64
    %root_rest2 = step.sqrt %rest2 : f64
    %c1 = step.select %bias_correction, %rest1, %one : f64
    %c2 = step.select %bias_correction, %root_rest2, %one : f64
    %scale = step.div %c2, %c1 : f64
    %eps_t = step.mul %eps, %c2 : f64
    %root = step.sqrt %v1 : [*]
    %denom = step.add %root, %eps_t : [*], f64
    %ratio = step.div %m1, %denom : [*]
    %adam = step.mul %ratio, %scale : [*], f64
    %decay = step.mul %theta, %lambda : [*], f64
    %u = step.add %adam, %decay : [*]

    %theta_sq = step.mul %theta, %theta : [*]
    %theta_sum = step.sum %theta_sq : [*]
    %theta_norm = step.sqrt %theta_sum : f64
    %uu = step.mul %u, %u : [*]
    %u_sum = step.sum %uu : [*]
    %u_norm = step.sqrt %u_sum : f64
    %at_least = step.maximum %theta_norm, %phi_min : f64
    %at_most = step.minimum %at_least, %phi_max : f64
    %phi = step.select %clamp_phi, %at_most, %theta_norm : f64
    %trust = step.div %phi, %u_norm : f64
    %no_theta = step.compare eq, %theta_norm, %zero : f64
    %no_u = step.compare eq, %u_norm, %zero : f64
    %none = step.or %no_theta, %no_u : i1
    %factor = step.select %none, %one, %trust : f64

    %rate = step.mul %lr, %factor : f64
    %update = step.mul %u, %rate : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %m1, %v1
  }
}
