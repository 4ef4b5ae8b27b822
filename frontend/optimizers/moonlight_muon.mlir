// Muon for matrices and AdamW for the rest, in one optimizer, in the form of Moonshot's
// examples/toy_train.py (github.com/MoonshotAI/Moonlight): J. Liu et al., "Muon is Scalable for
// LLM Training", 2025, section 2.2.
//
//   v     <- momentum * v + g
//   u     <- g + momentum * v, or without nesterov v
//   X     <- u / (|u|_F + 1e-7);    with more rows than columns of its transpose
//   X     <- a * X + (b * A + c * A A) X,  A = X X^T;     five times
//   theta <- theta - lr * weight_decay * theta - lr * 0.2 * sqrt(max(rows, columns)) * X
//
// and without use_muon
//
//   m     <- beta1 * m + (1 - beta1) * g
//   v     <- beta2 * v + (1 - beta2) * g^2
//   theta <- theta - lr * weight_decay * theta
//                  - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps)
//
// so v is a sum and no average, and eps is not corrected for bias: jordan_muon.mlir has it the
// other way round in both, muon.mlir in the first. With use_muon a parameter is a matrix, or a
// batch of them, each with a norm of its own; the authors take matrices alone. All
// is computed in f32, or f64 where the parameter is f64, and with bf16_factors what is multiplied
// is rounded to bf16; the authors compute X in bfloat16. stepc.torch changes the number of
// repetitions where ns_steps is another.

step.optimizer @moonlight_muon {
  %lr = step.hyper "lr" = 1.0e-3
  %lambda = step.hyper "weight_decay" = 0.1
  %momentum = step.hyper "momentum" = 0.95
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.95
  %eps = step.hyper "eps" = 1.0e-8
  %a = step.constant 3.4445
  %b = step.constant -4.775
  %c = step.constant 2.0315
  %use_muon = step.option "use_muon" = true
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
  // |u|_F + 1e-7.
  step.define @divisor(%u: [...b, n, m]) {
    %uu = step.mul %u, %u : [...b, n, m]
    %sums = step.sum %uu over [m] : [...b, n, m]
    %sum = step.sum %sums over [n] : [...b, n, 1]
    %norm = step.sqrt %sum : [...b, 1, 1]
    %least = step.constant 1.0e-7
    %divisor = step.add %norm, %least : [...b, 1, 1], f64
    step.yield %divisor : [...b, 1, 1]
  }
  // lr * 0.2 * sqrt(max(rows, columns)).
  step.define @rate(%rows: f64, %columns: f64) {
    %larger = step.maximum %rows, %columns : f64
    %root = step.sqrt %larger : f64
    %fifth = step.constant 0.2
    %scale = step.mul %fifth, %root : f64
    %rate = step.mul %lr, %scale : f64
    step.yield %rate : f64
  }
  // lr with both corrections.
  step.define @corrected(%t: i64) {
    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %c1 = step.sub %one, %beta1_t : f64
    %c2 = step.sub %one, %beta2_t : f64
    %root_c2 = step.sqrt %c2 : f64
    %raised = step.mul %lr, %root_c2 : f64
    %alpha = step.div %raised, %c1 : f64
    step.yield %alpha : f64
  }

  // 1 - lr * weight_decay.
  step.define @keep() {
    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    step.yield %keep : f64
  }

  step.rule @wide(%theta: param[...b, n, m], %g: grad[...b, n, m], %v: state "momentum_buffer"[...b, n, m])
      where %use_muon, extent -2 le extent -1 {
    %v_kept = step.mul %v, %momentum : [...b, n, m], f64
    %v1 = step.add %v_kept, %g : [...b, n, m]
    %v_part = step.mul %v1, %momentum : [...b, n, m], f64
    %ahead = step.add %g, %v_part : [...b, n, m]
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

  step.rule @tall(%theta: param[...b, n, m], %g: grad[...b, n, m], %v: state "momentum_buffer"[...b, n, m])
      where %use_muon {
    %v_kept = step.mul %v, %momentum : [...b, n, m], f64
    %v1 = step.add %v_kept, %g : [...b, n, m]
    %v_part = step.mul %v1, %momentum : [...b, n, m], f64
    %ahead = step.add %g, %v_part : [...b, n, m]
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

  step.rule @any(%theta: param[*], %g: grad[*], %m: state "moment1"[*],
                 %v: state "moment2"[*], %t: count) where not %use_muon {
    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [*], [*], f64
    %w2 = step.sub %one, %beta2 : f64
    %gg = step.mul %g, %g : [*]
    %v1 = step.lerp %v, %gg, %w2 : [*], [*], f64
    %alpha = step.call @corrected(%t) : (i64) -> f64
    %root = step.sqrt %v1 : [*]
    %denom = step.add %root, %eps : [*], f64
    %u = step.div %m1, %denom : [*]
    %keep = step.call @keep() : () -> f64
    %kept = step.mul %theta, %keep : [*], f64
    %move = step.mul %u, %alpha : [*], f64
    %theta1 = step.sub %kept, %move : [*]
    step.return %theta1, %m1, %v1
  }
}
