// AdamW: decoupled weight decay.
// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019,
// algorithm 2; bias correction as in Kingma and Ba, "Adam", ICLR 2015.
//
//   theta <- theta - lr * lambda * theta
//   m     <- beta1 * m + (1 - beta1) * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   theta <- theta - alpha_t * m / (sqrt(v) + eps_t),  where
//   alpha_t = lr * sqrt(1 - beta2^t) / (1 - beta1^t),  eps_t = eps * sqrt(1 - beta2^t)
//
// which is theta - lr * m_hat / (sqrt(v_hat) + eps) in the order of operations of
// Adam, section 2: both corrections are scalars, and one division an element is
// saved. (There eps itself is added; eps_t keeps it the eps of algorithm 1.)
//
// amsgrad (Reddi et al., ICLR 2018, algorithm 2) divides by the largest v seen.
// States are named as in torch.optim.AdamW, whose formulas these are but for
// rounding: torch divides sqrt(v) by sqrt(1 - beta2^t) for each element. apex,
// DeepSpeed and ColossalAI decay with the old theta inside the update instead,
// which differs by rounding only, too.

step.optimizer @adamw {
  %lr = step.hyper "lr" = 1.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 1.0e-2
  %amsgrad = step.option "amsgrad" = false
  %maximize = step.option "maximize" = false

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*],
                 %vmax: state "max_exp_avg_sq"[*] if %amsgrad, %t: count) {
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %g = step.select %maximize, %ascent, %grad : [*]

    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    %theta1 = step.mul %theta, %keep : [*], f64

    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [*], [*], f64
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %g_part = step.mul %g, %w2 : [*], f64
    %v_gain = step.mul %g_part, %g : [*]
    %v1 = step.add %v_kept, %v_gain : [*]
    %vmax1 = step.maximum %vmax, %v1 : [*]
    %second = step.select %amsgrad, %vmax1, %v1 : [*]

    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %c1 = step.sub %one, %beta1_t : f64
    %c2 = step.sub %one, %beta2_t : f64
    %root_c2 = step.sqrt %c2 : f64
    %step_size = step.div %lr, %c1 : f64
    %alpha_t = step.mul %step_size, %root_c2 : f64
    %eps_t = step.mul %eps, %root_c2 : f64

    %root = step.sqrt %second : [*]
    %denom = step.add %root, %eps_t : [*], f64
    %ratio = step.div %m1, %denom : [*]
    %update = step.mul %ratio, %alpha_t : [*], f64
    %theta2 = step.sub %theta1, %update : [*]
    step.return %theta2, %m1, %v1, %vmax1
  }
}
