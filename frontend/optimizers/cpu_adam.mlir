// Adam of DeepSpeed's and ColossalAI's CPU kernels: DeepSpeedCPUAdam, CPUAdam, HybridAdam.
// Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015; with
// adamw_mode Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
//
//   g     <- g + lambda * theta                       not adamw_mode, where lambda > 0
//   m     <- beta1 * m + (1 - beta1) * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   u     <- m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//   theta <- theta - lr * lambda * theta              adamw_mode, where lambda > 0
//   theta <- theta - lr / (1 - beta1^t) * u
//
// Without bias_correction both corrections are 1. Each parameter has its count. This is
// csrc/adam/cpu_adam_impl.cpp of DeepSpeed, but for rounding: there all is f32, the
// hyper-parameters and the powers of beta too, and multiplications and additions are
// fused. ColossalAI's path for bf16 gradients corrects the bias in any case; here
// bias_correction says so. torch's Adam and AdamW differ by rounding only, and in that
// they have amsgrad.

step.optimizer @cpu_adam {
  %lr = step.hyper "lr" = 1.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 0.0
  %adamw_mode = step.option "adamw_mode" = true
  %bias_correction = step.option "bias_correction" = true
  %has_decay = step.option "has_weight_decay" = %lambda gt 0.0

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %t: count) {
    %one = step.constant 1.0
    %pull = step.mul %theta, %lambda : [*], f64
    %pulled = step.add %grad, %pull : [*]
    %l2 = step.select %has_decay, %pulled, %grad : [*]
    %g = step.select %adamw_mode, %grad, %l2 : [*]

    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [*], f64
    %m_gain = step.mul %g, %w1 : [*], f64
    %m1 = step.add %m_kept, %m_gain : [*]
    %w2 = step.sub %one, %beta2 : f64
    %gg = step.mul %g, %g : [*]
    %v_kept = step.mul %v, %beta2 : [*], f64
    %v_gain = step.mul %gg, %w2 : [*], f64
    %v1 = step.add %v_kept, %v_gain : [*]

    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %sum1 = step.sub %one, %beta1_t : f64
    %sum2 = step.sub %one, %beta2_t : f64
    %root_sum2 = step.sqrt %sum2 : f64
    %inverse = step.div %one, %root_sum2 : f64
    %c1 = step.select %bias_correction, %sum1, %one : f64
    %c2 = step.select %bias_correction, %inverse, %one : f64
    %root = step.sqrt %v1 : [*]
    %corrected = step.mul %root, %c2 : [*], f64
    %denom = step.add %corrected, %eps : [*], f64
    %ratio = step.div %m1, %denom : [*]

    %decay = step.mul %lr, %lambda : f64
    %lost = step.mul %theta, %decay : [*], f64
    %decayed = step.sub %theta, %lost : [*]
    %decoupled = step.select %has_decay, %decayed, %theta : [*]
    %theta1 = step.select %adamw_mode, %decoupled, %theta : [*]
    %step_size = step.div %lr, %c1 : f64
    %update = step.mul %ratio, %step_size : [*], f64
    %theta2 = step.sub %theta1, %update : [*]
    step.return %theta2, %m1, %v1
  }
}
