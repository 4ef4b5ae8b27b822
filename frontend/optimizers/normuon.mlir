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
// A parameter is a matrix. All is computed in f32, or f64 where the parameter is f64; the
// authors compute X and Y in bfloat16.

step.optimizer @normuon {
  %lr = step.hyper "lr" = 0.02
  %lambda = step.hyper "weight_decay" = 0.0
  %momentum = step.hyper "momentum" = 0.95
  %beta2 = step.hyper "beta2" = 0.95
  %a = step.constant 3.4445
  %b = step.constant -4.775
  %c = step.constant 2.0315
  %nesterov = step.option "nesterov" = true
  %one = step.constant 1.0

  // a * X + (b * A + c * A A) X, of a matrix that has no more rows than columns.
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
  // The same of one that has more.
  step.define @newton_schulz_tall(%x: [n, m]) {
    %xt = step.transpose %x : [n, m]
    %gram = step.matmul %xt, %x : [m, n], [n, m]
    %square = step.matmul %gram, %gram : [m, m]
    %first = step.mul %gram, %b : [m, m], f64
    %second = step.mul %square, %c : [m, m], f64
    %polynomial = step.add %first, %second : [m, m]
    %change = step.matmul %x, %polynomial : [n, m], [m, m]
    %kept = step.mul %x, %a : [n, m], f64
    %next = step.add %kept, %change : [n, m]
    step.yield %next : [n, m]
  }
  // The norm of all elements.
  step.define @norm(%x: [n, m]) {
    %xx = step.mul %x, %x : [n, m]
    %sum = step.sum %xx : [n, m]
    %norm = step.sqrt %sum : f64
    step.yield %norm : f64
  }
  // |u|_F + 1e-7.
  step.define @divisor(%u: [n, m]) {
    %norm = step.call @norm(%u) : ([n, m]) -> f64
    %least = step.constant 1.0e-7
    %divisor = step.add %norm, %least : f64
    step.yield %divisor : f64
  }
  // The mean square of each row.
  step.define @squares(%x: [n, m]) {
    %xx = step.mul %x, %x : [n, m]
    %square = step.mean %xx over [m] : [n, m]
    step.yield %square : [n, 1]
  }
  // The rows divided, with the norm that all had before.
  step.define @normalize(%x: [n, m], %s: [n, 1]) {
    %root = step.sqrt %s : [n, 1]
    %least = step.constant 1.0e-10
    %divisor = step.add %root, %least : [n, 1], f64
    %y = step.div %x, %divisor : [n, m], [n, 1]
    %before = step.call @norm(%x) : ([n, m]) -> f64
    %behind = step.call @norm(%y) : ([n, m]) -> f64
    %bound = step.add %behind, %least : f64
    %scale = step.div %before, %bound : f64
    %update = step.mul %y, %scale : [n, m], f64
    step.yield %update : [n, m]
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

  step.rule @wide(%theta: param[n, m], %g: grad[n, m], %v: state "momentum_buffer"[n, m],
                  %s: state "second_momentum_buffer"[n, 1])
      where extent 0 le extent 1 {
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
    %square = step.call @squares(%x5) : ([n, m]) -> [n, 1]
    %w2 = step.sub %one, %beta2 : f64
    %s1 = step.lerp %s, %square, %w2 : [n, 1], [n, 1], f64
    %update = step.call @normalize(%x5, %s1) : ([n, m], [n, 1]) -> [n, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %move = step.mul %update, %rate : [n, m], f64
    %theta1 = step.sub %kept, %move : [n, m]
    step.return %theta1, %v1, %s1 : [n, m], [n, m], [n, 1]
  }

  step.rule @tall(%theta: param[n, m], %g: grad[n, m], %v: state "momentum_buffer"[n, m],
                  %s: state "second_momentum_buffer"[n, 1]) {
    %w = step.sub %one, %momentum : f64
    %v1 = step.lerp %v, %g, %w : [n, m], [n, m], f64
    %ahead = step.lerp %g, %v1, %momentum : [n, m], [n, m], f64
    %u = step.select %nesterov, %ahead, %v1 : [n, m]

    %divisor = step.call @divisor(%u) : ([n, m]) -> f64
    %x0 = step.div %u, %divisor : [n, m], f64
    %x5 = step.repeat 5 (%x: [n, m] = %x0) {
      %next = step.call @newton_schulz_tall(%x) : ([n, m]) -> [n, m]
      step.yield %next : [n, m]
    }
    %square = step.call @squares(%x5) : ([n, m]) -> [n, 1]
    %w2 = step.sub %one, %beta2 : f64
    %s1 = step.lerp %s, %square, %w2 : [n, 1], [n, 1], f64
    %update = step.call @normalize(%x5, %s1) : ([n, m], [n, 1]) -> [n, m]

    %rows = step.extent n
    %columns = step.extent m
    %rate = step.call @rate(%rows, %columns) : (f64, f64) -> f64
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [n, m], f64
    %move = step.mul %update, %rate : [n, m], f64
    %theta1 = step.sub %kept, %move : [n, m]
    step.return %theta1, %v1, %s1 : [n, m], [n, m], [n, 1]
  }
}
