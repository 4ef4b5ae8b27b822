// AdaLomo: Adafactor's second moment and update normalization, without momentum.
// Lv et al., "AdaLomo: Low-memory Optimization with Adaptive Learning Rate",
// Findings of ACL 2024, algorithm 1.
//
//   w     <- t^decay_rate
//   R     <- (1 - w) * R + w * mean over m of (g^2 + eps1)
//   C     <- (1 - w) * C + w * mean over n of (g^2 + eps1)
//   u     <- g / sqrt(R * C / mean over n of R)
//   u     <- u / max(1, RMS(u) / clip_threshold)
//   alpha <- lr * max(eps2, RMS(theta))
//   theta <- theta - alpha * weight_decay * theta
//   theta <- theta - alpha * u
//
// Without two dims the second moment is kept whole. The paper writes a decay beta;
// its schedule 1 - t^decay_rate is that of the authors' lomo_optim and of Adafactor.
//
// States are named as in lomo_optim, which departs: of more than two dims it keeps
// vectors of the first two extents, whose shapes do not fit, and fails; here the
// last two are factored and the others are a batch, as in Adafactor. The square roots
// come before the quotients here, as adafactor.mlir explains.

step.optimizer @adalomo {
  %lr = step.hyper "lr" = 1.0e-3
  %eps1 = step.hyper "eps1" = 1.0e-30
  %eps2 = step.hyper "eps2" = 1.0e-3
  %clip = step.hyper "clip_threshold" = 1.0
  %decay_rate = step.hyper "decay_rate" = -0.8
  %lambda = step.hyper "weight_decay" = 0.0
  %one = step.constant 1.0

  step.define @w(%t: i64) {
    %number = step.to_f64 %t
    %w = step.pow %number, %decay_rate
    step.yield %w : f64
  }

  // 1 - alpha * weight_decay, and alpha / max(1, RMS(u) / clip_threshold).
  step.define @rates(%theta_mean: f64, %u_mean: f64) {
    %u_rms = step.sqrt %u_mean : f64
    %excess = step.div %u_rms, %clip : f64
    %divisor = step.maximum %one, %excess : f64
    %theta_rms = step.sqrt %theta_mean : f64
    %large = step.compare gt, %theta_rms, %eps2 : f64
    %size = step.select %large, %theta_rms, %eps2 : f64
    %alpha = step.mul %lr, %size : f64
    %decay = step.mul %alpha, %lambda : f64
    %keep = step.sub %one, %decay : f64
    %rate = step.div %alpha, %divisor : f64
    step.yield %keep, %rate : f64, f64
  }

  step.rule @matrix(%theta: param[...b, n, m], %g: grad[...b, n, m],
                    %r: state "exp_avg_sq_row"[...b, n, 1],
                    %c: state "exp_avg_sq_col"[...b, 1, m], %t: count) {
    %w = step.call @w(%t) : (i64) -> f64
    %gg = step.mul %g, %g : [...b, n, m]
    %sq = step.add %gg, %eps1 : [...b, n, m], f64
    %row_mean = step.mean %sq over [m] : [...b, n, m]
    %col_mean = step.mean %sq over [n] : [...b, n, m]
    %r1 = step.lerp %r, %row_mean, %w : [...b, n, 1], [...b, n, 1], f64
    %c1 = step.lerp %c, %col_mean, %w : [...b, 1, m], [...b, 1, m], f64
    %root_r = step.sqrt %r1 : [...b, n, 1]
    %row = step.div %one, %root_r : f64, [...b, n, 1]
    %mean_r = step.mean %r1 over [n] : [...b, n, 1]
    %root_mean = step.sqrt %mean_r : [...b, 1, 1]
    %root_c = step.sqrt %c1 : [...b, 1, m]
    %col = step.div %root_mean, %root_c : [...b, 1, 1], [...b, 1, m]
    %by_row = step.mul %g, %row : [...b, n, m], [...b, n, 1]
    %u = step.mul %by_row, %col : [...b, n, m], [...b, 1, m]

    %uu = step.mul %u, %u : [...b, n, m]
    %u_mean = step.mean %uu reassociable : [...b, n, m]
    %theta_sq = step.mul %theta, %theta : [...b, n, m]
    %theta_mean = step.mean %theta_sq : [...b, n, m]
    %keep, %rate = step.call @rates(%theta_mean, %u_mean) : (f64, f64) -> (f64, f64)

    %theta1 = step.mul %theta, %keep : [...b, n, m], f64
    %update = step.mul %u, %rate : [...b, n, m], f64
    %theta2 = step.sub %theta1, %update : [...b, n, m]
    step.return %theta2, %r1, %c1 : [...b, n, m], [...b, n, 1], [...b, 1, m]
  }

  step.rule @any(%theta: param[*], %g: grad[*], %v: state "exp_avg_sq"[*], %t: count) {
    %w = step.call @w(%t) : (i64) -> f64
    %beta2_t = step.sub %one, %w : f64
    %gg = step.mul %g, %g : [*]
    %sq = step.add %gg, %eps1 : [*], f64
    %v_kept = step.mul %v, %beta2_t : [*], f64
    %v_gain = step.mul %sq, %w : [*], f64
    %v1 = step.add %v_kept, %v_gain : [*]
    %root = step.sqrt %v1 : [*]
    %u = step.div %g, %root : [*]

    %uu = step.mul %u, %u : [*]
    %u_mean = step.mean %uu : [*]
    %theta_sq = step.mul %theta, %theta : [*]
    %theta_mean = step.mean %theta_sq : [*]
    %keep, %rate = step.call @rates(%theta_mean, %u_mean) : (f64, f64) -> (f64, f64)

    %theta1 = step.mul %theta, %keep : [*], f64
    %update = step.mul %u, %rate : [*], f64
    %theta2 = step.sub %theta1, %update : [*]
    step.return %theta2, %v1
  }
}
