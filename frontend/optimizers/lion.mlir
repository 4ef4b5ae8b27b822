// Lion: the sign of an interpolated momentum.
// Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023,
// program 1 and algorithm 2.
//
//   c     <- beta1 * m + (1 - beta1) * g
//   theta <- theta - lr * lambda * theta
//   theta <- theta - lr * sign(c)
//   m     <- beta2 * m + (1 - beta2) * g
//
// As the authors' own code: the decay comes first, and the state is called
// exp_avg. There is no bias correction and no count. DeepSpeed has another
// default for beta2 (0.999).

step.optimizer @lion {
  %lr = step.hyper "lr" = 1.0e-4
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.99
  %lambda = step.hyper "weight_decay" = 0.0
  %maximize = step.option "maximize" = false

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "exp_avg"[*]) {
    %zero = step.constant 0.0
    %minus = step.constant -1.0
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %g = step.select %maximize, %ascent, %grad : [*]

    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    %theta1 = step.mul %theta, %keep : [*], f64

    %w1 = step.sub %one, %beta1 : f64
    %m_part = step.mul %m, %beta1 : [*], f64
    %g_part = step.mul %g, %w1 : [*], f64
    %c = step.add %m_part, %g_part : [*]
    %up = step.compare gt, %c, %zero : [*], f64
    %down = step.compare lt, %c, %zero : [*], f64
    %not_up = step.select %down, %minus, %zero : mask[*], f64
    %direction = step.select %up, %one, %not_up : mask[*], f64, [*]  // of NaN 0, as torch.sign
    %update = step.mul %direction, %lr : [*], f64
    %theta2 = step.sub %theta1, %update : [*]

    %w2 = step.sub %one, %beta2 : f64
    %m_kept = step.mul %m, %beta2 : [*], f64
    %g_gain = step.mul %g, %w2 : [*], f64
    %m1 = step.add %m_kept, %g_gain : [*]
    step.return %theta2, %m1
  }
}
