// Dion: an orthonormal update of low rank, from one power iteration a step.
// K. Ahn et al., "Dion: Distributed Orthonormalized Updates", 2025, algorithm 1, in the form of
// Microsoft's dion package (dion_reference.py), with qr_method="qr".
//
//   M     <- M + g
//   P     <- Q of qr(M Q)
//   R     <- Mt P
//   M     <- M - (1 - mu) * P Rt
//   Q     <- R / (|R| + epsilon), of each column;  normal random numbers in the first step
//   theta <- (1 - lr * weight_decay) * theta - lr * sqrt(rows / columns) * P Qt
//
// of a matrix that has no fewer rows than columns; of others the same of their transposes, but
// for sqrt(rows / columns). While M is zero Q stays and the update is 0.
//
// With lion, and with adamw, which is also what a vector gets:
//
//   theta <- (1 - lr * weight_decay) * theta - lr * sign(beta1 * M + (1 - beta1) * g)
//   M     <- beta2 * M + (1 - beta2) * g
//
//   M     <- beta1 * M + (1 - beta1) * g
//   V     <- beta2 * V + (1 - beta2) * g^2
//   theta <- (1 - lr * weight_decay) * theta
//            - lr / (1 - beta1^t) * M / (sqrt(V) / sqrt(1 - beta2^t) + epsilon)
//
// Q has as many columns as rank says, no more than the matrix has rows or columns: stepc.torch
// makes it of the package's fraction of these, for each matrix. The first Q follows from the seed and the tensor's number
// (step.random_normal), and is the same under any sharding; theirs is torch's. Ranks that share a
// step have one M, of the mean gradient; theirs may have one each, and exchange P and R alone.
// A NaN stays; the package makes P and R 0 of it.

