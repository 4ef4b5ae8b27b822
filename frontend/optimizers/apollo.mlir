// APOLLO: the gradient, scaled as AdamW would scale a random projection of it.
// H. Zhu et al., "APOLLO: SGD-like Memory, AdamW-level Performance", MLSys 2025,
// algorithm 1, in the form of the authors' apollo_torch.APOLLOAdamW.
//
//   P     <- normal random numbers / sqrt(rank), in steps 1, gap + 1, 2 gap + 1
//   l     <- g P
//   m     <- beta1 * m + (1 - beta1) * l
//   v     <- beta2 * v + (1 - beta2) * l^2
//   u     <- m / (sqrt(v) + eps)
//   d     <- g * |u| / (|l| + 1e-8)
//   d     <- d / h,  h = max(|d| / (|d| of the last step + 1e-8), 1.01) / 1.01
//   theta <- theta - alpha_t * sqrt(scale) * d,
//            alpha_t = lr * sqrt(1 - beta2^t) / (1 - beta1^t)
//   theta <- theta - lr * weight_decay * theta
//
// so it is on the right side; on the left one l is Pt g. |u| and |l| are norms of each row of
// l (on the left each column), by_channel, or of the whole. h is 1 in the first step, and
// without limit_growth. With scale_front sqrt(scale) is within d, and so in the norm that the
// next step sees. proj_type says on which side, as in galore_adamw.mlir: tall_right,
// wide_right. With svd P has the gradient's first singular vectors, as GaLore's. Without
// low_rank, and where a parameter is no matrix, it is AdamW: eps outside of the root, the
// decay behind the update.
//
// P follows from the seed, the tensor's number and the step (step.random_normal), and is the
// same under any sharding and on any device; the authors' is torch's, of a seed for each
// parameter. The rank is no more than the rows and the columns here, and theirs may be. Where
// P is not there, as where a checkpoint has none, it is made in any step.

