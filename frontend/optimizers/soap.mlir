// SOAP: Adam in the slowly turning eigenbasis of Shampoo's preconditioner.
// N. Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam", ICLR 2025,
// algorithm 3, in the form of the authors' soap.py (github.com/nikhilvyas/SOAP).
//
//   x     <- QLt g QR
//   m     <- beta1 * m + (1 - beta1) * x
//   v     <- beta2 * v + (1 - beta2) * x^2
//   u     <- QL (m / (sqrt(v) + eps)) QRt
//   theta <- theta - alpha_t * u,  alpha_t = lr * sqrt(1 - beta2^(t-1)) / (1 - beta1^(t-1))
//   theta <- theta - lr * weight_decay * theta
//   L     <- shampoo_beta * L + (1 - shampoo_beta) * g gt;  R alike of gt g
//
//   QL, QR <- the eigenvectors of L, R                      in the first step
//   QL     <- Q of qr(L QL), its columns in the order of diag(QLt L QL);  QR alike
//             m turned into the new basis, v in the new order
//                                     in steps f + 1, 2 f + 1, ..., f = precondition_frequency
//
// The first step makes QL and QR, moves nothing, leaves m and v 0, and is not counted by
// alpha_t; so does one in which a basis is not there, as where a checkpoint has none. At the
// end of a step m is in the basis of the next one, as the authors' is; it is turned where the
// basis changes, and they turn it out of it and in again in each step. A dim of more than
// max_precond_dim elements has no basis; a vector has none, unless it is seen as a row (the
// authors' precondition_1d), and without precondition nothing has. With normalize_grads u is
// divided by the root of its mean square. R of qr has no negative number on its diagonal
// here; the authors' is LAPACK's. m has the signs of the basis, and u does not depend on
// them.

