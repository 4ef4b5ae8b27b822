// GaLore-Adafactor: Adafactor on a projection of the gradient of few rows or columns.
// J. Zhao et al., "GaLore: Memory-Efficient LLM Training by Gradient Low-Rank
// Projection", ICML 2024, algorithm 1, with the Adafactor of Shazeer and Stern, ICML 2018,
// in the form of the authors' galore_torch.GaLoreAdafactor.
//
//   P     <- the first rank right singular vectors of g, in steps 1, gap + 1, 2 gap + 1
//   l     <- g P
//   rho   <- lr, or with relative_step min(kappa, 1 / sqrt(t)),
//            kappa = 1e-2, or with warmup_init 1e-6 * t
//   alpha <- rho * max(eps2, RMS(theta)), or without scale_parameter rho
//   w     <- t^decay_rate                              1 - beta2_t of the paper
//   R     <- (1 - w) * R + w * mean of (l^2 + eps1) over the columns of l
//   C     <- (1 - w) * C + w * mean of (l^2 + eps1) over its rows
//   u     <- l / sqrt(R * C / mean of R)
//   u     <- alpha * u / max(1, RMS(u) / clip_threshold)
//   m     <- beta1 * m + (1 - beta1) * u;  u <- m      where beta1 is not 0
//   theta <- theta - weight_decay * alpha * theta - scale * u Pt
//
// so it is on the right side; which side that is, and what P follows from, is as in
// galore_adamw.mlir. RMS(theta) is of the whole parameter, RMS(u) of the projection's.
// Without low_rank, and where a parameter is no matrix, it is adafactor.mlir, whose roots
// come before R is divided by its mean here too. The authors' beta1=None is 0.

