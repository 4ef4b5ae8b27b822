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
// With bf16_factors what is multiplied is rounded to bf16: the R of a third step has negative
// eigenvalues of 0.1, which the next would make large. So X is Q X after three steps, and two of
// muon.mlir follow, whose Gram matrices have none: 9 m^2 n + 11 m^3 FLOP. It is as near to
// orthogonal as torch's of bf16, to a part in 20, whatever the singular values are.

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
  %bf16_factors = step.option "bf16_factors" = false
  %one = step.constant 1.0

  // a * X + (b * A + c * A A) X, of a matrix that has no more rows than columns.
  step.define @newton_schulz(%x: [...b, n, m]) {
    %xt = step.transpose %x : [...b, n, m]
    %gram_f32 = step.matmul %x, %xt : [...b, n, m], [...b, m, n]
    %gram_bf16 = step.matmul %x, %xt {factors = bf16} : [...b, n, m], [...b, m, n]
    %gram = step.select %bf16_factors, %gram_bf16, %gram_f32 : [...b, n, n]
    %square_f32 = step.matmul %gram, %gram : [...b, n, n]
    %square_bf16 = step.matmul %gram, %gram {factors = bf16} : [...b, n, n]
    %square = step.select %bf16_factors, %square_bf16, %square_f32 : [...b, n, n]
    %first = step.mul %gram, %b : [...b, n, n], f64
    %second = step.mul %square, %c : [...b, n, n], f64
    %polynomial = step.add %first, %second : [...b, n, n]
    %change_f32 = step.matmul %polynomial, %x : [...b, n, n], [...b, n, m]
    %change_bf16 = step.matmul %polynomial, %x {factors = bf16} : [...b, n, n], [...b, n, m]
    %change = step.select %bf16_factors, %change_bf16, %change_f32 : [...b, n, m]
    %kept = step.mul %x, %a : [...b, n, m], f64
    %next = step.add %kept, %change : [...b, n, m]
    step.yield %next : [...b, n, m]
  }
  // The same of one that has more.
  step.define @newton_schulz_tall(%x: [...b, n, m]) {
    %xt = step.transpose %x : [...b, n, m]
    %gram_f32 = step.matmul %xt, %x : [...b, m, n], [...b, n, m]
    %gram_bf16 = step.matmul %xt, %x {factors = bf16} : [...b, m, n], [...b, n, m]
    %gram = step.select %bf16_factors, %gram_bf16, %gram_f32 : [...b, m, m]
    %square_f32 = step.matmul %gram, %gram : [...b, m, m]
    %square_bf16 = step.matmul %gram, %gram {factors = bf16} : [...b, m, m]
    %square = step.select %bf16_factors, %square_bf16, %square_f32 : [...b, m, m]
    %first = step.mul %gram, %b : [...b, m, m], f64
    %second = step.mul %square, %c : [...b, m, m], f64
    %polynomial = step.add %first, %second : [...b, m, m]
    %change_f32 = step.matmul %x, %polynomial : [...b, n, m], [...b, m, m]
    %change_bf16 = step.matmul %x, %polynomial {factors = bf16} : [...b, n, m], [...b, m, m]
    %change = step.select %bf16_factors, %change_bf16, %change_f32 : [...b, n, m]
    %kept = step.mul %x, %a : [...b, n, m], f64
    %next = step.add %kept, %change : [...b, n, m]
    step.yield %next : [...b, n, m]
  }
  // b * R + c * R^2, the next R, and the next Y; of rows, and of columns.
  step.define @polynomial(%r: [...b, n, n]) {
    %square_f32 = step.matmul %r, %r : [...b, n, n]
    %square_bf16 = step.matmul %r, %r {factors = bf16} : [...b, n, n]
    %square = step.select %bf16_factors, %square_bf16, %square_f32 : [...b, n, n]
    %first = step.mul %r, %b : [...b, n, n], f64
    %second = step.mul %square, %c : [...b, n, n], f64
    %z = step.add %first, %second : [...b, n, n]
    step.yield %z : [...b, n, n]
  }
  step.define @next(%r: [...b, n, n], %z: [...b, n, n]) {
    %square_f32 = step.matmul %z, %z : [...b, n, n]
    %square_bf16 = step.matmul %z, %z {factors = bf16} : [...b, n, n]
    %square = step.select %bf16_factors, %square_bf16, %square_f32 : [...b, n, n]
    %az = step.mul %z, %a : [...b, n, n], f64
    %linear = step.add %az, %az : [...b, n, n]
    %change = step.add %linear, %square : [...b, n, n]
    %changed_f32 = step.matmul %r, %change {symmetric} : [...b, n, n]
    %changed_bf16 = step.matmul %r, %change {factors = bf16, symmetric} : [...b, n, n]
    %changed = step.select %bf16_factors, %changed_bf16, %changed_f32 : [...b, n, n]
    %factor = step.mul %a, %a : f64
    %kept = step.mul %r, %factor : [...b, n, n], f64
    %next = step.add %kept, %changed : [...b, n, n]
    step.yield %next : [...b, n, n]
  }
  step.define @product(%y: [...b, n, n], %z: [...b, n, n], %d: f64) {
    %both_f32 = step.matmul %y, %z {symmetric} : [...b, n, n]
    %both_bf16 = step.matmul %y, %z {factors = bf16, symmetric} : [...b, n, n]
    %both = step.select %bf16_factors, %both_bf16, %both_f32 : [...b, n, n]
    %first = step.mul %y, %a : [...b, n, n], f64
    %second = step.mul %z, %d : [...b, n, n], f64
    %sum = step.add %first, %second : [...b, n, n]
    %next = step.add %sum, %both : [...b, n, n]
    step.yield %next : [...b, n, n]
  }
  step.define @polynomial_tall(%r: [...b, m, m]) {
    %square_f32 = step.matmul %r, %r : [...b, m, m]
    %square_bf16 = step.matmul %r, %r {factors = bf16} : [...b, m, m]
    %square = step.select %bf16_factors, %square_bf16, %square_f32 : [...b, m, m]
    %first = step.mul %r, %b : [...b, m, m], f64
    %second = step.mul %square, %c : [...b, m, m], f64
    %z = step.add %first, %second : [...b, m, m]
    step.yield %z : [...b, m, m]
  }
  step.define @next_tall(%r: [...b, m, m], %z: [...b, m, m]) {
    %square_f32 = step.matmul %z, %z : [...b, m, m]
    %square_bf16 = step.matmul %z, %z {factors = bf16} : [...b, m, m]
    %square = step.select %bf16_factors, %square_bf16, %square_f32 : [...b, m, m]
    %az = step.mul %z, %a : [...b, m, m], f64
    %linear = step.add %az, %az : [...b, m, m]
    %change = step.add %linear, %square : [...b, m, m]
    %changed_f32 = step.matmul %r, %change {symmetric} : [...b, m, m]
    %changed_bf16 = step.matmul %r, %change {factors = bf16, symmetric} : [...b, m, m]
    %changed = step.select %bf16_factors, %changed_bf16, %changed_f32 : [...b, m, m]
    %factor = step.mul %a, %a : f64
    %kept = step.mul %r, %factor : [...b, m, m], f64
    %next = step.add %kept, %changed : [...b, m, m]
    step.yield %next : [...b, m, m]
  }
  step.define @product_tall(%y: [...b, m, m], %z: [...b, m, m], %d: f64) {
    %both_f32 = step.matmul %y, %z {symmetric} : [...b, m, m]
    %both_bf16 = step.matmul %y, %z {factors = bf16, symmetric} : [...b, m, m]
    %both = step.select %bf16_factors, %both_bf16, %both_f32 : [...b, m, m]
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
    %gram_f32 = step.matmul %x0, %xt : [...b, n, m], [...b, m, n]
    %gram_bf16 = step.matmul %x0, %xt {factors = bf16} : [...b, n, m], [...b, m, n]
    %gram = step.select %bf16_factors, %gram_bf16, %gram_f32 : [...b, n, n]
    %y1 = step.call @polynomial(%gram) : ([...b, n, n]) -> [...b, n, n]
    %r3, %z3, %y3, %d3 = step.repeat 2 (%r: [...b, n, n] = %gram, %z: [...b, n, n] = %y1, %y: [...b, n, n] = %y1, %d: f64 = %a) {
      %next_r = step.call @next(%r, %z) : ([...b, n, n], [...b, n, n]) -> [...b, n, n]
      %next_z = step.call @polynomial(%next_r) : ([...b, n, n]) -> [...b, n, n]
      %next_y = step.call @product(%y, %next_z, %d) : ([...b, n, n], [...b, n, n], f64) -> [...b, n, n]
      %next_d = step.mul %d, %a : f64
      step.yield %next_r, %next_z, %next_y, %next_d : [...b, n, n], [...b, n, n], [...b, n, n], f64
    }
    %r5, %z5, %y5, %d5 = step.repeat 2 (%r: [...b, n, n] = %r3, %z: [...b, n, n] = %z3, %y: [...b, n, n] = %y3, %d: f64 = %d3) {
      %next_r = step.call @next(%r, %z) : ([...b, n, n], [...b, n, n]) -> [...b, n, n]
      %next_z = step.call @polynomial(%next_r) : ([...b, n, n]) -> [...b, n, n]
      %next_y = step.call @product(%y, %next_z, %d) : ([...b, n, n], [...b, n, n], f64) -> [...b, n, n]
      %next_d = step.mul %d, %a : f64
      step.yield %next_r, %next_z, %next_y, %next_d : [...b, n, n], [...b, n, n], [...b, n, n], f64
    }
    %y = step.select %bf16_factors, %y3, %y5 : [...b, n, n]
    %d = step.select %bf16_factors, %d3, %d5 : f64
    %moved_f32 = step.matmul %y, %x0 : [...b, n, n], [...b, n, m]
    %moved_bf16 = step.matmul %y, %x0 {factors = bf16} : [...b, n, n], [...b, n, m]
    %moved = step.select %bf16_factors, %moved_bf16, %moved_f32 : [...b, n, m]
    %own = step.mul %x0, %d : [...b, n, m], f64
    %qx = step.add %own, %moved : [...b, n, m]
    %anew = step.repeat 2 (%x: [...b, n, m] = %qx) {
      %next = step.call @newton_schulz(%x) : ([...b, n, m]) -> [...b, n, m]
      step.yield %next : [...b, n, m]
    }
    %x5 = step.select %bf16_factors, %anew, %qx : [...b, n, m]

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
    %gram_f32 = step.matmul %xt, %x0 : [...b, m, n], [...b, n, m]
    %gram_bf16 = step.matmul %xt, %x0 {factors = bf16} : [...b, m, n], [...b, n, m]
    %gram = step.select %bf16_factors, %gram_bf16, %gram_f32 : [...b, m, m]
    %y1 = step.call @polynomial_tall(%gram) : ([...b, m, m]) -> [...b, m, m]
    %r3, %z3, %y3, %d3 = step.repeat 2 (%r: [...b, m, m] = %gram, %z: [...b, m, m] = %y1, %y: [...b, m, m] = %y1, %d: f64 = %a) {
      %next_r = step.call @next_tall(%r, %z) : ([...b, m, m], [...b, m, m]) -> [...b, m, m]
      %next_z = step.call @polynomial_tall(%next_r) : ([...b, m, m]) -> [...b, m, m]
      %next_y = step.call @product_tall(%y, %next_z, %d) : ([...b, m, m], [...b, m, m], f64) -> [...b, m, m]
      %next_d = step.mul %d, %a : f64
      step.yield %next_r, %next_z, %next_y, %next_d : [...b, m, m], [...b, m, m], [...b, m, m], f64
    }
    %r5, %z5, %y5, %d5 = step.repeat 2 (%r: [...b, m, m] = %r3, %z: [...b, m, m] = %z3, %y: [...b, m, m] = %y3, %d: f64 = %d3) {
      %next_r = step.call @next_tall(%r, %z) : ([...b, m, m], [...b, m, m]) -> [...b, m, m]
      %next_z = step.call @polynomial_tall(%next_r) : ([...b, m, m]) -> [...b, m, m]
      %next_y = step.call @product_tall(%y, %next_z, %d) : ([...b, m, m], [...b, m, m], f64) -> [...b, m, m]
      %next_d = step.mul %d, %a : f64
      step.yield %next_r, %next_z, %next_y, %next_d : [...b, m, m], [...b, m, m], [...b, m, m], f64
    }
    %y = step.select %bf16_factors, %y3, %y5 : [...b, m, m]
    %d = step.select %bf16_factors, %d3, %d5 : f64
    %moved_f32 = step.matmul %x0, %y : [...b, n, m], [...b, m, m]
    %moved_bf16 = step.matmul %x0, %y {factors = bf16} : [...b, n, m], [...b, m, m]
    %moved = step.select %bf16_factors, %moved_bf16, %moved_f32 : [...b, n, m]
    %own = step.mul %x0, %d : [...b, n, m], f64
    %qx = step.add %own, %moved : [...b, n, m]
    %anew = step.repeat 2 (%x: [...b, n, m] = %qx) {
      %next = step.call @newton_schulz_tall(%x) : ([...b, n, m]) -> [...b, n, m]
      step.yield %next : [...b, n, m]
    }
    %x5 = step.select %bf16_factors, %anew, %qx : [...b, n, m]

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
