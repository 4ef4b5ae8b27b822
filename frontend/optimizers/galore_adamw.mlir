// GaLore-AdamW: AdamW on a projection of the gradient of few rows or columns.
// J. Zhao et al., "GaLore: Memory-Efficient LLM Training by Gradient Low-Rank
// Projection", ICML 2024, algorithms 1 and 2, in the form of the authors'
// galore_torch.GaLoreAdamW.
//
//   P     <- the first rank right singular vectors of g, in steps 1, gap + 1, 2 gap + 1
//   l     <- g P
//   m     <- beta1 * m + (1 - beta1) * l
//   v     <- beta2 * v + (1 - beta2) * l^2
//   u     <- m / (sqrt(v) + eps)
//   theta <- theta - alpha_t * scale * u Pt,  alpha_t = lr * sqrt(1 - beta2^t) / (1 - beta1^t)
//   theta <- theta - lr * weight_decay * theta
//
// so it is on the right side; on the left one P has the first left singular vectors, l
// is Pt g, and P u comes back. proj_type says on which: 'std' (tall_right) on the right
// where a matrix has no fewer rows than columns, else on the left; 'reverse_std'
// (wide_right) the other way round; 'right' both, 'left' none; 'full' (both_sides) has a
// basis of each side, l = Pt g Q and P u Qt. Without low_rank, and where a parameter is no
// matrix, it is the authors' AdamW: eps outside of the root, the decay behind the update.
// With corrected_eps, as in ColossalAI's DistGaloreAwamW, eps is eps * sqrt(1 - beta2^t).
//
// P follows from the eigenvectors of the smaller Gram matrix, gt g or g gt, which is added
// up in f64, and rounded; a singular value below 2^-12 of the largest is a rounding there,
// and its vector any that the others leave. torch's svd of f32 resolves 2^-23. A
// vector's largest component is positive; the signs of the authors' are LAPACK's. They
// matter for as long as m has old ones: it is not turned where P changes. Where P is not
// there, as where a checkpoint has none, it is made in any step.