step.optimizer @galore_adafactor {
  %lr = step.hyper "lr" = 1.0e-3
  %eps1 = step.hyper "eps1" = 1.0e-30
  %eps2 = step.hyper "eps2" = 1.0e-3
  %clip = step.hyper "clip_threshold" = 1.0
  %decay_rate = step.hyper "decay_rate" = -0.8
  %beta1 = step.hyper "beta1" = 0.0
  %lambda = step.hyper "weight_decay" = 0.0
  %gap = step.hyper "update_proj_gap" = 200.0
  %scale = step.hyper "scale" = 0.25
  %rank = step.option "rank" = 128
  %low_rank = step.option "low_rank" = true
  %tall_right = step.option "tall_right" = true
  %wide_right = step.option "wide_right" = false
  %both_sides = step.option "both_sides" = false
  %scale_parameter = step.option "scale_parameter" = true
  %relative_step = step.option "relative_step" = true
  %warmup_init = step.option "warmup_init" = false
  %has_beta1 = step.option "has_beta1" = %beta1 ne 0.0
  %one = step.constant 1.0

  // rho and w.
  step.define @schedule(%t: i64) {
    %number = step.to_f64 %t
    %slow = step.constant 1.0e-6
    %fast = step.constant 1.0e-2
    %warm = step.mul %slow, %number : f64
    %kappa = step.select %warmup_init, %warm, %fast : f64
    %root_t = step.sqrt %number : f64
    %inverse_root = step.div %one, %root_t : f64
    %relative = step.minimum %kappa, %inverse_root : f64
    %rho = step.select %relative_step, %relative, %lr : f64
    %w = step.pow %number, %decay_rate
    step.yield %rho, %w : f64, f64
  }

  // alpha.
  step.define @rate(%rho: f64, %theta_mean: f64) {
    %theta_rms = step.sqrt %theta_mean : f64
    %large = step.compare gt, %theta_rms, %eps2 : f64
    %size = step.select %large, %theta_rms, %eps2 : f64
    %factor = step.select %scale_parameter, %size, %one : f64
    %alpha = step.mul %rho, %factor : f64
    step.yield %alpha : f64
  }

  // alpha / max(1, RMS(u) / clip_threshold).
  step.define @clipped(%alpha: f64, %u_mean: f64) {
    %u_rms = step.sqrt %u_mean : f64
    %excess = step.div %u_rms, %clip : f64
    %divisor = step.maximum %one, %excess : f64
    %rate = step.div %alpha, %divisor : f64
    step.yield %rate : f64
  }

  // 1 - weight_decay * alpha.
  step.define @keep(%alpha: f64) {
    %decay = step.mul %lambda, %alpha : f64
    %keep = step.sub %one, %decay : f64
    step.yield %keep : f64
  }

  // alpha, of a matrix.
  step.define @scaled_rate(%theta: [n, m], %rho: f64) {
    %theta_sq = step.mul %theta, %theta : [n, m]
    %theta_mean = step.mean %theta_sq : [n, m]
    %alpha = step.call @rate(%rho, %theta_mean) : (f64, f64) -> f64
    step.yield %alpha : f64
  }

  // The left singular vectors, and the right ones.
  step.define @left_vectors(%g: [n, m]) {
    %gt = step.transpose %g : [n, m]
    %gram = step.matmul %g, %gt {accumulate = f64} : [n, m], [m, n]
    %vectors = step.eigh %gram : [n, n]
    step.yield %vectors : [n, n]
  }
  step.define @right_vectors(%g: [n, m]) {
    %gt = step.transpose %g : [n, m]
    %gram = step.matmul %gt, %g {accumulate = f64} : [m, n], [n, m]
    %vectors = step.eigh %gram : [m, m]
    step.yield %vectors : [m, m]
  }

  step.rule @both(%theta: param[n, m], %g: grad[n, m],
                  %p: state "projection"[n, r], %q: state "projection_right"[m, q],
                  %m: state "exp_avg"[r, q] if %has_beta1,
                  %r: state "exp_avg_sq_row"[r, 1], %c: state "exp_avg_sq_col"[1, q],
                  %fresh: fresh("projection", "projection_right"), %t: count)
      dim r = min %rank, n, m dim q = min %rank, n, m
      where %low_rank, %both_sides {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %p1, %q1 = step.when %due, %p, %q : [n, r], [m, q] {
      %left = step.call @left_vectors(%g) : ([n, m]) -> [n, n]
      %first = step.first %left, r : [n, n]
      %right = step.call @right_vectors(%g) : ([n, m]) -> [m, m]
      %first_right = step.first %right, q : [m, m]
      step.yield %first, %first_right : [n, r], [m, q]
    }
    %pt = step.transpose %p1 : [n, r]
    %half = step.matmul %pt, %g : [r, n], [n, m]
    %l = step.matmul %half, %q1 : [r, m], [m, q]

    %rho, %w = step.call @schedule(%t) : (i64) -> (f64, f64)
    %alpha = step.call @scaled_rate(%theta, %rho) : ([n, m], f64) -> f64
    %ll = step.mul %l, %l : [r, q]
    %sq = step.add %ll, %eps1 : [r, q], f64
    %row_mean = step.mean %sq over [q] : [r, q]
    %col_mean = step.mean %sq over [r] : [r, q]
    %r1 = step.lerp %r, %row_mean, %w : [r, 1], [r, 1], f64
    %c1 = step.lerp %c, %col_mean, %w : [1, q], [1, q], f64
    %root_r = step.sqrt %r1 : [r, 1]
    %row = step.div %one, %root_r : f64, [r, 1]
    %mean_r = step.mean %r1 over [r] : [r, 1]
    %root_mean = step.sqrt %mean_r : [1, 1]
    %root_c = step.sqrt %c1 : [1, q]
    %col = step.div %root_mean, %root_c : [1, 1], [1, q]
    %by_row = step.mul %l, %row : [r, q], [r, 1]
    %u = step.mul %by_row, %col : [r, q], [1, q]
    %uu = step.mul %u, %u : [r, q]
    %u_mean = step.mean %uu : [r, q]
    %rate = step.call @clipped(%alpha, %u_mean) : (f64, f64) -> f64
    %update = step.mul %u, %rate : [r, q], f64
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [r, q], f64
    %m_gain = step.mul %update, %w1 : [r, q], f64
    %m1 = step.add %m_kept, %m_gain : [r, q]
    %low_move = step.select %has_beta1, %m1, %update : [r, q]

    %qt = step.transpose %q1 : [m, q]
    %half_back = step.matmul %p1, %low_move : [n, r], [r, q]
    %back = step.matmul %half_back, %qt : [n, q], [q, m]
    %move = step.mul %back, %scale : [n, m], f64
    %keep = step.call @keep(%alpha) : (f64) -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %theta1 = step.sub %kept, %move : [n, m]
    step.return %theta1, %p1, %q1, %m1, %r1, %c1
      : [n, m], [n, r], [m, q], [r, q], [r, 1], [1, q]
  }

  step.rule @left_of_tall(%theta: param[n, m], %g: grad[n, m],
                          %p: state "projection"[n, r], %m: state "exp_avg"[r, m] if %has_beta1,
                          %r: state "exp_avg_sq_row"[r, 1], %c: state "exp_avg_sq_col"[1, m],
                          %fresh: fresh("projection"), %t: count)
      dim r = min %rank, n, m where %low_rank, extent 0 ge extent 1, not %tall_right {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %p1 = step.when %due, %p : [n, r] {
      %vectors = step.call @left_vectors(%g) : ([n, m]) -> [n, n]
      %first = step.first %vectors, r : [n, n]
      step.yield %first : [n, r]
    }
    %pt = step.transpose %p1 : [n, r]
    %l = step.matmul %pt, %g : [r, n], [n, m]

    %rho, %w = step.call @schedule(%t) : (i64) -> (f64, f64)
    %alpha = step.call @scaled_rate(%theta, %rho) : ([n, m], f64) -> f64
    %ll = step.mul %l, %l : [r, m]
    %sq = step.add %ll, %eps1 : [r, m], f64
    %row_mean = step.mean %sq over [m] : [r, m]
    %col_mean = step.mean %sq over [r] : [r, m]
    %r1 = step.lerp %r, %row_mean, %w : [r, 1], [r, 1], f64
    %c1 = step.lerp %c, %col_mean, %w : [1, m], [1, m], f64
    %root_r = step.sqrt %r1 : [r, 1]
    %row = step.div %one, %root_r : f64, [r, 1]
    %mean_r = step.mean %r1 over [r] : [r, 1]
    %root_mean = step.sqrt %mean_r : [1, 1]
    %root_c = step.sqrt %c1 : [1, m]
    %col = step.div %root_mean, %root_c : [1, 1], [1, m]
    %by_row = step.mul %l, %row : [r, m], [r, 1]
    %u = step.mul %by_row, %col : [r, m], [1, m]
    %uu = step.mul %u, %u : [r, m]
    %u_mean = step.mean %uu : [r, m]
    %rate = step.call @clipped(%alpha, %u_mean) : (f64, f64) -> f64
    %update = step.mul %u, %rate : [r, m], f64
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [r, m], f64
    %m_gain = step.mul %update, %w1 : [r, m], f64
    %m1 = step.add %m_kept, %m_gain : [r, m]
    %low_move = step.select %has_beta1, %m1, %update : [r, m]

    %back = step.matmul %p1, %low_move : [n, r], [r, m]
    %move = step.mul %back, %scale : [n, m], f64
    %keep = step.call @keep(%alpha) : (f64) -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %theta1 = step.sub %kept, %move : [n, m]
    step.return %theta1, %p1, %m1, %r1, %c1
      : [n, m], [n, r], [r, m], [r, 1], [1, m]
  }

  step.rule @left_of_wide(%theta: param[n, m], %g: grad[n, m],
                          %p: state "projection"[n, r], %m: state "exp_avg"[r, m] if %has_beta1,
                          %r: state "exp_avg_sq_row"[r, 1], %c: state "exp_avg_sq_col"[1, m],
                          %fresh: fresh("projection"), %t: count)
      dim r = min %rank, n, m where %low_rank, extent 0 lt extent 1, not %wide_right {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %p1 = step.when %due, %p : [n, r] {
      %vectors = step.call @left_vectors(%g) : ([n, m]) -> [n, n]
      %first = step.first %vectors, r : [n, n]
      step.yield %first : [n, r]
    }
    %pt = step.transpose %p1 : [n, r]
    %l = step.matmul %pt, %g : [r, n], [n, m]

    %rho, %w = step.call @schedule(%t) : (i64) -> (f64, f64)
    %alpha = step.call @scaled_rate(%theta, %rho) : ([n, m], f64) -> f64
    %ll = step.mul %l, %l : [r, m]
    %sq = step.add %ll, %eps1 : [r, m], f64
    %row_mean = step.mean %sq over [m] : [r, m]
    %col_mean = step.mean %sq over [r] : [r, m]
    %r1 = step.lerp %r, %row_mean, %w : [r, 1], [r, 1], f64
    %c1 = step.lerp %c, %col_mean, %w : [1, m], [1, m], f64
    %root_r = step.sqrt %r1 : [r, 1]
    %row = step.div %one, %root_r : f64, [r, 1]
    %mean_r = step.mean %r1 over [r] : [r, 1]
    %root_mean = step.sqrt %mean_r : [1, 1]
    %root_c = step.sqrt %c1 : [1, m]
    %col = step.div %root_mean, %root_c : [1, 1], [1, m]
    %by_row = step.mul %l, %row : [r, m], [r, 1]
    %u = step.mul %by_row, %col : [r, m], [1, m]
    %uu = step.mul %u, %u : [r, m]
    %u_mean = step.mean %uu : [r, m]
    %rate = step.call @clipped(%alpha, %u_mean) : (f64, f64) -> f64
    %update = step.mul %u, %rate : [r, m], f64
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [r, m], f64
    %m_gain = step.mul %update, %w1 : [r, m], f64
    %m1 = step.add %m_kept, %m_gain : [r, m]
    %low_move = step.select %has_beta1, %m1, %update : [r, m]

    %back = step.matmul %p1, %low_move : [n, r], [r, m]
    %move = step.mul %back, %scale : [n, m], f64
    %keep = step.call @keep(%alpha) : (f64) -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %theta1 = step.sub %kept, %move : [n, m]
    step.return %theta1, %p1, %m1, %r1, %c1
      : [n, m], [n, r], [r, m], [r, 1], [1, m]
  }

  step.rule @right(%theta: param[n, m], %g: grad[n, m],
                   %p: state "projection"[m, r], %m: state "exp_avg"[n, r] if %has_beta1,
                   %r: state "exp_avg_sq_row"[n, 1], %c: state "exp_avg_sq_col"[1, r],
                   %fresh: fresh("projection"), %t: count)
      dim r = min %rank, n, m where %low_rank {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %p1 = step.when %due, %p : [m, r] {
      %vectors = step.call @right_vectors(%g) : ([n, m]) -> [m, m]
      %first = step.first %vectors, r : [m, m]
      step.yield %first : [m, r]
    }
    %l = step.matmul %g, %p1 : [n, m], [m, r]

    %rho, %w = step.call @schedule(%t) : (i64) -> (f64, f64)
    %alpha = step.call @scaled_rate(%theta, %rho) : ([n, m], f64) -> f64
    %ll = step.mul %l, %l : [n, r]
    %sq = step.add %ll, %eps1 : [n, r], f64
    %row_mean = step.mean %sq over [r] : [n, r]
    %col_mean = step.mean %sq over [n] : [n, r]
    %r1 = step.lerp %r, %row_mean, %w : [n, 1], [n, 1], f64
    %c1 = step.lerp %c, %col_mean, %w : [1, r], [1, r], f64
    %root_r = step.sqrt %r1 : [n, 1]
    %row = step.div %one, %root_r : f64, [n, 1]
    %mean_r = step.mean %r1 over [n] : [n, 1]
    %root_mean = step.sqrt %mean_r : [1, 1]
    %root_c = step.sqrt %c1 : [1, r]
    %col = step.div %root_mean, %root_c : [1, 1], [1, r]
    %by_row = step.mul %l, %row : [n, r], [n, 1]
    %u = step.mul %by_row, %col : [n, r], [1, r]
    %uu = step.mul %u, %u : [n, r]
    %u_mean = step.mean %uu : [n, r]
    %rate = step.call @clipped(%alpha, %u_mean) : (f64, f64) -> f64
    %update = step.mul %u, %rate : [n, r], f64
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [n, r], f64
    %m_gain = step.mul %update, %w1 : [n, r], f64
    %m1 = step.add %m_kept, %m_gain : [n, r]
    %low_move = step.select %has_beta1, %m1, %update : [n, r]

    %pt = step.transpose %p1 : [m, r]
    %back = step.matmul %low_move, %pt : [n, r], [r, m]
    %move = step.mul %back, %scale : [n, m], f64
    %keep = step.call @keep(%alpha) : (f64) -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %theta1 = step.sub %kept, %move : [n, m]
    step.return %theta1, %p1, %m1, %r1, %c1
      : [n, m], [m, r], [n, r], [n, 1], [1, r]
  }

  step.rule @matrix(%theta: param[...b, n, m], %g: grad[...b, n, m],
                    %m: state "exp_avg"[...b, n, m] if %has_beta1,
                    %r: state "exp_avg_sq_row"[...b, n, 1],
                    %c: state "exp_avg_sq_col"[...b, 1, m], %t: count) {
    %rho, %w = step.call @schedule(%t) : (i64) -> (f64, f64)
    %theta_sq = step.mul %theta, %theta : [...b, n, m]
    %theta_mean = step.mean %theta_sq : [...b, n, m]
    %alpha = step.call @rate(%rho, %theta_mean) : (f64, f64) -> f64

    %gg = step.mul %g, %g : [...b, n, m]
    %sq = step.add %gg, %eps1 : [...b, n, m], f64
    %row_mean = step.mean %sq over [m] : [...b, n, m]
    %col_mean = step.mean %sq over [n] : [...b, n, m]
    %r1 = step.lerp %r, %row_mean, %w : [...b, n, 1], [...b, n, 1], f64
    %c1 = step.lerp %c, %col_mean, %w : [...b, 1, m], [...b, 1, m], f64

    // u = g / sqrt(V), where 1 / sqrt(V) is a factor of the row times one of the column.
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
    %rate = step.call @clipped(%alpha, %u_mean) : (f64, f64) -> f64
    %update = step.mul %u, %rate : [...b, n, m], f64
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [...b, n, m], f64
    %m_gain = step.mul %update, %w1 : [...b, n, m], f64
    %m1 = step.add %m_kept, %m_gain : [...b, n, m]
    %move = step.select %has_beta1, %m1, %update : [...b, n, m]

    %keep = step.call @keep(%alpha) : (f64) -> f64
    %kept = step.mul %theta, %keep : [...b, n, m], f64
    %theta1 = step.sub %kept, %move : [...b, n, m]
    step.return %theta1, %m1, %r1, %c1
      : [...b, n, m], [...b, n, m], [...b, n, 1], [...b, 1, m]
  }

  step.rule @any(%theta: param[*], %g: grad[*], %m: state "exp_avg"[*] if %has_beta1,
                 %v: state "exp_avg_sq"[*], %t: count) {
    %rho, %w = step.call @schedule(%t) : (i64) -> (f64, f64)
    %theta_sq = step.mul %theta, %theta : [*]
    %theta_mean = step.mean %theta_sq : [*]
    %alpha = step.call @rate(%rho, %theta_mean) : (f64, f64) -> f64

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
    %rate = step.call @clipped(%alpha, %u_mean) : (f64, f64) -> f64
    %update = step.mul %u, %rate : [*], f64
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [*], f64
    %m_gain = step.mul %update, %w1 : [*], f64
    %m1 = step.add %m_kept, %m_gain : [*]
    %move = step.select %has_beta1, %m1, %update : [*]

    %keep = step.call @keep(%alpha) : (f64) -> f64
    %kept = step.mul %theta, %keep : [*], f64
    %theta1 = step.sub %kept, %move : [*]
    step.return %theta1, %m1, %v1
  }
}
