// Muon: the momentum of a matrix, with singular values near 1 in place of its own.
// K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024,
// https://kellerjordan.github.io/posts/muon, in the form of torch.optim.Muon.
//
//   v     <- momentum * v + (1 - momentum) * g
//   u     <- (1 - momentum) * g + momentum * v, or without nesterov v
//   X     <- u / max(|u|_F, eps);    with more rows than columns of its transpose
//   X     <- a * X + (b * A + c * A A) X,  A = X X^T;     five times
//   theta <- theta - lr * weight_decay * theta - lr * s * X
//
//   s = sqrt(max(1, rows / columns)), or with match_rms_adamw 0.2 * sqrt(max(rows,
//   columns)) (J. Liu et al., "Muon is Scalable for LLM Training", 2025, section 2.2)
//
// A parameter is a matrix: what has another number of dims is refused, as torch does.
// X is computed in f32, or f64 where the parameter is f64; torch computes it in
// bfloat16, whose roundings are those of whatever product it has. torch's ns_steps is
// 5 here, so a step is compiled once.

step.optimizer @muon {
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

  step.rule @wide(%theta: param[n, m], %g: grad[n, m], %v: state "momentum_buffer"[n, m])
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
    %x5 = step.repeat 5 (%x: [n, m] = %x0) {
      %next = step.call @newton_schulz_tall(%x) : ([n, m]) -> [n, m]
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
}
