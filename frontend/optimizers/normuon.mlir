// NorMuon: Muon, with each row of the update divided by the root of an average of its
// mean square.
// Z. Li et al., "NorMuon: Making Muon more efficient and scalable", 2025, algorithm 1, in
// the form of the authors' normuon.py (github.com/zichongli5/NorMuon).
//
//   v     <- momentum * v + (1 - momentum) * g
//   u     <- (1 - momentum) * g + momentum * v, or without nesterov v
//   X     <- u / (|u|_F + 1e-7);    with more rows than columns of its transpose
//   X     <- a * X + (b * A + c * A A) X,  A = X X^T;     five times
//   s_i   <- beta2 * s_i + (1 - beta2) * mean_j X_ij^2
//   Y_ij   = X_ij / (sqrt(s_i) + 1e-10)
//   theta <- theta - lr * weight_decay * theta
//                  - lr * sqrt(max(1, rows / columns)) * Y * |X|_F / (|Y|_F + 1e-10)
//
// Of more than two dims the last two are a matrix and the others a batch, each matrix with
// norms of its own. All is computed in f32, or f64 where the parameter is f64, and with
// bf16_factors what is multiplied is rounded to bf16; the authors compute X and Y in bfloat16.

step.optimizer @normuon {
  %lr = step.hyper "lr" = 0.02
  %lambda = step.hyper "weight_decay" = 0.0
  %momentum = step.hyper "momentum" = 0.95
  %beta2 = step.hyper "beta2" = 0.95
  %a = step.constant 3.4445
  %b = step.constant -4.775
  %c = step.constant 2.0315
  %nesterov = step.option "nesterov" = true
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
  // The norm of all elements.
  step.define @norm(%x: [...b, n, m]) {
    %xx = step.mul %x, %x : [...b, n, m]
    %sums = step.sum %xx over [m] : [...b, n, m]
    %sum = step.sum %sums over [n] : [...b, n, 1]
    %norm = step.sqrt %sum : [...b, 1, 1]
    step.yield %norm : [...b, 1, 1]
  }
  // |u|_F + 1e-7.
  step.define @divisor(%u: [...b, n, m]) {
    %norm = step.call @norm(%u) : ([...b, n, m]) -> [...b, 1, 1]
    %least = step.constant 1.0e-7
    %divisor = step.add %norm, %least : [...b, 1, 1], f64
    step.yield %divisor : [...b, 1, 1]
  }
  // The mean square of each row.
  step.define @squares(%x: [...b, n, m]) {
    %xx = step.mul %x, %x : [...b, n, m]
    %square = step.mean %xx over [m] : [...b, n, m]
    step.yield %square : [...b, n, 1]
  }
  // The rows divided, with the norm that all had before.
  step.define @normalize(%x: [...b, n, m], %s: [...b, n, 1]) {
    %root = step.sqrt %s : [...b, n, 1]
    %least = step.constant 1.0e-10
    %divisor = step.add %root, %least : [...b, n, 1], f64
    %y = step.div %x, %divisor : [...b, n, m], [...b, n, 1]
    %before = step.call @norm(%x) : ([...b, n, m]) -> [...b, 1, 1]
    %behind = step.call @norm(%y) : ([...b, n, m]) -> [...b, 1, 1]
    %bound = step.add %behind, %least : [...b, 1, 1], f64
    %scale = step.div %before, %bound : [...b, 1, 1]
    %update = step.mul %y, %scale : [...b, n, m], [...b, 1, 1]
    step.yield %update : [...b, n, m]
  }
  // lr * sqrt(max(1, rows / columns)).
  step.define @rate(%rows: f64, %columns: f64) {
    %ratio = step.div %rows, %columns : f64
    %bounded = step.maximum %one, %ratio : f64
    %scale = step.sqrt %bounded : f64
    %rate = step.mul %lr, %scale : f64
    step.yield %rate : f64
  }
  // 1 - lr * weight_decay.
  step.define @keep() {
    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    step.yield %keep : f64
  }

  step.rule @wide(%theta: param[...b, n, m], %g: grad[...b, n, m], %v: state "momentum_buffer"[...b, n, m],
                  %s: state "second_momentum_buffer"[...b, n, 1])
      where extent -2 le extent -1 {
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
    %square = step.call @squares(%x5) : ([...b, n, m]) -> [...b, n, 1]
    %w2 = step.sub %one, %beta2 : f64
    %s1 = step.lerp %s, %square, %w2 : [...b, n, 1], [...b, n, 1], f64
    %update = step.call @normalize(%x5, %s1) : ([...b, n, m], [...b, n, 1]) -> [...b, n, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [...b, n, m], f64
    %move = step.mul %update, %rate : [...b, n, m], f64
    %theta1 = step.sub %kept, %move : [...b, n, m]
    step.return %theta1, %v1, %s1 : [...b, n, m], [...b, n, m], [...b, n, 1]
  }

  step.rule @tall(%theta: param[...b, n, m], %g: grad[...b, n, m], %v: state "momentum_buffer"[...b, n, m],
                  %s: state "second_momentum_buffer"[...b, n, 1]) {
    %w = step.sub %one, %momentum : f64
    %v1 = step.lerp %v, %g, %w : [...b, n, m], [...b, n, m], f64
    %ahead = step.lerp %g, %v1, %momentum : [...b, n, m], [...b, n, m], f64
    %u = step.select %nesterov, %ahead, %v1 : [...b, n, m]

    %divisor = step.call @divisor(%u) : ([...b, n, m]) -> [...b, 1, 1]
    %x0 = step.div %u, %divisor : [...b, n, m], [...b, 1, 1]
    %x5 = step.repeat 5 (%x: [...b, n, m] = %x0) {
      %next = step.call @newton_schulz_tall(%x) : ([...b, n, m]) -> [...b, n, m]
      step.yield %next : [...b, n, m]
    }
    %square = step.call @squares(%x5) : ([...b, n, m]) -> [...b, n, 1]
    %w2 = step.sub %one, %beta2 : f64
    %s1 = step.lerp %s, %square, %w2 : [...b, n, 1], [...b, n, 1], f64
    %update = step.call @normalize(%x5, %s1) : ([...b, n, m], [...b, n, 1]) -> [...b, n, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [...b, n, m], f64
    %move = step.mul %update, %rate : [...b, n, m], f64
    %theta1 = step.sub %kept, %move : [...b, n, m]
    step.return %theta1, %v1, %s1 : [...b, n, m], [...b, n, m], [...b, n, 1]
  }
}
