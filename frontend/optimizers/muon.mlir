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
// Of more than two dims the last two are a matrix and the others a batch, each matrix with a
// norm of its own; torch takes matrices alone. X is computed in f32, or f64 where the
// parameter is f64, and with bf16_factors what is multiplied is rounded to bf16; torch rounds X,
// A and A A too, and adds in whatever order its product has. stepc.torch changes the number of
// repetitions where ns_steps is another, and compiles a step for each number.

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

  step.rule @wide(%theta: param[...b, n, m], %g: grad[...b, n, m], %v: state "momentum_buffer"[...b, n, m])
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
    %x5 = step.repeat 5 (%x: [...b, n, m] = %x0) {
      %next = step.call @newton_schulz_tall(%x) : ([...b, n, m]) -> [...b, n, m]
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
}
