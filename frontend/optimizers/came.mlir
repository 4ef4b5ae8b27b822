// CAME: Adafactor with momentum, divided by how far the update is from it.
// Luo et al., "CAME: Confidence-guided Adaptive Memory Efficient Optimization",
// ACL 2023, algorithm 2.
//
//   R     <- beta2 * R + (1 - beta2) * mean over m of (g^2 + eps1)
//   C     <- beta2 * C + (1 - beta2) * mean over n of (g^2 + eps1)
//   u     <- g / sqrt(R * C / mean over n of R)
//   u     <- u / max(1, RMS(u) / clip_threshold)
//   m     <- beta1 * m + (1 - beta1) * u
//   Rr    <- beta3 * Rr + (1 - beta3) * mean over m of ((u - m)^2 + eps2)
//   Cr    <- beta3 * Cr + (1 - beta3) * mean over n of ((u - m)^2 + eps2)
//   theta <- theta - lr * weight_decay * theta
//   theta <- theta - lr * m / sqrt(Rr * Cr / mean over n of Rr)
//
// with the new m in u - m. Without two dims the second moment is kept whole and m
// is the update, as in the authors' code: the paper speaks of matrices only. With
// more than two, the last two are factored and the others are a batch.
//
// States are named as in the authors' came_pytorch, whose mathematics this is. As in
// adafactor.mlir the square roots come before the quotients. ColossalAI's distributed CAME keeps the
// residual's rows in those of the squared gradients from the second step on, and
// multiplies the momentum of vectors by lr: neither is the paper's.

step.optimizer @came {
  %lr = step.hyper "lr" = 2.0e-4
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %beta3 = step.hyper "beta3" = 0.9999
  %eps1 = step.hyper "eps1" = 1.0e-30
  %eps2 = step.hyper "eps2" = 1.0e-16
  %clip = step.hyper "clip_threshold" = 1.0
  %lambda = step.hyper "weight_decay" = 0.0
  %one = step.constant 1.0

  // 1 / max(1, RMS(u) / clip_threshold).
  step.define @clipping(%u_mean: f64) {
    %u_rms = step.sqrt %u_mean : f64
    %excess = step.div %u_rms, %clip : f64
    %divisor = step.maximum %one, %excess : f64
    %factor = step.div %one, %divisor : f64
    step.yield %factor : f64
  }

  // 1 - lr * weight_decay.
  step.define @keep() {
    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    step.yield %keep : f64
  }

  step.rule @matrix(%theta: param[...b, n, m], %g: grad[...b, n, m],
                    %m: state "exp_avg"[...b, n, m],
                    %r: state "exp_avg_sq_row"[...b, n, 1],
                    %c: state "exp_avg_sq_col"[...b, 1, m],
                    %rr: state "exp_avg_res_row"[...b, n, 1],
                    %cr: state "exp_avg_res_col"[...b, 1, m]) {
    %w2 = step.sub %one, %beta2 : f64
    %gg = step.mul %g, %g : [...b, n, m]
    %sq = step.add %gg, %eps1 : [...b, n, m], f64
    %row_mean = step.mean %sq over [m] : [...b, n, m]
    %col_mean = step.mean %sq over [n] : [...b, n, m]
    %r1 = step.lerp %r, %row_mean, %w2 : [...b, n, 1], [...b, n, 1], f64
    %c1 = step.lerp %c, %col_mean, %w2 : [...b, 1, m], [...b, 1, m], f64
    %root_r = step.sqrt %r1 : [...b, n, 1]
    %row = step.div %one, %root_r : f64, [...b, n, 1]
    %mean_r = step.mean %r1 over [n] : [...b, n, 1]
    %root_mean = step.sqrt %mean_r : [...b, 1, 1]
    %root_c = step.sqrt %c1 : [...b, 1, m]
    %col = step.div %root_mean, %root_c : [...b, 1, 1], [...b, 1, m]
    %by_row = step.mul %g, %row : [...b, n, m], [...b, n, 1]
    %raw = step.mul %by_row, %col : [...b, n, m], [...b, 1, m]

    %raw_sq = step.mul %raw, %raw : [...b, n, m]
    %raw_mean = step.mean %raw_sq reassociable : [...b, n, m]
    %factor = step.call @clipping(%raw_mean) : (f64) -> f64
    %u = step.mul %raw, %factor : [...b, n, m], f64
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [...b, n, m], f64
    %m_gain = step.mul %u, %w1 : [...b, n, m], f64
    %m1 = step.add %m_kept, %m_gain : [...b, n, m]

    %w3 = step.sub %one, %beta3 : f64
    %off = step.sub %u, %m1 : [...b, n, m]
    %off_sq = step.mul %off, %off : [...b, n, m]
    %res = step.add %off_sq, %eps2 : [...b, n, m], f64
    %res_row = step.mean %res over [m] : [...b, n, m]
    %res_col = step.mean %res over [n] : [...b, n, m]
    %rr1 = step.lerp %rr, %res_row, %w3 : [...b, n, 1], [...b, n, 1], f64
    %cr1 = step.lerp %cr, %res_col, %w3 : [...b, 1, m], [...b, 1, m], f64
    %mean_rr = step.mean %rr1 over [n] : [...b, n, 1]
    %root_mean_rr = step.sqrt %mean_rr : [...b, 1, 1]
    %root_rr = step.sqrt %rr1 : [...b, n, 1]
    %trust_row = step.div %root_mean_rr, %root_rr : [...b, 1, 1], [...b, n, 1]
    %root_cr = step.sqrt %cr1 : [...b, 1, m]
    %trust_col = step.div %one, %root_cr : f64, [...b, 1, m]
    %m_by_row = step.mul %m1, %trust_row : [...b, n, m], [...b, n, 1]
    %direction = step.mul %m_by_row, %trust_col : [...b, n, m], [...b, 1, m]

    %keep = step.call @keep() : () -> f64
    %theta1 = step.mul %theta, %keep : [...b, n, m], f64
    %update = step.mul %direction, %lr : [...b, n, m], f64
    %theta2 = step.sub %theta1, %update : [...b, n, m]
    step.return %theta2, %m1, %r1, %c1, %rr1, %cr1
      : [...b, n, m], [...b, n, m], [...b, n, 1], [...b, 1, m], [...b, n, 1], [...b, 1, m]
  }

  step.rule @any(%theta: param[*], %g: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*]) {
    %w2 = step.sub %one, %beta2 : f64
    %gg = step.mul %g, %g : [*]
    %sq = step.add %gg, %eps1 : [*], f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %v_gain = step.mul %sq, %w2 : [*], f64
    %v1 = step.add %v_kept, %v_gain : [*]
    %root = step.sqrt %v1 : [*]
    %raw = step.div %g, %root : [*]

    %raw_sq = step.mul %raw, %raw : [*]
    %raw_mean = step.mean %raw_sq : [*]
    %factor = step.call @clipping(%raw_mean) : (f64) -> f64
    %u = step.mul %raw, %factor : [*], f64
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [*], f64
    %m_gain = step.mul %u, %w1 : [*], f64
    %m1 = step.add %m_kept, %m_gain : [*]

    %keep = step.call @keep() : () -> f64
    %theta1 = step.mul %theta, %keep : [*], f64
    %update = step.mul %m1, %lr : [*], f64
    %theta2 = step.sub %theta1, %update : [*]
    step.return %theta2, %m1, %v1
  }
}
