// Adam of apex' multi-tensor kernel: FusedAdam of apex, DeepSpeed and ColossalAI.
// Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015; with
// adam_w_mode Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
//
//   g     <- g + lambda * theta                       not adam_w_mode
//   m     <- beta1 * m + (1 - beta1) * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   u     <- m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
//   u     <- u + lambda * theta                       adam_w_mode
//   theta <- theta - lr * u
//
// Without bias_correction both corrections are 1. With group_step there is one count
// for a group: of the steps in which a tensor of it took part (apex, ColossalAI, which
// count steps without any gradient, too); else each parameter has its own. DeepSpeed
// means the latter ("tracking step count for each tensor separately"), but counts only
// for the last parameter that has a gradient, and once for each dtype in the group.
//
// The decay is with the old theta, inside the update; torch's AdamW and cpu_adam.mlir
// decay first, which differs by rounding only. (1 - beta2) * g is multiplied by g, in
// the kernel's order: g^2 alone overflows beyond 1.8e19, and v would stay infinite.

step.optimizer @fused_adam {
  %lr = step.hyper "lr" = 1.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 0.0
  %adam_w_mode = step.option "adam_w_mode" = true
  %bias_correction = step.option "bias_correction" = true
  %group_step = step.option "group_step" = true
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0

  %steps = step.scalar "step" = 0.0 over group
  step.scalars over group {
    %one = step.constant 1.0
    %next = step.add %steps, %one : f64
    step.update %steps, %next
    step.yield
  }

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %t: count) {
    %one = step.constant 1.0
    %pull = step.mul %theta, %lambda : [*], f64
    %pulled = step.add %grad, %pull : [*]
    %l2 = step.select %has_decay, %pulled, %grad : [*]
    %g = step.select %adam_w_mode, %grad, %l2 : [*]

    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [*], f64
    %m_gain = step.mul %g, %w1 : [*], f64
    %m1 = step.add %m_kept, %m_gain : [*]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %g_part = step.mul %g, %w2 : [*], f64
    %v_gain = step.mul %g_part, %g : [*]
    %v1 = step.add %v_kept, %v_gain : [*]

    %own = step.to_f64 %t
    %of_group = step.add %steps, %one : f64
    %number = step.select %group_step, %of_group, %own : f64
    %beta1_t = step.pow %beta1, %number
    %beta2_t = step.pow %beta2, %number
    %sum1 = step.sub %one, %beta1_t : f64
    %sum2 = step.sub %one, %beta2_t : f64
    %c1 = step.select %bias_correction, %sum1, %one : f64
    %c2 = step.select %bias_correction, %sum2, %one : f64
    %m_hat = step.div %m1, %c1 : [*], f64
    %v_hat = step.div %v1, %c2 : [*], f64
    %root = step.sqrt %v_hat : [*]
    %denom = step.add %root, %eps : [*], f64
    %ratio = step.div %m_hat, %denom : [*]

    %with_decay = step.add %ratio, %pull : [*]
    %decoupled = step.select %has_decay, %with_decay, %ratio : [*]
    %direction = step.select %adam_w_mode, %decoupled, %ratio : [*]
    %update = step.mul %direction, %lr : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %m1, %v1
  }
}