step.optimizer @dion {
  %lr = step.hyper "lr" = 0.01
  %mu = step.hyper "mu" = 0.95
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.95
  %lambda = step.hyper "weight_decay" = 0.01
  %epsilon = step.hyper "epsilon" = 1.0e-8
  %seed = step.hyper "projection_seed" = 0.0
  %rank = step.option "rank" = 768
  %of_matrices = step.option "dion" = true
  %lion = step.option "lion" = false
  %one = step.constant 1.0
  %zero = step.constant 0.0

  // 1 - lr * weight_decay, and lr * sqrt(rows / columns).
  step.define @keep() {
    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    step.yield %keep : f64
  }
  step.define @rate(%rows: f64, %columns: f64) {
    %ratio = step.div %rows, %columns : f64
    %root = step.sqrt %ratio : f64
    %rate = step.mul %lr, %root : f64
    step.yield %rate : f64
  }
  // |R| + epsilon of each column.
  step.define @norms_of_tall(%r: [m, r]) {
    %rr = step.mul %r, %r : [m, r]
    %squares = step.sum %rr over [m] : [m, r]
    %norms = step.sqrt %squares : [1, r]
    %above = step.add %norms, %epsilon : [1, r], f64
    step.yield %above : [1, r]
  }
  step.define @norms_of_wide(%r: [n, r]) {
    %rr = step.mul %r, %r : [n, r]
    %squares = step.sum %rr over [n] : [n, r]
    %norms = step.sqrt %squares : [1, r]
    %above = step.add %norms, %epsilon : [1, r], f64
    step.yield %above : [1, r]
  }
  // Whether nothing has come yet.
  step.define @is_zero(%m: [n, m]) {
    %size = step.abs %m : [n, m]
    %largest = step.amax %size : [n, m]
    %is_zero = step.compare eq, %largest, %zero : f64
    step.yield %is_zero : i1
  }

  step.rule @tall(%theta: param[n, m], %g: grad[n, m], %momentum: state "momentum"[n, m],
                  %q: state "Q"[m, r], %first: fresh("Q"), %t: count)
      dim r = min %rank, n, m where %of_matrices, extent 0 ge extent 1 {
    %q0 = step.when %first, %q : [m, r] {
      %random = step.random_normal "Q" %seed, %t : [m, r]
      step.yield %random : [m, r]
    }
    %b = step.add %momentum, %g : [n, m]
    %y = step.matmul %b, %q0 : [n, m], [m, r]
    %p = step.qr %y : [n, r]
    %bt = step.transpose %b : [n, m]
    %r = step.matmul %bt, %p : [m, n], [n, r]

    %lost = step.sub %one, %mu : f64
    %rt = step.transpose %r : [m, r]
    %low = step.matmul %p, %rt : [n, r], [r, m]
    %taken = step.mul %low, %lost : [n, m], f64
    %momentum1 = step.sub %b, %taken : [n, m]

    %nothing = step.call @is_zero(%b) : ([n, m]) -> i1
    %turned = step.select %nothing, %q0, %r : [m, r]
    %norms = step.call @norms_of_tall(%turned) : ([m, r]) -> [1, r]
    %q1 = step.div %turned, %norms : [m, r], [1, r]
    %qt = step.transpose %q1 : [m, r]
    %update = step.matmul %p, %qt : [n, r], [r, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %move = step.mul %update, %rate : [n, m], f64
    %moved = step.sub %kept, %move : [n, m]
    %theta1 = step.select %nothing, %kept, %moved : [n, m]
    step.return %theta1, %momentum1, %q1 : [n, m], [n, m], [m, r]
  }

  step.rule @wide(%theta: param[n, m], %g: grad[n, m], %momentum: state "momentum"[n, m],
                  %q: state "Q"[n, r], %first: fresh("Q"), %t: count)
      dim r = min %rank, n, m where %of_matrices {
    %q0 = step.when %first, %q : [n, r] {
      %random = step.random_normal "Q" %seed, %t : [n, r]
      step.yield %random : [n, r]
    }
    %b = step.add %momentum, %g : [n, m]
    %bt = step.transpose %b : [n, m]
    %y = step.matmul %bt, %q0 : [m, n], [n, r]
    %p = step.qr %y : [m, r]
    %r = step.matmul %b, %p : [n, m], [m, r]

    %lost = step.sub %one, %mu : f64
    %pt = step.transpose %p : [m, r]
    %low = step.matmul %r, %pt : [n, r], [r, m]
    %taken = step.mul %low, %lost : [n, m], f64
    %momentum1 = step.sub %b, %taken : [n, m]

    %nothing = step.call @is_zero(%b) : ([n, m]) -> i1
    %turned = step.select %nothing, %q0, %r : [n, r]
    %norms = step.call @norms_of_wide(%turned) : ([n, r]) -> [1, r]
    %q1 = step.div %turned, %norms : [n, r], [1, r]
    %update = step.matmul %q1, %pt : [n, r], [r, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %move = step.mul %update, %rate : [n, m], f64
    %moved = step.sub %kept, %move : [n, m]
    %theta1 = step.select %nothing, %kept, %moved : [n, m]
    step.return %theta1, %momentum1, %q1 : [n, m], [n, m], [n, r]
  }

  step.rule @lion(%theta: param[*], %g: grad[*], %m: state "momentum"[*]) where %lion {
    %w1 = step.sub %one, %beta1 : f64
    %w2 = step.sub %one, %beta2 : f64
    %between = step.lerp %m, %g, %w1 : [*], [*], f64
    %direction = step.sign %between : [*]
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [*], f64
    %move = step.mul %direction, %lr : [*], f64
    %theta1 = step.sub %kept, %move : [*]
    %m1 = step.lerp %m, %g, %w2 : [*], [*], f64
    step.return %theta1, %m1
  }

  step.rule @adamw(%theta: param[*], %g: grad[*], %m: state "momentum"[*],
                   %v: state "variance"[*], %t: count) {
    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [*], [*], f64
    %w2 = step.sub %one, %beta2 : f64
    %gg = step.mul %g, %g : [*]
    %v_kept = step.mul %v, %beta2 : [*], f64
    %v_gain = step.mul %gg, %w2 : [*], f64
    %v1 = step.add %v_kept, %v_gain : [*]

    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %c1 = step.sub %one, %beta1_t : f64
    %c2 = step.sub %one, %beta2_t : f64
    %root_c2 = step.sqrt %c2 : f64
    %root = step.sqrt %v1 : [*]
    %corrected = step.div %root, %root_c2 : [*], f64
    %denom = step.add %corrected, %epsilon : [*], f64
    %u = step.div %m1, %denom : [*]
    %alpha = step.div %lr, %c1 : f64

    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [*], f64
    %move = step.mul %u, %alpha : [*], f64
    %theta1 = step.sub %kept, %move : [*]
    step.return %theta1, %m1, %v1
  }
}
