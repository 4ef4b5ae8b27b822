// AdamW: decoupled weight decay.
// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019,
// algorithm 2; bias correction as in Kingma and Ba, "Adam", ICLR 2015.
//
//   theta <- theta - lr * lambda * theta
//   m     <- beta1 * m + (1 - beta1) * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   theta <- theta - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// amsgrad (Reddi et al., ICLR 2018, algorithm 2) divides by the largest v seen.
// States are named as in torch.optim.AdamW, whose formulas these are; apex,
// DeepSpeed and ColossalAI decay with the old theta inside the update instead,
// which differs by rounding only.

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
    %g = step.select %maximize, %ascent, %grad : i1, [*], [*]

    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    %theta1 = step.mul %theta, %keep : [*], f64

    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [*], [*], f64
    %w2 = step.sub %one, %beta2 : f64
    %gg = step.mul %g, %g : [*]
    %v1 = step.lerp %v, %gg, %w2 : [*], [*], f64
    %vmax1 = step.maximum %vmax, %v1 : [*]
    %second = step.select %amsgrad, %vmax1, %v1 : i1, [*], [*]

    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %c1 = step.sub %one, %beta1_t : f64
    %c2 = step.sub %one, %beta2_t : f64
    %alpha = step.div %lr, %c1 : f64
    %root_c2 = step.sqrt %c2 : f64

    %root = step.sqrt %second : [*]
    %scaled = step.div %root, %root_c2 : [*], f64
    %denom = step.add %scaled, %eps : [*], f64
    %ratio = step.div %m1, %denom : [*]
    %update = step.mul %ratio, %alpha : [*], f64
    %theta2 = step.sub %theta1, %update : [*]
    step.return %theta2, %m1, %v1, %vmax1
  }
}
