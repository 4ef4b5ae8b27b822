// Adadelta.
// Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012, algorithm 1.
//
//   g     <- g + lambda * theta                       where lambda is not 0
//   v     <- rho * v + (1 - rho) * g^2
//   d     <- sqrt(u + eps) / sqrt(v + eps) * g
//   u     <- rho * u + (1 - rho) * d^2
//   theta <- theta - lr * d
//
// Formulas and names of states are those of torch.optim.Adadelta, but for rounding. The
// paper has no lr, that is 1, and no weight decay. Keras has lr = 1e-3 by default.

step.optimizer @adadelta {
  %lr = step.hyper "lr" = 1.0
  %rho = step.hyper "rho" = 0.9
  %eps = step.hyper "eps" = 1.0e-6
  %lambda = step.hyper "weight_decay" = 0.0
  %maximize = step.option "maximize" = false
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0

  step.rule @any(%theta: param[*], %grad: grad[*], %v: state "square_avg"[*],
                 %u: state "acc_delta"[*]) {
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %signed = step.select %maximize, %ascent, %grad : [*]
    %pull = step.mul %theta, %lambda : [*], f64
    %pulled = step.add %signed, %pull : [*]
    %g = step.select %has_decay, %pulled, %signed : [*]

    %w = step.sub %one, %rho : f64
    %v_kept = step.mul %v, %rho : [*], f64
    %g_part = step.mul %g, %w : [*], f64
    %v_gain = step.mul %g_part, %g : [*]
    %v1 = step.add %v_kept, %v_gain : [*]
    %v_eps = step.add %v1, %eps : [*], f64
    %v_root = step.sqrt %v_eps : [*]
    %u_eps = step.add %u, %eps : [*], f64
    %u_root = step.sqrt %u_eps : [*]
    %ratio = step.div %u_root, %v_root : [*]
    %d = step.mul %ratio, %g : [*]

    %u_kept = step.mul %u, %rho : [*], f64
    %d_part = step.mul %d, %w : [*], f64
    %u_gain = step.mul %d_part, %d : [*]
    %u1 = step.add %u_kept, %u_gain : [*]
    %update = step.mul %d, %lr : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %v1, %u1
  }
}
