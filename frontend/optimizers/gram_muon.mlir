// Muon in Gram space: the polynomials of Newton and Schulz are of the smaller Gram matrix, and
// meet the momentum once, at the end.
// J. Zhang, N. Amsel, B. Chen and T. Dao, "Gram Newton-Schulz", 2026 (github.com/Dao-AILab/
// gram-newton-schulz), for K. Jordan's Muon in the form of torch.optim.Muon (muon.mlir).
//
//   v     <- momentum * v + (1 - momentum) * g
//   u     <- (1 - momentum) * g + momentum * v, or without nesterov v
//   X     <- u / max(|u|_F, eps);    with more rows than columns of its transpose
//   R     <- X X^T
//   Z     <- b * R + c * R^2;  Q <- Q (a * I + Z);  R <- (a * I + Z) R (a * I + Z);  five times
//   theta <- theta - lr * weight_decay * theta - lr * s * Q X
//
//   with Q = I at first, and s of muon.mlir.
//
// In exact numbers Q X is what muon.mlir makes of X, its roundings are others. There is no I: Q
// is Y + d * I, of which Y and the number d are kept, so that Y is Z and d is a after the first
// step, Y Z + a * Y + d * Z and a * d after others. The next R is a^2 * R + R (2 a * Z + Z^2).
// All of these are polynomials of R, so they are symmetric and said to be: what rounding would
// leave of asymmetry would grow by up to a^2 a step, and half of each product is computed. Of
// m x n with m the smaller extent that is 3 m^2 n + 17 m^3 FLOP against 15 m^2 n + 5 m^3: less
// wherever n is larger. A square parameter is stepped as in muon.mlir. The authors compute in
// float16 and begin anew after two steps (X <- Q X), as rounding makes small eigenvalues of R
// negative, which grow by a^2 a step too; in f32 they stay below 0.002, and nothing begins anew.

