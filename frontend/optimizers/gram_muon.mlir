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
// wherever n is larger. A square matrix is stepped as in muon.mlir. The authors compute in
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
  step.define @newton_schulz(%x: [...b, n, m]) {
    %xt = step.transpose %x : [...b, n, m]
    %gram = step.matmul %x, %xt : [...b, n, m], [...b, m, n]
    %square = step.matmul %gram, %gram : [...b, n, n]
    %first = step.mul %gram, %b : [...b, n, n], f64
    %second = step.mul %square, %c : [...b, n, n], f64
    %polynomial = step.add %first, %second : [...b, n, n]
    %change = step.matmul %polynomial, %x : [...b, n, n], [...b, n, m]
    %kept = step.mul %x, %a : [...b, n, m], f64
    %next = step.add %kept, %change : [...b, n, m]
    step.yield %next : [...b, n, m]
  }
  // b * R + c * R^2, the next R, and the next Y; of rows, and of columns.
  step.define @polynomial(%r: [...b, n, n]) {
    %square = step.matmul %r, %r : [...b, n, n]
    %first = step.mul %r, %b : [...b, n, n], f64
    %second = step.mul %square, %c : [...b, n, n], f64
    %z = step.add %first, %second : [...b, n, n]
    step.yield %z : [...b, n, n]
  }
  step.define @next(%r: [...b, n, n], %z: [...b, n, n]) {
    %square = step.matmul %z, %z : [...b, n, n]
    %az = step.mul %z, %a : [...b, n, n], f64
    %linear = step.add %az, %az : [...b, n, n]
    %change = step.add %linear, %square : [...b, n, n]
    %changed = step.matmul %r, %change {symmetric} : [...b, n, n]
    %factor = step.mul %a, %a : f64
    %kept = step.mul %r, %factor : [...b, n, n], f64
    %next = step.add %kept, %changed : [...b, n, n]
    step.yield %next : [...b, n, n]
  }
  step.define @product(%y: [...b, n, n], %z: [...b, n, n], %d: f64) {
    %both = step.matmul %y, %z {symmetric} : [...b, n, n]
    %first = step.mul %y, %a : [...b, n, n], f64
    %second = step.mul %z, %d : [...b, n, n], f64
    %sum = step.add %first, %second : [...b, n, n]
    %next = step.add %sum, %both : [...b, n, n]
    step.yield %next : [...b, n, n]
  }
  step.define @polynomial_tall(%r: [...b, m, m]) {
    %square = step.matmul %r, %r : [...b, m, m]
    %first = step.mul %r, %b : [...b, m, m], f64
    %second = step.mul %square, %c : [...b, m, m], f64
    %z = step.add %first, %second : [...b, m, m]
    step.yield %z : [...b, m, m]
  }
  step.define @next_tall(%r: [...b, m, m], %z: [...b, m, m]) {
    %square = step.matmul %z, %z : [...b, m, m]
    %az = step.mul %z, %a : [...b, m, m], f64
    %linear = step.add %az, %az : [...b, m, m]
    %change = step.add %linear, %square : [...b, m, m]
    %changed = step.matmul %r, %change {symmetric} : [...b, m, m]
    %factor = step.mul %a, %a : f64
    %kept = step.mul %r, %factor : [...b, m, m], f64
    %next = step.add %kept, %changed : [...b, m, m]
    step.yield %next : [...b, m, m]
  }
  step.define @product_tall(%y: [...b, m, m], %z: [...b, m, m], %d: f64) {
    %both = step.matmul %y, %z {symmetric} : [...b, m, m]
    %first = step.mul %y, %a : [...b, m, m], f64
    %second = step.mul %z, %d : [...b, m, m], f64
    %sum = step.add %first, %second : [...b, m, m]
    %next = step.add %sum, %both : [...b, m, m]
    step.yield %next : [...b, m, m]
  }
  // max(|u|_F, eps).
  step.define @divisor(%u: [...b, n, m]) {
    %uu = step.mul %u, %u : [...b, n, m]
    %sums = step.sum %uu over [m] : [...b, n, m]
    %sum = step.sum %sums over [n] : [...b, n, 1]
    %norm = step.sqrt %sum : [...b, 1, 1]
    %divisor = step.maximum %norm, %eps : [...b, 1, 1], f64
    step.yield %divisor : [...b, 1, 1]
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

  step.rule @square(%theta: param[...b, n, m], %g: grad[...b, n, m], %v: state "momentum_buffer"[...b, n, m])
      where extent -2 eq extent -1 {
    %w = step.sub %one, %momentum : f64
    %v1 = step.lerp %v, %g, %w : [...b, n, m], [...b, n, m], f64
    %ahead = step.lerp %g, %v1, %momentum : [...b, n, m], [...b, n, m], f64
    %u = step.select %nesterov, %ahead, %v1 : [...b, n, m]

    %divisor = step.call @divisor(%u) : ([...b, n, m]) -> [...b, 1, 1]
    %x0 = step.div %u, %divisor : [...b, n, m], [...b, 1, 1]
    %x5 = step.repeat 5 (%x: [...b, n, m] = %x0) {
      %next = step.call @newton_schulz(%x) : ([...b, n, m]) -> [...b, n, m]
      step.yield %next : [...b, n, m]
    }

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [...b, n, m], f64
    %move = step.mul %x5, %rate : [...b, n, m], f64
    %theta1 = step.sub %kept, %move : [...b, n, m]
    step.return %theta1, %v1 : [...b, n, m], [...b, n, m]
  }

  step.rule @wide(%theta: param[...b, n, m], %g: grad[...b, n, m], %v: state "momentum_buffer"[...b, n, m])
      where extent -2 lt extent -1 {
    %w = step.sub %one, %momentum : f64
    %v1 = step.lerp %v, %g, %w : [...b, n, m], [...b, n, m], f64
    %ahead = step.lerp %g, %v1, %momentum : [...b, n, m], [...b, n, m], f64
    %u = step.select %nesterov, %ahead, %v1 : [...b, n, m]

    %divisor = step.call @divisor(%u) : ([...b, n, m]) -> [...b, 1, 1]
    %x0 = step.div %u, %divisor : [...b, n, m], [...b, 1, 1]

    %xt = step.transpose %x0 : [...b, n, m]
    %gram = step.matmul %x0, %xt : [...b, n, m], [...b, m, n]
    %y1 = step.call @polynomial(%gram) : ([...b, n, n]) -> [...b, n, n]
    %r1 = step.call @next(%gram, %y1) : ([...b, n, n], [...b, n, n]) -> [...b, n, n]
    %r4, %y4, %d4 = step.repeat 3 (%r: [...b, n, n] = %r1, %y: [...b, n, n] = %y1, %d: f64 = %a) {
      %z = step.call @polynomial(%r) : ([...b, n, n]) -> [...b, n, n]
      %next_r = step.call @next(%r, %z) : ([...b, n, n], [...b, n, n]) -> [...b, n, n]
      %next_y = step.call @product(%y, %z, %d) : ([...b, n, n], [...b, n, n], f64) -> [...b, n, n]
      %next_d = step.mul %d, %a : f64
      step.yield %next_r, %next_y, %next_d : [...b, n, n], [...b, n, n], f64
    }
    %z5 = step.call @polynomial(%r4) : ([...b, n, n]) -> [...b, n, n]
    %y5 = step.call @product(%y4, %z5, %d4) : ([...b, n, n], [...b, n, n], f64) -> [...b, n, n]
    %d5 = step.mul %d4, %a : f64
    %moved = step.matmul %y5, %x0 : [...b, n, n], [...b, n, m]
    %own = step.mul %x0, %d5 : [...b, n, m], f64
    %x5 = step.add %own, %moved : [...b, n, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [...b, n, m], f64
    %move = step.mul %x5, %rate : [...b, n, m], f64
    %theta1 = step.sub %kept, %move : [...b, n, m]
    step.return %theta1, %v1 : [...b, n, m], [...b, n, m]
  }

  step.rule @tall(%theta: param[...b, n, m], %g: grad[...b, n, m], %v: state "momentum_buffer"[...b, n, m]) {
    %w = step.sub %one, %momentum : f64
    %v1 = step.lerp %v, %g, %w : [...b, n, m], [...b, n, m], f64
    %ahead = step.lerp %g, %v1, %momentum : [...b, n, m], [...b, n, m], f64
    %u = step.select %nesterov, %ahead, %v1 : [...b, n, m]

    %divisor = step.call @divisor(%u) : ([...b, n, m]) -> [...b, 1, 1]
    %x0 = step.div %u, %divisor : [...b, n, m], [...b, 1, 1]

    %xt = step.transpose %x0 : [...b, n, m]
    %gram = step.matmul %xt, %x0 : [...b, m, n], [...b, n, m]
    %y1 = step.call @polynomial_tall(%gram) : ([...b, m, m]) -> [...b, m, m]
    %r1 = step.call @next_tall(%gram, %y1) : ([...b, m, m], [...b, m, m]) -> [...b, m, m]
    %r4, %y4, %d4 = step.repeat 3 (%r: [...b, m, m] = %r1, %y: [...b, m, m] = %y1, %d: f64 = %a) {
      %z = step.call @polynomial_tall(%r) : ([...b, m, m]) -> [...b, m, m]
      %next_r = step.call @next_tall(%r, %z) : ([...b, m, m], [...b, m, m]) -> [...b, m, m]
      %next_y = step.call @product_tall(%y, %z, %d) : ([...b, m, m], [...b, m, m], f64) -> [...b, m, m]
      %next_d = step.mul %d, %a : f64
      step.yield %next_r, %next_y, %next_d : [...b, m, m], [...b, m, m], f64
    }
    %z5 = step.call @polynomial_tall(%r4) : ([...b, m, m]) -> [...b, m, m]
    %y5 = step.call @product_tall(%y4, %z5, %d4) : ([...b, m, m], [...b, m, m], f64) -> [...b, m, m]
    %d5 = step.mul %d4, %a : f64
    %moved = step.matmul %x0, %y5 : [...b, n, m], [...b, m, m]
    %own = step.mul %x0, %d5 : [...b, n, m], f64
    %x5 = step.add %own, %moved : [...b, n, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [...b, n, m], f64
    %move = step.mul %x5, %rate : [...b, n, m], f64
    %theta1 = step.sub %kept, %move : [...b, n, m]
    step.return %theta1, %v1 : [...b, n, m], [...b, n, m]
  }
}