step.optimizer @soap {
  %lr = step.hyper "lr" = 3.0e-3
  %beta1 = step.hyper "beta1" = 0.95
  %beta2 = step.hyper "beta2" = 0.95
  %shampoo_beta = step.hyper "shampoo_beta" = 0.95
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 0.01
  %frequency = step.hyper "precondition_frequency" = 10.0
  %precondition = step.option "precondition" = true
  %max_dim = step.option "max_precond_dim" = 10000
  %correct_bias = step.option "correct_bias" = true
  %normalize = step.option "normalize_grads" = false
  %one = step.constant 1.0
  %zero = step.constant 0.0

  // beta^(t-1), in the second step and later ones.
  step.define @power_before(%beta: f64, %t: i64) {
    %power = step.powi %beta, %t
    %before = step.div %power, %beta : f64
    %is_zero = step.compare eq, %beta, %zero : f64
    %result = step.select %is_zero, %zero, %before : f64
    step.yield %result : f64
  }
  // alpha_t, and 1 - lr * weight_decay.
  step.define @rates(%t: i64) {
    %beta1_s = step.call @power_before(%beta1, %t) : (f64, i64) -> f64
    %beta2_s = step.call @power_before(%beta2, %t) : (f64, i64) -> f64
    %c1 = step.sub %one, %beta1_s : f64
    %c2 = step.sub %one, %beta2_s : f64
    %root = step.sqrt %c2 : f64
    %raised = step.mul %lr, %root : f64
    %ratio = step.div %raised, %c1 : f64
    // In a first step that has averages, of whom ever, they are without weight.
    %is_first = step.compare eq, %c1, %zero : f64
    %corrected = step.select %is_first, %zero, %ratio : f64
    %alpha = step.select %correct_bias, %corrected, %lr : f64
    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    step.yield %alpha, %keep : f64, f64
  }
  // The moments, 0 in the first step; what they say to do.
  step.define @adam(%m: [n, m], %v: [n, m], %x: [n, m], %first: i1) {
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [n, m], f64
    %m_gain = step.mul %x, %w1 : [n, m], f64
    %m_next = step.add %m_kept, %m_gain : [n, m]
    %m1 = step.select %first, %zero, %m_next : f64, [n, m]
    %w2 = step.sub %one, %beta2 : f64
    %xx = step.mul %x, %x : [n, m]
    %v_kept = step.mul %v, %beta2 : [n, m], f64
    %v_gain = step.mul %xx, %w2 : [n, m], f64
    %v_next = step.add %v_kept, %v_gain : [n, m]
    %v1 = step.select %first, %zero, %v_next : f64, [n, m]
    %root = step.sqrt %v1 : [n, m]
    %denom = step.add %root, %eps : [n, m], f64
    %u = step.div %m1, %denom : [n, m]
    step.yield %m1, %v1, %u : [n, m], [n, m], [n, m]
  }
  // The param behind the update.
  step.define @move(%theta: [n, m], %u: [n, m], %t: i64) {
    %alpha, %keep = step.call @rates(%t) : (i64) -> (f64, f64)
    %uu = step.mul %u, %u : [n, m]
    %square = step.mean %uu : [n, m]
    %rms = step.sqrt %square : f64
    %least = step.constant 1.0e-30
    %divisor = step.add %rms, %least : f64
    %normal = step.div %u, %divisor : [n, m], f64
    %direction = step.select %normalize, %normal, %u : [n, m]
    %update = step.mul %direction, %alpha : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    %theta2 = step.mul %theta1, %keep : [n, m], f64
    step.yield %theta2 : [n, m]
  }
  // The next basis of rows; where its columns were, as keys.
  step.define @turn_rows(%l: [n, n], %q: [n, n]) {
    %lq = step.matmul %l, %q : [n, n]
    %qt = step.transpose %q : [n, n]
    %qlq = step.matmul %qt, %lq : [n, n]
    %keys = step.diagonal %qlq : [n, n]
    %sorted = step.sort %lq by %keys : [n, n], [1, n]
    %q1 = step.qr %sorted : [n, n]
    step.yield %q1, %keys : [n, n], [1, n]
  }
  step.define @turn_columns(%r: [m, m], %q: [m, m]) {
    %rq = step.matmul %r, %q : [m, m]
    %qt = step.transpose %q : [m, m]
    %qrq = step.matmul %qt, %rq : [m, m]
    %keys = step.diagonal %qrq : [m, m]
    %sorted = step.sort %rq by %keys : [m, m], [1, m]
    %q1 = step.qr %sorted : [m, m]
    step.yield %q1, %keys : [m, m], [1, m]
  }
  step.define @sort_rows(%v: [n, m], %keys: [1, n]) {
    %vt = step.transpose %v : [n, m]
    %sorted = step.sort %vt by %keys : [m, n], [1, n]
    %v1 = step.transpose %sorted : [m, n]
    step.yield %v1 : [n, m]
  }

  step.rule @both(%theta: param[n, m], %g: grad[n, m], %m: state "exp_avg"[n, m],
                  %v: state "exp_avg_sq"[n, m], %l: state "GG_0"[n, n], %ql: state "Q_0"[n, n],
                  %r: state "GG_1"[m, m], %qr: state "Q_1"[m, m],
                  %first: fresh("Q_0", "Q_1"), %t: count)
      where %precondition, extent 0 le %max_dim, extent 1 le %max_dim {
    %qlt = step.transpose %ql : [n, n]
    %qrt = step.transpose %qr : [m, m]
    %half = step.matmul %qlt, %g : [n, n], [n, m]
    %x = step.matmul %half, %qr : [n, m], [m, m]
    %m1, %v1, %u = step.call @adam(%m, %v, %x, %first)
        : ([n, m], [n, m], [n, m], i1) -> ([n, m], [n, m], [n, m])
    %half_back = step.matmul %ql, %u : [n, n], [n, m]
    %back = step.matmul %half_back, %qrt : [n, m], [m, m]
    %moved = step.call @move(%theta, %back, %t) : ([n, m], [n, m], i64) -> [n, m]
    %theta1 = step.select %first, %theta, %moved : [n, m]

    %w = step.sub %one, %shampoo_beta : f64
    %gt = step.transpose %g : [n, m]
    %ggt = step.matmul %g, %gt : [n, m], [m, n]
    %l1 = step.lerp %l, %ggt, %w : [n, n], [n, n], f64
    %gtg = step.matmul %gt, %g : [m, n], [n, m]
    %r1 = step.lerp %r, %gtg, %w : [m, m], [m, m], f64

    %due = step.every %frequency, %t
    %ql1, %qr1, %m2, %v2 = step.when %due, %ql, %qr, %m1, %v1
        : [n, n], [m, m], [n, m], [n, m] {
      %left, %row_keys = step.call @turn_rows(%l1, %ql) : ([n, n], [n, n]) -> ([n, n], [1, n])
      %right, %keys = step.call @turn_columns(%r1, %qr) : ([m, m], [m, m]) -> ([m, m], [1, m])
      %rows = step.call @sort_rows(%v1, %row_keys) : ([n, m], [1, n]) -> [n, m]
      %vs = step.sort %rows by %keys : [n, m], [1, m]
      %leftt = step.transpose %left : [n, n]
      %from_left = step.matmul %leftt, %ql : [n, n]
      %to_right = step.matmul %qrt, %right : [m, m]
      %half_turned = step.matmul %from_left, %m1 : [n, n], [n, m]
      %turned = step.matmul %half_turned, %to_right : [n, m], [m, m]
      step.yield %left, %right, %turned, %vs : [n, n], [m, m], [n, m], [n, m]
    }
    // Whatever became of none.
    %ql2, %qr2 = step.when %first, %ql1, %qr1 : [n, n], [m, m] {
      %left = step.eigh %l1 : [n, n]
      %right = step.eigh %r1 : [m, m]
      step.yield %left, %right : [n, n], [m, m]
    }
    step.return %theta1, %m2, %v2, %l1, %ql2, %r1, %qr2
        : [n, m], [n, m], [n, m], [n, n], [n, n], [m, m], [m, m]
  }

  step.rule @rows(%theta: param[n, m], %g: grad[n, m], %m: state "exp_avg"[n, m],
                  %v: state "exp_avg_sq"[n, m], %l: state "GG_0"[n, n], %ql: state "Q_0"[n, n],
                  %first: fresh("Q_0"), %t: count)
      where %precondition, extent 0 le %max_dim {
    %qlt = step.transpose %ql : [n, n]
    %x = step.matmul %qlt, %g : [n, n], [n, m]
    %m1, %v1, %u = step.call @adam(%m, %v, %x, %first)
        : ([n, m], [n, m], [n, m], i1) -> ([n, m], [n, m], [n, m])
    %back = step.matmul %ql, %u : [n, n], [n, m]
    %moved = step.call @move(%theta, %back, %t) : ([n, m], [n, m], i64) -> [n, m]
    %theta1 = step.select %first, %theta, %moved : [n, m]

    %w = step.sub %one, %shampoo_beta : f64
    %gt = step.transpose %g : [n, m]
    %ggt = step.matmul %g, %gt : [n, m], [m, n]
    %l1 = step.lerp %l, %ggt, %w : [n, n], [n, n], f64
    %due = step.every %frequency, %t
    %ql1, %m2, %v2 = step.when %due, %ql, %m1, %v1 : [n, n], [n, m], [n, m] {
      %left, %keys = step.call @turn_rows(%l1, %ql) : ([n, n], [n, n]) -> ([n, n], [1, n])
      %vs = step.call @sort_rows(%v1, %keys) : ([n, m], [1, n]) -> [n, m]
      %leftt = step.transpose %left : [n, n]
      %from_left = step.matmul %leftt, %ql : [n, n]
      %turned = step.matmul %from_left, %m1 : [n, n], [n, m]
      step.yield %left, %turned, %vs : [n, n], [n, m], [n, m]
    }
    %ql2 = step.when %first, %ql1 : [n, n] {
      %left = step.eigh %l1 : [n, n]
      step.yield %left : [n, n]
    }
    step.return %theta1, %m2, %v2, %l1, %ql2 : [n, m], [n, m], [n, m], [n, n], [n, n]
  }

  step.rule @columns(%theta: param[n, m], %g: grad[n, m], %m: state "exp_avg"[n, m],
                     %v: state "exp_avg_sq"[n, m], %r: state "GG_1"[m, m],
                     %qr: state "Q_1"[m, m], %first: fresh("Q_1"), %t: count)
      where %precondition, extent 1 le %max_dim {
    %qrt = step.transpose %qr : [m, m]
    %x = step.matmul %g, %qr : [n, m], [m, m]
    %m1, %v1, %u = step.call @adam(%m, %v, %x, %first)
        : ([n, m], [n, m], [n, m], i1) -> ([n, m], [n, m], [n, m])
    %back = step.matmul %u, %qrt : [n, m], [m, m]
    %moved = step.call @move(%theta, %back, %t) : ([n, m], [n, m], i64) -> [n, m]
    %theta1 = step.select %first, %theta, %moved : [n, m]

    %w = step.sub %one, %shampoo_beta : f64
    %gt = step.transpose %g : [n, m]
    %gtg = step.matmul %gt, %g : [m, n], [n, m]
    %r1 = step.lerp %r, %gtg, %w : [m, m], [m, m], f64
    %due = step.every %frequency, %t
    %qr1, %m2, %v2 = step.when %due, %qr, %m1, %v1 : [m, m], [n, m], [n, m] {
      %right, %keys = step.call @turn_columns(%r1, %qr) : ([m, m], [m, m]) -> ([m, m], [1, m])
      %vs = step.sort %v1 by %keys : [n, m], [1, m]
      %to_right = step.matmul %qrt, %right : [m, m]
      %turned = step.matmul %m1, %to_right : [n, m], [m, m]
      step.yield %right, %turned, %vs : [m, m], [n, m], [n, m]
    }
    %qr2 = step.when %first, %qr1 : [m, m] {
      %right = step.eigh %r1 : [m, m]
      step.yield %right : [m, m]
    }
    step.return %theta1, %m2, %v2, %r1, %qr2 : [n, m], [n, m], [n, m], [m, m], [m, m]
  }

  step.rule @any(%theta: param[*], %x: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %first: fresh("exp_avg"), %t: count) {
    %alpha, %keep = step.call @rates(%t) : (i64) -> (f64, f64)
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [*], f64
    %m_gain = step.mul %x, %w1 : [*], f64
    %m_next = step.add %m_kept, %m_gain : [*]
    %m1 = step.select %first, %zero, %m_next : f64, [*]
    %w2 = step.sub %one, %beta2 : f64
    %xx = step.mul %x, %x : [*]
    %v_kept = step.mul %v, %beta2 : [*], f64
    %v_gain = step.mul %xx, %w2 : [*], f64
    %v_next = step.add %v_kept, %v_gain : [*]
    %v1 = step.select %first, %zero, %v_next : f64, [*]
    %root = step.sqrt %v1 : [*]
    %denom = step.add %root, %eps : [*], f64
    %u = step.div %m1, %denom : [*]

    %uu = step.mul %u, %u : [*]
    %square = step.mean %uu : [*]
    %rms = step.sqrt %square : f64
    %least = step.constant 1.0e-30
    %divisor = step.add %rms, %least : f64
    %normal = step.div %u, %divisor : [*], f64
    %direction = step.select %normalize, %normal, %u : [*]
    %update = step.mul %direction, %alpha : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    %theta2 = step.mul %theta1, %keep : [*], f64
    %theta3 = step.select %first, %theta, %theta2 : [*]
    step.return %theta3, %m1, %v1
  }
}