step.optimizer @apollo {
  %lr = step.hyper "lr" = 1.0e-3
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 0.999
  %eps = step.hyper "eps" = 1.0e-6
  %lambda = step.hyper "weight_decay" = 0.0
  %gap = step.hyper "update_proj_gap" = 200.0
  %scale = step.hyper "scale" = 1.0
  %seed = step.hyper "projection_seed" = 0.0
  %rank = step.option "rank" = 256
  %low_rank = step.option "low_rank" = true
  %tall_right = step.option "tall_right" = true
  %wide_right = step.option "wide_right" = false
  %by_channel = step.option "by_channel" = true
  %svd = step.option "svd" = false
  %limit_growth = step.option "limit_growth" = true
  %scale_front = step.option "scale_front" = false
  %correct_bias = step.option "correct_bias" = true
  %one = step.constant 1.0
  %small = step.constant 1.0e-8
  %growth = step.constant 1.01

  // 1 - lr * weight_decay, and lr with both corrections.
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
    step.yield %keep, %alpha : f64, f64
  }
  // sqrt(scale), within d and behind it.
  step.define @scales() {
    %root = step.sqrt %scale : f64
    %front = step.select %scale_front, %root, %one : f64
    %back = step.select %scale_front, %one, %root : f64
    step.yield %front, %back : f64, f64
  }
  step.define @make_left(%g: [n, m], %t: i64, %columns: f64) {
    %gt = step.transpose %g : [n, m]
    %gram = step.matmul %g, %gt {accumulate = f64} : [n, m], [m, n]
    %vectors = step.eigh %gram : [n, n]
    %first = step.first %vectors, r : [n, n]
    %normal = step.random_normal "projection" %seed, %t : [n, r]
    %root = step.sqrt %columns : f64
    %random = step.div %normal, %root : [n, r], f64
    %p = step.select %svd, %first, %random : [n, r]
    step.yield %p : [n, r]
  }
  step.define @make_right(%g: [n, m], %t: i64, %columns: f64) {
    %gt = step.transpose %g : [n, m]
    %gram = step.matmul %gt, %g {accumulate = f64} : [m, n], [n, m]
    %vectors = step.eigh %gram : [m, m]
    %first = step.first %vectors, r : [m, m]
    %normal = step.random_normal "projection" %seed, %t : [m, r]
    %root = step.sqrt %columns : f64
    %random = step.div %normal, %root : [m, r], f64
    %p = step.select %svd, %first, %random : [m, r]
    step.yield %p : [m, r]
  }
  // |u| / (|l| + 1e-8).
  step.define @ratio(%u_sum: f64, %l_sum: f64) {
    %u_norm = step.sqrt %u_sum : f64
    %l_norm = step.sqrt %l_sum : f64
    %l_above = step.add %l_norm, %small : f64
    %ratio = step.div %u_norm, %l_above : f64
    step.yield %ratio : f64
  }
  step.define @ratio_left(%u: [r, m], %l: [r, m]) {
    %uu = step.mul %u, %u : [r, m]
    %ll = step.mul %l, %l : [r, m]
    %u_squares = step.sum %uu over [r] : [r, m]
    %l_squares = step.sum %ll over [r] : [r, m]
    %u_norms = step.sqrt %u_squares : [1, m]
    %l_norms = step.sqrt %l_squares : [1, m]
    %l_above = step.add %l_norms, %small : [1, m], f64
    %ratios = step.div %u_norms, %l_above : [1, m]
    %u_sum = step.sum %uu : [r, m]
    %l_sum = step.sum %ll : [r, m]
    %ratio = step.call @ratio(%u_sum, %l_sum) : (f64, f64) -> f64
    %factor = step.select %by_channel, %ratios, %ratio : [1, m], f64
    step.yield %factor : [1, m]
  }
  step.define @ratio_right(%u: [n, r], %l: [n, r]) {
    %uu = step.mul %u, %u : [n, r]
    %ll = step.mul %l, %l : [n, r]
    %u_squares = step.sum %uu over [r] : [n, r]
    %l_squares = step.sum %ll over [r] : [n, r]
    %u_norms = step.sqrt %u_squares : [n, 1]
    %l_norms = step.sqrt %l_squares : [n, 1]
    %l_above = step.add %l_norms, %small : [n, 1], f64
    %ratios = step.div %u_norms, %l_above : [n, 1]
    %u_sum = step.sum %uu : [n, r]
    %l_sum = step.sum %ll : [n, r]
    %ratio = step.call @ratio(%u_sum, %l_sum) : (f64, f64) -> f64
    %factor = step.select %by_channel, %ratios, %ratio : [n, 1], f64
    step.yield %factor : [n, 1]
  }
  // |d|, and h.
  step.define @growth(%d: [n, m], %last: [1, 1], %first: i1) {
    %dd = step.mul %d, %d : [n, m]
    %sum = step.sum %dd : [n, m]
    %norm = step.sqrt %sum : f64
    %above = step.add %last, %small : [1, 1], f64
    %grown = step.div %norm, %above : f64, [1, 1]
    %most = step.maximum %grown, %growth : [1, 1], f64
    %too_much = step.div %most, %growth : [1, 1], f64
    %h = step.select %first, %one, %too_much : f64, [1, 1]
    step.yield %norm, %h : f64, [1, 1]
  }

  step.rule @left_of_tall(%theta: param[n, m], %g: grad[n, m], %p: state "projection"[n, r],
                          %m: state "exp_avg"[r, m], %v: state "exp_avg_sq"[r, m],
                          %last: state "scaled_grad"[1, 1] if %limit_growth,
                          %fresh: fresh("projection"), %first: fresh("scaled_grad"), %t: count)
      dim r = min %rank, n, m where %low_rank, extent 0 ge extent 1, not %tall_right {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %columns = step.extent r
    %p1 = step.when %due, %p : [n, r] {
      %new = step.call @make_left(%g, %t, %columns) : ([n, m], i64, f64) -> [n, r]
      step.yield %new : [n, r]
    }
    %pt = step.transpose %p1 : [n, r]
    %l = step.matmul %pt, %g : [r, n], [n, m]

    %keep, %alpha = step.call @rates(%t) : (i64) -> (f64, f64)
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
    %denom = step.add %root, %eps : [r, m], f64
    %u = step.div %m1, %denom : [r, m]

    %factor = step.call @ratio_left(%u, %l) : ([r, m], [r, m]) -> [1, m]
    %front, %back = step.call @scales() : () -> (f64, f64)
    %scaled = step.mul %g, %factor : [n, m], [1, m]
    %d = step.mul %scaled, %front : [n, m], f64
    %norm, %h = step.call @growth(%d, %last, %first) : ([n, m], [1, 1], i1) -> (f64, [1, 1])
    %last1 = step.div %norm, %h : f64, [1, 1]
    %limited = step.div %d, %h : [n, m], [1, 1]
    %direction = step.select %limit_growth, %limited, %d : [n, m]
    %backed = step.mul %direction, %back : [n, m], f64
    %update = step.mul %backed, %alpha : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    %theta2 = step.mul %theta1, %keep : [n, m], f64
    step.return %theta2, %p1, %m1, %v1, %last1 : [n, m], [n, r], [r, m], [r, m], [1, 1]
  }

  step.rule @left_of_wide(%theta: param[n, m], %g: grad[n, m], %p: state "projection"[n, r],
                          %m: state "exp_avg"[r, m], %v: state "exp_avg_sq"[r, m],
                          %last: state "scaled_grad"[1, 1] if %limit_growth,
                          %fresh: fresh("projection"), %first: fresh("scaled_grad"), %t: count)
      dim r = min %rank, n, m where %low_rank, extent 0 lt extent 1, not %wide_right {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %columns = step.extent r
    %p1 = step.when %due, %p : [n, r] {
      %new = step.call @make_left(%g, %t, %columns) : ([n, m], i64, f64) -> [n, r]
      step.yield %new : [n, r]
    }
    %pt = step.transpose %p1 : [n, r]
    %l = step.matmul %pt, %g : [r, n], [n, m]

    %keep, %alpha = step.call @rates(%t) : (i64) -> (f64, f64)
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
    %denom = step.add %root, %eps : [r, m], f64
    %u = step.div %m1, %denom : [r, m]

    %factor = step.call @ratio_left(%u, %l) : ([r, m], [r, m]) -> [1, m]
    %front, %back = step.call @scales() : () -> (f64, f64)
    %scaled = step.mul %g, %factor : [n, m], [1, m]
    %d = step.mul %scaled, %front : [n, m], f64
    %norm, %h = step.call @growth(%d, %last, %first) : ([n, m], [1, 1], i1) -> (f64, [1, 1])
    %last1 = step.div %norm, %h : f64, [1, 1]
    %limited = step.div %d, %h : [n, m], [1, 1]
    %direction = step.select %limit_growth, %limited, %d : [n, m]
    %backed = step.mul %direction, %back : [n, m], f64
    %update = step.mul %backed, %alpha : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    %theta2 = step.mul %theta1, %keep : [n, m], f64
    step.return %theta2, %p1, %m1, %v1, %last1 : [n, m], [n, r], [r, m], [r, m], [1, 1]
  }

  step.rule @right(%theta: param[n, m], %g: grad[n, m], %p: state "projection"[m, r],
                   %m: state "exp_avg"[n, r], %v: state "exp_avg_sq"[n, r],
                   %last: state "scaled_grad"[1, 1] if %limit_growth,
                   %fresh: fresh("projection"), %first: fresh("scaled_grad"), %t: count)
      dim r = min %rank, n, m where %low_rank {
    %turn = step.every %gap, %t
    %due = step.or %turn, %fresh : i1
    %columns = step.extent r
    %p1 = step.when %due, %p : [m, r] {
      %new = step.call @make_right(%g, %t, %columns) : ([n, m], i64, f64) -> [m, r]
      step.yield %new : [m, r]
    }
    %l = step.matmul %g, %p1 : [n, m], [m, r]

    %keep, %alpha = step.call @rates(%t) : (i64) -> (f64, f64)
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
    %denom = step.add %root, %eps : [n, r], f64
    %u = step.div %m1, %denom : [n, r]

    %factor = step.call @ratio_right(%u, %l) : ([n, r], [n, r]) -> [n, 1]
    %front, %back = step.call @scales() : () -> (f64, f64)
    %scaled = step.mul %g, %factor : [n, m], [n, 1]
    %d = step.mul %scaled, %front : [n, m], f64
    %norm, %h = step.call @growth(%d, %last, %first) : ([n, m], [1, 1], i1) -> (f64, [1, 1])
    %last1 = step.div %norm, %h : f64, [1, 1]
    %limited = step.div %d, %h : [n, m], [1, 1]
    %direction = step.select %limit_growth, %limited, %d : [n, m]
    %backed = step.mul %direction, %back : [n, m], f64
    %update = step.mul %backed, %alpha : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    %theta2 = step.mul %theta1, %keep : [n, m], f64
    step.return %theta2, %p1, %m1, %v1, %last1 : [n, m], [m, r], [n, r], [n, r], [1, 1]
  }

  step.rule @any(%theta: param[*], %l: grad[*], %m: state "exp_avg"[*],
                 %v: state "exp_avg_sq"[*], %t: count) {
    %keep, %alpha = step.call @rates(%t) : (i64) -> (f64, f64)
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
    %denom = step.add %root, %eps : [*], f64
    %u = step.div %m1, %denom : [*]

    %update = step.mul %u, %alpha : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    %theta2 = step.mul %theta1, %keep : [*], f64
    step.return %theta2, %m1, %v1
  }
}