step.optimizer @gram_muon {
  %lr = step.hyper "lr" = 1.0e-3
  %lambda = step.hyper "weight_decay" = 0.1
  %momentum = step.hyper "momentum" = 0.95
  %eps = step.hyper "eps" = 1.0e-7
  %a = step.hyper "ns_coefficient_a" = 3.4445
  %b = step.hyper "ns_coefficient_b" = -4.775
  %c = step.hyper "ns_coefficient_c" = 2.0315
  %nesterov = step.option "nesterov" = true
  %match_rms_adamw = step.option "match_rms_adamw" = false
  %one = step.constant 1.0

  // a * X + (b * A + c * A A) X, of a square matrix.
  step.define @newton_schulz(%x: [n, m]) {
    %xt = step.transpose %x : [n, m]
    %gram = step.matmul %x, %xt : [n, m], [m, n]
    %square = step.matmul %gram, %gram : [n, n]
    %first = step.mul %gram, %b : [n, n], f64
    %second = step.mul %square, %c : [n, n], f64
    %polynomial = step.add %first, %second : [n, n]
    %change = step.matmul %polynomial, %x : [n, n], [n, m]
    %kept = step.mul %x, %a : [n, m], f64
    %next = step.add %kept, %change : [n, m]
    step.yield %next : [n, m]
  }
  // b * R + c * R^2, the next R, and the next Y; of rows, and of columns.
  step.define @polynomial(%r: [n, n]) {
    %square = step.matmul %r, %r : [n, n]
    %first = step.mul %r, %b : [n, n], f64
    %second = step.mul %square, %c : [n, n], f64
    %z = step.add %first, %second : [n, n]
    step.yield %z : [n, n]
  }
  step.define @next(%r: [n, n], %z: [n, n]) {
    %square = step.matmul %z, %z : [n, n]
    %az = step.mul %z, %a : [n, n], f64
    %linear = step.add %az, %az : [n, n]
    %change = step.add %linear, %square : [n, n]
    %changed = step.matmul %r, %change {symmetric} : [n, n]
    %factor = step.mul %a, %a : f64
    %kept = step.mul %r, %factor : [n, n], f64
    %next = step.add %kept, %changed : [n, n]
    step.yield %next : [n, n]
  }
  step.define @product(%y: [n, n], %z: [n, n], %d: f64) {
    %both = step.matmul %y, %z {symmetric} : [n, n]
    %first = step.mul %y, %a : [n, n], f64
    %second = step.mul %z, %d : [n, n], f64
    %sum = step.add %first, %second : [n, n]
    %next = step.add %sum, %both : [n, n]
    step.yield %next : [n, n]
  }
  step.define @polynomial_tall(%r: [m, m]) {
    %square = step.matmul %r, %r : [m, m]
    %first = step.mul %r, %b : [m, m], f64
    %second = step.mul %square, %c : [m, m], f64
    %z = step.add %first, %second : [m, m]
    step.yield %z : [m, m]
  }
  step.define @next_tall(%r: [m, m], %z: [m, m]) {
    %square = step.matmul %z, %z : [m, m]
    %az = step.mul %z, %a : [m, m], f64
    %linear = step.add %az, %az : [m, m]
    %change = step.add %linear, %square : [m, m]
    %changed = step.matmul %r, %change {symmetric} : [m, m]
    %factor = step.mul %a, %a : f64
    %kept = step.mul %r, %factor : [m, m], f64
    %next = step.add %kept, %changed : [m, m]
    step.yield %next : [m, m]
  }
  step.define @product_tall(%y: [m, m], %z: [m, m], %d: f64) {
    %both = step.matmul %y, %z {symmetric} : [m, m]
    %first = step.mul %y, %a : [m, m], f64
    %second = step.mul %z, %d : [m, m], f64
    %sum = step.add %first, %second : [m, m]
    %next = step.add %sum, %both : [m, m]
    step.yield %next : [m, m]
  }
  // max(|u|_F, eps).
  step.define @divisor(%u: [n, m]) {
    %uu = step.mul %u, %u : [n, m]
    %sum = step.sum %uu : [n, m]
    %norm = step.sqrt %sum : f64
    %divisor = step.maximum %norm, %eps : f64
    step.yield %divisor : f64
  }
  // lr * s.
  step.define @rate(%rows: f64, %columns: f64) {
    %ratio = step.div %rows, %columns : f64
    %bounded = step.maximum %one, %ratio : f64
    %original = step.sqrt %bounded : f64
    %larger = step.maximum %rows, %columns : f64
    %root = step.sqrt %larger : f64
    %fifth = step.constant 0.2
    %matched = step.mul %fifth, %root : f64
    %scale = step.select %match_rms_adamw, %matched, %original : f64
    %rate = step.mul %lr, %scale : f64
    step.yield %rate : f64
  }
  // 1 - lr * weight_decay.
  step.define @keep() {
    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    step.yield %keep : f64
  }

  step.rule @square(%theta: param[n, m], %g: grad[n, m], %v: state "momentum_buffer"[n, m])
      where extent 0 eq extent 1 {
    %w = step.sub %one, %momentum : f64
    %v1 = step.lerp %v, %g, %w : [n, m], [n, m], f64
    %ahead = step.lerp %g, %v1, %momentum : [n, m], [n, m], f64
    %u = step.select %nesterov, %ahead, %v1 : [n, m]

    %divisor = step.call @divisor(%u) : ([n, m]) -> f64
    %x0 = step.div %u, %divisor : [n, m], f64
    %x5 = step.repeat 5 (%x: [n, m] = %x0) {
      %next = step.call @newton_schulz(%x) : ([n, m]) -> [n, m]
      step.yield %next : [n, m]
    }

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %move = step.mul %x5, %rate : [n, m], f64
    %theta1 = step.sub %kept, %move : [n, m]
    step.return %theta1, %v1 : [n, m], [n, m]
  }

  step.rule @wide(%theta: param[n, m], %g: grad[n, m], %v: state "momentum_buffer"[n, m])
      where extent 0 lt extent 1 {
    %w = step.sub %one, %momentum : f64
    %v1 = step.lerp %v, %g, %w : [n, m], [n, m], f64
    %ahead = step.lerp %g, %v1, %momentum : [n, m], [n, m], f64
    %u = step.select %nesterov, %ahead, %v1 : [n, m]

    %divisor = step.call @divisor(%u) : ([n, m]) -> f64
    %x0 = step.div %u, %divisor : [n, m], f64

    %xt = step.transpose %x0 : [n, m]
    %gram = step.matmul %x0, %xt : [n, m], [m, n]
    %y1 = step.call @polynomial(%gram) : ([n, n]) -> [n, n]
    %r1 = step.call @next(%gram, %y1) : ([n, n], [n, n]) -> [n, n]
    %r4, %y4, %d4 = step.repeat 3 (%r: [n, n] = %r1, %y: [n, n] = %y1, %d: f64 = %a) {
      %z = step.call @polynomial(%r) : ([n, n]) -> [n, n]
      %next_r = step.call @next(%r, %z) : ([n, n], [n, n]) -> [n, n]
      %next_y = step.call @product(%y, %z, %d) : ([n, n], [n, n], f64) -> [n, n]
      %next_d = step.mul %d, %a : f64
      step.yield %next_r, %next_y, %next_d : [n, n], [n, n], f64
    }
    %z5 = step.call @polynomial(%r4) : ([n, n]) -> [n, n]
    %y5 = step.call @product(%y4, %z5, %d4) : ([n, n], [n, n], f64) -> [n, n]
    %d5 = step.mul %d4, %a : f64
    %moved = step.matmul %y5, %x0 : [n, n], [n, m]
    %own = step.mul %x0, %d5 : [n, m], f64
    %x5 = step.add %own, %moved : [n, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %move = step.mul %x5, %rate : [n, m], f64
    %theta1 = step.sub %kept, %move : [n, m]
    step.return %theta1, %v1 : [n, m], [n, m]
  }

  step.rule @tall(%theta: param[n, m], %g: grad[n, m], %v: state "momentum_buffer"[n, m]) {
    %w = step.sub %one, %momentum : f64
    %v1 = step.lerp %v, %g, %w : [n, m], [n, m], f64
    %ahead = step.lerp %g, %v1, %momentum : [n, m], [n, m], f64
    %u = step.select %nesterov, %ahead, %v1 : [n, m]

    %divisor = step.call @divisor(%u) : ([n, m]) -> f64
    %x0 = step.div %u, %divisor : [n, m], f64

    %xt = step.transpose %x0 : [n, m]
    %gram = step.matmul %xt, %x0 : [m, n], [n, m]
    %y1 = step.call @polynomial_tall(%gram) : ([m, m]) -> [m, m]
    %r1 = step.call @next_tall(%gram, %y1) : ([m, m], [m, m]) -> [m, m]
    %r4, %y4, %d4 = step.repeat 3 (%r: [m, m] = %r1, %y: [m, m] = %y1, %d: f64 = %a) {
      %z = step.call @polynomial_tall(%r) : ([m, m]) -> [m, m]
      %next_r = step.call @next_tall(%r, %z) : ([m, m], [m, m]) -> [m, m]
      %next_y = step.call @product_tall(%y, %z, %d) : ([m, m], [m, m], f64) -> [m, m]
      %next_d = step.mul %d, %a : f64
      step.yield %next_r, %next_y, %next_d : [m, m], [m, m], f64
    }
    %z5 = step.call @polynomial_tall(%r4) : ([m, m]) -> [m, m]
    %y5 = step.call @product_tall(%y4, %z5, %d4) : ([m, m], [m, m], f64) -> [m, m]
    %d5 = step.mul %d4, %a : f64
    %moved = step.matmul %x0, %y5 : [n, m], [m, m]
    %own = step.mul %x0, %d5 : [n, m], f64
    %x5 = step.add %own, %moved : [n, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %move = step.mul %x5, %rate : [n, m], f64
    %theta1 = step.sub %kept, %move : [n, m]
    step.return %theta1, %v1 : [n, m], [n, m]
  }
}