step.optimizer @galore_adamw {
  %lr = step.hyper "lr" = 1.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-6
  %lambda = step.hyper "weight_decay" = 0.0
  %gap = step.hyper "update_proj_gap" = 200.0
  %scale = step.hyper "scale" = 0.25
  %rank = step.option "rank" = 128
  %low_rank = step.option "low_rank" = true
  %tall_right = step.option "tall_right" = true
  %wide_right = step.option "wide_right" = false
  %both_sides = step.option "both_sides" = false
  %correct_bias = step.option "correct_bias" = true
  %corrected_eps = step.option "corrected_eps" = false
  %one = step.constant 1.0

  // 1 - lr * weight_decay, lr with both corrections, and eps.
  step.define @rates(%t: i64) {
    %decay = step.mul %lr, %lambda : f64
    %keep = step.sub %one, %decay : f64
    %beta1_t = step.powi %beta1, %t
    %beta2_t = step.powi %beta2, %t
    %c1 = step.sub %one, %beta1_t : f64
    %c2 = step.sub %one, %beta2_t : f64
    %root_c2 = step.sqrt %c2 : f64
    %raised = step.mul %lr, %root_c2 : f64
    %corrected = step.div %raised, %c1 : f64
    %alpha = step.select %correct_bias, %corrected, %lr : f64
    %eps_root = step.mul %eps, %root_c2 : f64
    %eps_t = step.select %corrected_eps, %eps_root, %eps : f64
    step.yield %keep, %alpha, %eps_t : f64, f64, f64
  }
  // The first left singular vectors, and the first right ones.
  step.define @left_vectors(%g: [n, m]) {
    %gt = step.transpose %g : [n, m]
    %gram = step.matmul %g, %gt {accumulate = f64} : [n, m], [m, n]
    %vectors = step.eigh %gram : [n, n]
    %first = step.first %vectors, r : [n, n]
    step.yield %first : [n, r]
  }
  step.define @right_vectors(%g: [n, m]) {
    %gt = step.transpose %g : [n, m]
    %gram = step.matmul %gt, %g {accumulate = f64} : [m, n], [n, m]
    %vectors = step.eigh %gram : [m, m]
    %first = step.first %vectors, r : [m, m]
    step.yield %first : [m, r]
  }

  step.rule @both(%theta: param[n, m], %g: grad[n, m],
                  %p: state "projection"[n, r], %q: state "projection_right"[m, r],
                  %m: state "exp_avg"[r, r], %v: state "exp_avg_sq"[r, r],
                  %fresh: fresh("projection", "projection_right"), %t: count)
      dim r = min %rank, n, m where %low_rank, %both_sides {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %p1, %q1 = step.when %due, %p, %q : [n, r], [m, r] {
      %left = step.call @left_vectors(%g) : ([n, m]) -> [n, r]
      %right = step.call @right_vectors(%g) : ([n, m]) -> [m, r]
      step.yield %left, %right : [n, r], [m, r]
    }
    %pt = step.transpose %p1 : [n, r]
    %half = step.matmul %pt, %g : [r, n], [n, m]
    %l = step.matmul %half, %q1 : [r, m], [m, r]

    %keep, %alpha, %eps_t = step.call @rates(%t) : (i64) -> (f64, f64, f64)
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [r, r], f64
    %m_gain = step.mul %l, %w1 : [r, r], f64
    %m1 = step.add %m_kept, %m_gain : [r, r]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [r, r], f64
    %l_part = step.mul %l, %w2 : [r, r], f64
    %v_gain = step.mul %l_part, %l : [r, r]
    %v1 = step.add %v_kept, %v_gain : [r, r]
    %root = step.sqrt %v1 : [r, r]
    %denom = step.add %root, %eps_t : [r, r], f64
    %u = step.div %m1, %denom : [r, r]

    %qt = step.transpose %q1 : [m, r]
    %half_back = step.matmul %p1, %u : [n, r], [r, r]
    %back = step.matmul %half_back, %qt : [n, r], [r, m]
    %alpha_scale = step.mul %alpha, %scale : f64
    %update = step.mul %back, %alpha_scale : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    %theta2 = step.mul %theta1, %keep : [n, m], f64
    step.return %theta2, %p1, %q1, %m1, %v1 : [n, m], [n, r], [m, r], [r, r], [r, r]
  }

  step.rule @left_of_tall(%theta: param[n, m], %g: grad[n, m],
                          %p: state "projection"[n, r], %m: state "exp_avg"[r, m],
                          %v: state "exp_avg_sq"[r, m], %fresh: fresh("projection"), %t: count)
      dim r = min %rank, n, m where %low_rank, extent 0 ge extent 1, not %tall_right {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %p1 = step.when %due, %p : [n, r] {
      %new = step.call @left_vectors(%g) : ([n, m]) -> [n, r]
      step.yield %new : [n, r]
    }
    %pt = step.transpose %p1 : [n, r]
    %l = step.matmul %pt, %g : [r, n], [n, m]

    %keep, %alpha, %eps_t = step.call @rates(%t) : (i64) -> (f64, f64, f64)
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [r, m], f64
    %m_gain = step.mul %l, %w1 : [r, m], f64
    %m1 = step.add %m_kept, %m_gain : [r, m]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [r, m], f64
    %l_part = step.mul %l, %w2 : [r, m], f64
    %v_gain = step.mul %l_part, %l : [r, m]
    %v1 = step.add %v_kept, %v_gain : [r, m]
    %root = step.sqrt %v1 : [r, m]
    %denom = step.add %root, %eps_t : [r, m], f64
    %u = step.div %m1, %denom : [r, m]

    %back = step.matmul %p1, %u : [n, r], [r, m]
    %alpha_scale = step.mul %alpha, %scale : f64
    %update = step.mul %back, %alpha_scale : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    %theta2 = step.mul %theta1, %keep : [n, m], f64
    step.return %theta2, %p1, %m1, %v1 : [n, m], [n, r], [r, m], [r, m]
  }

  step.rule @left_of_wide(%theta: param[n, m], %g: grad[n, m],
                          %p: state "projection"[n, r], %m: state "exp_avg"[r, m],
                          %v: state "exp_avg_sq"[r, m], %fresh: fresh("projection"), %t: count)
      dim r = min %rank, n, m where %low_rank, extent 0 lt extent 1, not %wide_right {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %p1 = step.when %due, %p : [n, r] {
      %new = step.call @left_vectors(%g) : ([n, m]) -> [n, r]
      step.yield %new : [n, r]
    }
    %pt = step.transpose %p1 : [n, r]
    %l = step.matmul %pt, %g : [r, n], [n, m]

    %keep, %alpha, %eps_t = step.call @rates(%t) : (i64) -> (f64, f64, f64)
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [r, m], f64
    %m_gain = step.mul %l, %w1 : [r, m], f64
    %m1 = step.add %m_kept, %m_gain : [r, m]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [r, m], f64
    %l_part = step.mul %l, %w2 : [r, m], f64
    %v_gain = step.mul %l_part, %l : [r, m]
    %v1 = step.add %v_kept, %v_gain : [r, m]
    %root = step.sqrt %v1 : [r, m]
    %denom = step.add %root, %eps_t : [r, m], f64
    %u = step.div %m1, %denom : [r, m]

    %back = step.matmul %p1, %u : [n, r], [r, m]
    %alpha_scale = step.mul %alpha, %scale : f64
    %update = step.mul %back, %alpha_scale : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    %theta2 = step.mul %theta1, %keep : [n, m], f64
    step.return %theta2, %p1, %m1, %v1 : [n, m], [n, r], [r, m], [r, m]
  }

  step.rule @right(%theta: param[n, m], %g: grad[n, m],
                   %p: state "projection"[m, r], %m: state "exp_avg"[n, r],
                   %v: state "exp_avg_sq"[n, r], %fresh: fresh("projection"), %t: count)
      dim r = min %rank, n, m where %low_rank {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %p1 = step.when %due, %p : [m, r] {
      %new = step.call @right_vectors(%g) : ([n, m]) -> [m, r]
      step.yield %new : [m, r]
    }
    %l = step.matmul %g, %p1 : [n, m], [m, r]

    %keep, %alpha, %eps_t = step.call @rates(%t) : (i64) -> (f64, f64, f64)
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [n, r], f64
    %m_gain = step.mul %l, %w1 : [n, r], f64
    %m1 = step.add %m_kept, %m_gain : [n, r]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [n, r], f64
    %l_part = step.mul %l, %w2 : [n, r], f64
    %v_gain = step.mul %l_part, %l : [n, r]
    %v1 = step.add %v_kept, %v_gain : [n, r]
    %root = step.sqrt %v1 : [n, r]
    %denom = step.add %root, %eps_t : [n, r], f64
    %u = step.div %m1, %denom : [n, r]

    %pt = step.transpose %p1 : [m, r]
    %back = step.matmul %u, %pt : [n, r], [r, m]
    %alpha_scale = step.mul %alpha, %scale : f64
    %update = step.mul %back, %alpha_scale : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    %theta2 = step.mul %theta1, %keep : [n, m], f64
    step.return %theta2, %p1, %m1, %v1 : [n, m], [m, r], [n, r], [n, r]
  }

  step.rule @any(%theta: param[*], %l: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %t: count) {
    %keep, %alpha, %eps_t = step.call @rates(%t) : (i64) -> (f64, f64, f64)
    %w1 = step.sub %one, %beta1 : f64
    %m_kept = step.mul %m, %beta1 : [*], f64
    %m_gain = step.mul %l, %w1 : [*], f64
    %m1 = step.add %m_kept, %m_gain : [*]
    %w2 = step.sub %one, %beta2 : f64
    %v_kept = step.mul %v, %beta2 : [*], f64
    %l_part = step.mul %l, %w2 : [*], f64
    %v_gain = step.mul %l_part, %l : [*]
    %v1 = step.add %v_kept, %v_gain : [*]
    %root = step.sqrt %v1 : [*]
    %denom = step.add %root, %eps_t : [*], f64
    %u = step.div %m1, %denom : [*]

    %update = step.mul %u, %alpha : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    %theta2 = step.mul %theta1, %keep : [*], f64
    step.return %theta2, %m1, %v1
  }
}
