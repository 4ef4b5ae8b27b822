// Adafactor as in torch.optim.Adafactor.
// Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory
// Cost", ICML 2018, algorithms 4 and 5, with torch's documented changes.
//
//   rho   <- min(lr, 1 / sqrt(t))
//   alpha <- rho * max(eps2, RMS(theta))
//   theta <- theta - lr * weight_decay * theta         after alpha was taken
//   w     <- t^beta2_decay                             1 - beta2_t of the paper
//   R     <- (1 - w) * R + w * mean over m of g^2
//   C     <- (1 - w) * C + w * mean over n of g^2
//   V     <- R * C / max(eps1, mean over n of R)
//   u     <- g / sqrt(max(eps1^2, V))
//   theta <- theta - alpha * u / max(1, RMS(u) / d)
//
// Without two dims V itself is kept; with more, the last two are factored and the
// others are a batch. States are named as in torch.
//
// It departs from the paper and from transformers (adafactor.mlir), as torch does:
// eps1 bounds V and the mean of R in place of being added to g^2, lr bounds rho in
// place of 1e-2, and the weight decay is lr's, not alpha's. torch's eps1=None is the
// machine epsilon of the parameter's type; the default here is that of f32. With it
// gradients whose RMS is below 1e-7 move the parameter less and less; with
// transformers' eps1 they do not. Here 1 / sqrt(V) is bounded by 1 / eps1; torch bounds
// V by eps1^2 in the parameter's type, where that is 0 for an eps1 below 2e-23, and
// makes NaN of a zero over a zero V. A NaN in a gradient is in the whole tensor then, and
// so is what an infinity makes; in torch not always (of a vector, or of one item of a
// batch, a NaN stays where it is), since Python's max(1.0, nan) is 1.

step.optimizer @torch_adafactor {
  %lr = step.hyper "lr" = 1.0e-2
  %beta2_decay = step.hyper "beta2_decay" = -0.8
  %eps1 = step.hyper "eps1" = 1.1920928955078125e-7
  %eps2 = step.hyper "eps2" = 1.0e-3
  %d = step.hyper "d" = 1.0
  %lambda = step.hyper "weight_decay" = 0.0
  %maximize = step.option "maximize" = false
  %one = step.constant 1.0

  // w, alpha, and 1 - lr * weight_decay.
  step.define @schedule(%t: i64, %theta_mean: f64) {
    %number = step.to_f64 %t
    %root_t = step.sqrt %number : f64
    %inverse_root = step.div %one, %root_t : f64
    %rho = step.minimum %lr, %inverse_root : f64
    %theta_rms = step.sqrt %theta_mean : f64
    %large = step.compare gt, %theta_rms, %eps2 : f64
    %size = step.select %large, %theta_rms, %eps2 : f64
    %alpha = step.mul %rho, %size : f64
    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    %w = step.pow %number, %beta2_decay
    step.yield %w, %alpha, %keep : f64, f64, f64
  }

  // alpha / max(1, RMS(u) / d).
  step.define @clipped(%alpha: f64, %u_mean: f64) {
    %u_rms = step.sqrt %u_mean : f64
    %excess = step.div %u_rms, %d : f64
    %exceeds = step.compare gt, %excess, %one : f64
    %divisor = step.select %exceeds, %excess, %one : f64
    %rate = step.div %alpha, %divisor : f64
    step.yield %rate : f64
  }

  step.rule @matrix(%theta: param[...b, n, m], %grad: grad[...b, n, m],
                    %r: state "row_var"[...b, n, 1], %c: state "col_var"[...b, 1, m],
                    %t: count) {
    %ascent = step.neg %grad : [...b, n, m]
    %g = step.select %maximize, %ascent, %grad : [...b, n, m]
    %theta_sq = step.mul %theta, %theta : [...b, n, m]
    %theta_mean = step.mean %theta_sq : [...b, n, m]
    %w, %alpha, %keep = step.call @schedule(%t, %theta_mean) : (i64, f64) -> (f64, f64, f64)
    %theta1 = step.mul %theta, %keep : [...b, n, m], f64

    %gg = step.mul %g, %g : [...b, n, m]
    %row_mean = step.mean %gg over [m] : [...b, n, m]
    %col_mean = step.mean %gg over [n] : [...b, n, m]
    %r1 = step.lerp %r, %row_mean, %w : [...b, n, 1], [...b, n, 1], f64
    %c1 = step.lerp %c, %col_mean, %w : [...b, 1, m], [...b, 1, m], f64
    %mean_r = step.mean %r1 over [n] : [...b, n, 1]
    %least_mean = step.maximum %mean_r, %eps1 : [...b, 1, 1], f64

    // u = g / sqrt(max(eps1^2, V)), where 1 / sqrt(V) is a factor of the row times one of
    // the column, and at most 1 / eps1.
    %root_r = step.sqrt %r1 : [...b, n, 1]
    %row = step.div %one, %root_r : f64, [...b, n, 1]
    %root_mean = step.sqrt %least_mean : [...b, 1, 1]
    %root_c = step.sqrt %c1 : [...b, 1, m]
    %col = step.div %root_mean, %root_c : [...b, 1, 1], [...b, 1, m]
    %most = step.div %one, %eps1 : f64
    %inverse = step.mul %row, %col : [...b, n, 1], [...b, 1, m]
    %scale = step.minimum %inverse, %most : [...b, n, m], f64
    %u = step.mul %g, %scale : [...b, n, m]

    %uu = step.mul %u, %u : [...b, n, m]
    %u_mean = step.mean %uu reassociable : [...b, n, m]
    %rate = step.call @clipped(%alpha, %u_mean) : (f64, f64) -> f64
    %update = step.mul %u, %rate : [...b, n, m], f64
    %theta2 = step.sub %theta1, %update : [...b, n, m]
    step.return %theta2, %r1, %c1 : [...b, n, m], [...b, n, 1], [...b, 1, m]
  }

  step.rule @any(%theta: param[*], %grad: grad[*], %v: state "variance"[*], %t: count) {
    %ascent = step.neg %grad : [*]
    %g = step.select %maximize, %ascent, %grad : [*]
    %theta_sq = step.mul %theta, %theta : [*]
    %theta_mean = step.mean %theta_sq : [*]
    %w, %alpha, %keep = step.call @schedule(%t, %theta_mean) : (i64, f64) -> (f64, f64, f64)
    %theta1 = step.mul %theta, %keep : [*], f64

    %gg = step.mul %g, %g : [*]
    %v1 = step.lerp %v, %gg, %w : [*], [*], f64
    %root = step.sqrt %v1 : [*]
    %inverse = step.div %one, %root : f64, [*]
    %most = step.div %one, %eps1 : f64
    %scale = step.minimum %inverse, %most : [*], f64
    %u = step.mul %g, %scale : [*]

    %uu = step.mul %u, %u : [*]
    %u_mean = step.mean %uu : [*]
    %rate = step.call @clipped(%alpha, %u_mean) : (f64, f64) -> f64
    %update = step.mul %u, %rate : [*], f64
    %theta2 = step.sub %theta1, %update : [*]
    step.return %theta2, %v1
  }
}
