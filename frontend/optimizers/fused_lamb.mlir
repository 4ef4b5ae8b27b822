// LAMB as in apex' FusedLAMB, and ColossalAI's.
// You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76
// minutes", ICLR 2020; apex' kernels multi_tensor_lamb.
//
//   n     <- 2-norm of all gradients of the model
//   g     <- g / max(1, n / max_grad_norm)             where max_grad_norm is not 0
//   g     <- g + weight_decay * theta                  without adam_w_mode
//   m     <- beta1 * m + beta3 * g,  beta3 = 1 - beta1, or without grad_averaging 1
//   v     <- beta2 * v + (1 - beta2) * g^2
//   u     <- m_hat / (sqrt(v_hat) + eps), with adam_w_mode + weight_decay * theta
//   theta <- theta - lr * (|theta| / |u|) * u
//
// The factor is 1 where |theta| or |u| is 0, and, unless use_nvlamb, where
// weight_decay is 0: the one departure from the paper (lamb.mlir) in the trust ratio.
// m_hat and v_hat are those of lamb.mlir, with bias_correction.
//
// apex sums the norm in f32 and counts the steps of a group, not of a tensor; with
// max_grad_norm of 0 it divides by zero. States are named as in apex.

step.optimizer @fused_lamb {
  %lr = step.hyper "lr" = 1.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-6
  %lambda = step.hyper "weight_decay" = 1.0e-2
  %max_norm = step.hyper "max_grad_norm" = 1.0
  %bias_correction = step.option "bias_correction" = true
  %adam_w_mode = step.option "adam_w_mode" = true
  %grad_averaging = step.option "grad_averaging" = true
  %use_nvlamb = step.option "use_nvlamb" = false
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0
  %has_clip = step.option "has_max_grad_norm" = %max_norm ne 0.0
  %one = step.constant 1.0
  %norm2 = step.statistic "norm2" sum over model

  %divisor = step.scalars over model {
    %norm = step.sqrt %norm2 : f64
    %excess = step.div %norm, %max_norm : f64
    %exceeds = step.compare gt, %norm, %max_norm : f64
    %clips = step.and %exceeds, %has_clip : i1
    %by = step.select %clips, %excess, %one : f64
    step.report "grad_norm", %norm
    step.yield %by : f64
  }

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %t: count) {
    %zero = step.constant 0.0
    %grad_sq = step.mul %grad, %grad : [*]
    %grad_sum = step.sum %grad_sq : [*]
    step.contribute %norm2, %grad_sum
    %clipped = step.div %grad, %divisor : [*], f64
    %decay = step.mul %theta, %lambda : [*], f64
    %coupled = step.add %clipped, %decay : [*]
    %g = step.select %adam_w_mode, %clipped, %coupled : [*]

    %w1 = step.sub %one, %beta1 : f64
    %beta3 = step.select %grad_averaging, %w1, %one : f64
    %m_part = step.mul %m, %beta1 : [*], f64
    %g_part = step.mul %g, %beta3 : [*], f64
    %m1 = step.add %m_part, %g_part : [*]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %g_share = step.mul %g, %w2 : [*], f64
    %v_gain = step.mul %g_share, %g : [*]
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
    %with_decay = step.add %adam, %decay : [*]
    %u = step.select %adam_w_mode, %with_decay, %adam : [*]

    %theta_sq = step.mul %theta, %theta : [*]
    %theta_sum = step.sum %theta_sq : [*]
    %theta_norm = step.sqrt %theta_sum : f64
    %uu = step.mul %u, %u : [*]
    %u_sum = step.sum %uu : [*]
    %u_norm = step.sqrt %u_sum : f64
    %trust = step.div %theta_norm, %u_norm : f64
    %no_theta = step.compare eq, %theta_norm, %zero : f64
    %no_u = step.compare eq, %u_norm, %zero : f64
    %none = step.or %no_theta, %no_u : i1
    %adapted = step.select %none, %one, %trust : f64
    %if_decay = step.select %has_decay, %adapted, %one : f64
    %factor = step.select %use_nvlamb, %adapted, %if_decay : f64

    %rate = step.mul %lr, %factor : f64
    %update = step.mul %u, %rate : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %m1, %v1
  }
}
