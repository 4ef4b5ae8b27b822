// Adafactor: the second moment of a matrix from the sums of its rows and columns.
// Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory
// Cost", ICML 2018, algorithms 4 and 5, in the form of transformers' Adafactor.
//
//   rho   <- lr, or with relative_step min(kappa, 1 / sqrt(t)),
//            kappa = 1e-2, or with warmup_init 1e-6 * t
//   alpha <- rho * max(eps2, RMS(theta)), or without scale_parameter rho
//   w     <- t^decay_rate                              1 - beta2_t of the paper
//   R     <- (1 - w) * R + w * mean over m of (g^2 + eps1)
//   C     <- (1 - w) * C + w * mean over n of (g^2 + eps1)
//   V     <- R * C / mean over n of R
//   u     <- g / sqrt(V)
//   u     <- alpha * u / max(1, RMS(u) / clip_threshold)
//   m     <- beta1 * m + (1 - beta1) * u;  u <- m      where beta1 is not 0
//   theta <- theta - weight_decay * alpha * theta - u
//
// Without two dims V itself is kept, of g^2 + eps1; with more, the last two are
// factored and the others are a batch. RMS is over the whole tensor.
//
// States are named as transformers names them; its beta1=None is 0 here. All of it
// is transformers' mathematics. It divides R by its mean before the square root: in
// f32 that is 0 where a row's gradients are zero and the mean square of all is above
// 1e15, and the tensor becomes NaN. Here the roots come first. torch.optim's is
// torch_adafactor.mlir: it decays by lr * theta, and bounds V in place of adding
// eps1. ColossalAI's drops lr, and its RMS(theta) is always 0, so that alpha is
// 1e-3 * rho whatever the parameter.

step.optimizer @adafactor {
  %lr = step.hyper "lr" = 1.0e-3
  %eps1 = step.hyper "eps1" = 1.0e-30
  %eps2 = step.hyper "eps2" = 1.0e-3
  %clip = step.hyper "clip_threshold" = 1.0
  %decay_rate = step.hyper "decay_rate" = -0.8
  %beta1 = step.hyper "beta1" = 0.0
  %lambda = step.hyper "weight_decay" = 0.0
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
    %scale = step.select %scale_parameter, %size, %one : f64
    %alpha = step.mul %rho, %scale : f64
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
