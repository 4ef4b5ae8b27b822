// NAdam: Adam with Nesterov momentum.
// Dozat, "Incorporating Nesterov Momentum into Adam", ICLR workshop 2016; the schedule
// of the momentum is that of Sutskever et al. with the paper's constants.
//
//   mu_t     = beta1 * (1 - 0.96^(t * psi) / 2)
//   prod_t   = mu_1 * ... * mu_t
//   g     <- g + lambda * theta                       where lambda is not 0
//   m     <- beta1 * m + (1 - beta1) * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   d     <- sqrt(v / (1 - beta2^t)) + eps
//   theta <- theta - lr * (1 - mu_t) / (1 - prod_t) * g / d
//   theta <- theta - lr * mu_(t+1) / (1 - prod_(t+1)) * m / d
//
// psi is momentum_decay. With decoupled_weight_decay the first line is
// theta <- theta - lr * lambda * theta.
//
// Formulas and names of states are those of torch.optim.NAdam. It departs from the
// paper, as torch does: m is averaged with beta1 while the paper's is with mu_t. The
// product is a state of one element in the parameter's compute type: f32 in torch
// also beside an f64 parameter, unless torch's default type is f64. Keras has the
// product of all mu in one variable for the model.

step.optimizer @nadam {
  %lr = step.hyper "lr" = 2.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 0.0
  %psi = step.hyper "momentum_decay" = 4.0e-3
  %decoupled = step.option "decoupled_weight_decay" = false
  %maximize = step.option "maximize" = false
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0

  // mu of a step.
  step.define @mu(%number: f64) {
    %one = step.constant 1.0
    %half = step.constant 0.5
    %base = step.constant 0.96
    %psi_t = step.mul %number, %psi : f64
    %fading = step.pow %base, %psi_t
    %less = step.mul %half, %fading : f64
    %share = step.sub %one, %less : f64
    %mu = step.mul %beta1, %share : f64
    step.yield %mu : f64
  }

  step.rule @any(%theta: param[*], %grad: grad[*], %prod: state "mu_product"[1] = 1.0,
                 %m: state "exp_avg"[*], %v: state "exp_avg_sq"[*], %t: count) {
    %one = step.constant 1.0
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

    %number = step.to_f64 %t
    %next = step.add %number, %one : f64
    %mu = step.call @mu(%number) : (f64) -> f64
    %mu_next = step.call @mu(%next) : (f64) -> f64
    %prod1 = step.mul %prod, %mu : [1], f64
    %product = step.sum %prod1 : [1]
    %product_next = step.mul %product, %mu_next : f64

    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [*], [*], f64
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %g_part = step.mul %g, %w2 : [*], f64
    %v_gain = step.mul %g_part, %g : [*]
    %v1 = step.add %v_kept, %v_gain : [*]
    %beta2_t = step.powi %beta2, %t
    %c2 = step.sub %one, %beta2_t : f64
    %v_hat = step.div %v1, %c2 : [*], f64
    %root = step.sqrt %v_hat : [*]
    %denom = step.add %root, %eps : [*], f64

    %rest = step.sub %one, %mu : f64
    %of_grad = step.mul %lr, %rest : f64
    %c_grad = step.sub %one, %product : f64
    %rate_grad = step.div %of_grad, %c_grad : f64
    %of_momentum = step.mul %lr, %mu_next : f64
    %c_momentum = step.sub %one, %product_next : f64
    %rate_momentum = step.div %of_momentum, %c_momentum : f64
    %ratio_grad = step.div %g, %denom : [*]
    %update_grad = step.mul %ratio_grad, %rate_grad : [*], f64
    %theta2 = step.sub %theta1, %update_grad : [*]
    %ratio_momentum = step.div %m1, %denom : [*]
    %update_momentum = step.mul %ratio_momentum, %rate_momentum : [*], f64
    %theta3 = step.sub %theta2, %update_momentum : [*]
    step.return %theta3, %prod1, %m1, %v1 : [*], [1], [*], [*]
  }
}
