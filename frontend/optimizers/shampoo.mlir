// Shampoo: a matrix's gradient between roots of the averages of its Gram matrices.
// V. Gupta et al., "Shampoo: Preconditioned Stochastic Tensor Optimization", ICML 2018;
// H.-J. M. Shi et al., "A Distributed Data-Parallel PyTorch Implementation of the
// Distributed Shampoo Optimizer", 2023 (arXiv 2309.06497), algorithm 2, in the form of
// facebookresearch/optimizers' distributed_shampoo.
//
//   L     <- beta2 * L + (1 - beta2) * g gt;  R alike of gt g;  sums where beta2 is 1
//   X     <- (L / c + d + epsilon)^(-1/4);    Y alike of R
//                                   in step s = start_preconditioning_step, and behind it
//                                   in those that f = precondition_frequency divides
//   f     <- (beta3 * m + (1 - beta3) * g) / (1 - beta3 * beta1^(t-1))
//   m     <- beta1 * m + (1 - beta1) * g
//   a     <- what the grafting method does with f: f / (sqrt(v / c') + grafting_epsilon), or f
//   p     <- X f Y * |a| / (|X f Y| + 1e-16);  without grafting X f Y;  before step s a
//   p     <- p + weight_decay * theta
//   b     <- momentum * b + (1 - dampening) * p
//   theta <- theta - lr * b
//
// c is 1 - beta2^t with use_bias_correction, or 1, and d what lifts the least eigenvalue to
// 0 where a rounding made it negative. v is the average of g^2 by grafting_beta2, or the sum
// where that is 1, and c' its 1 - grafting_beta2^t with grafting_bias_correction. Without
// decoupled_weight_decay it goes into g. With use_nesterov b is (1 - dampening) * p +
// momentum * b in the last line.
//
// Where the authors' differs: they cut what has a dim of more than max_preconditioner_dim
// into blocks, and make one dim of small ones; that is the frontend's, by views. Here a
// longer dim has no factor, and the exponent of the other is -1/2, as where a dim is 1. A
// matrix without a factor, a vector and a scalar are stepped by the grafting method alone.
// An infinite element or NaN goes into the roots, which are not made again and again before
// they are refused. A factor that begins in a later step, as where a checkpoint has none,
// begins as if all gradients before had been that of the step; a root that is not there is
// made in any step from s on. One that is 0 counts as the identity, which the authors'
// begins as: so where s is moved to a step that has passed.

step.optimizer @shampoo {
  %lr = step.hyper "lr" = 1.0e-2
  %beta1 = step.hyper "beta1" = 0.9
  %beta2 = step.hyper "beta2" = 1.0
  %beta3 = step.hyper "beta3" = 0.9
  %epsilon = step.hyper "epsilon" = 1.0e-12
  %lambda = step.hyper "weight_decay" = 0.0
  %frequency = step.hyper "precondition_frequency" = 1.0
  %start = step.hyper "start_preconditioning_step" = 1.0
  %exponent_0 = step.hyper "inverse_exponent_0" = 0.25
  %exponent_1 = step.hyper "inverse_exponent_1" = 0.25
  %exponent_alone = step.hyper "inverse_exponent_alone" = 0.5
  %beta_a = step.hyper "grafting_beta2" = 0.999
  %eps_a = step.hyper "grafting_epsilon" = 1.0e-10
  %mu = step.hyper "momentum" = 0.0
  %tau = step.hyper "dampening" = 0.0
  %precondition = step.option "precondition" = true
  %max_dim = step.option "max_preconditioner_dim" = 1024
  %correct_bias = step.option "use_bias_correction" = true
  %decoupled = step.option "decoupled_weight_decay" = true
  %graft = step.option "grafting" = false
  %graft_squares = step.option "grafting_squares" = false
  %graft_corrected = step.option "grafting_bias_correction" = false
  %nesterov = step.option "use_nesterov" = false
  %filters = step.option "has_filtered_grad" = true
  %has_momentum = step.option "has_momentum" = false
  %one = step.constant 1.0
  %zero = step.constant 0.0

  // Whether roots are used, and whether they are made.
  step.define @schedule(%t: i64, %lost: i1) {
    %number = step.to_f64 %t
    %begun = step.compare ge, %number, %start : f64
    %starts = step.compare eq, %number, %start : f64
    %ratio = step.div %number, %frequency : f64
    %whole = step.floor %ratio : f64
    %turns = step.compare eq, %ratio, %whole : f64
    %either = step.or %starts, %turns : i1
    %any = step.or %either, %lost : i1
    %due = step.and %begun, %any : i1
    step.yield %begun, %due : i1, i1
  }
  // 1 - beta^t, or 1 where the average is a sum.
  step.define @weights(%beta: f64, %t: i64) {
    %power = step.powi %beta, %t
    %sum = step.sub %one, %power : f64
    %adds = step.compare eq, %beta, %one : f64
    %weight = step.select %adds, %one, %sum : f64
    step.yield %weight : f64
  }
  // What a square counts for in an average, or in a sum.
  step.define @gain(%beta: f64) {
    %rest = step.sub %one, %beta : f64
    %adds = step.compare eq, %beta, %one : f64
    %gain = step.select %adds, %one, %rest : f64
    step.yield %gain : f64
  }
  // That of a factor, which may begin in this step; c.
  step.define @factor(%t: i64, %begins: i1) {
    %weights = step.call @weights(%beta2, %t) : (f64, i64) -> f64
    %c = step.select %correct_bias, %weights, %one : f64
    %later = step.call @gain(%beta2) : (f64) -> f64
    %at_first = step.select %correct_bias, %weights, %later : f64
    %gain = step.select %begins, %at_first, %later : f64
    step.yield %gain, %c : f64, f64
  }
  // 1 - beta3 * beta1^(t-1), or 1.
  step.define @filter(%t: i64) {
    %power = step.powi %beta1, %t
    %ratio = step.div %beta3, %beta1 : f64
    %rest = step.mul %ratio, %power : f64
    %weights = step.sub %one, %rest : f64
    %c = step.select %correct_bias, %weights, %one : f64
    step.yield %c : f64
  }
  // c'.
  step.define @grafting(%t: i64) {
    %weights = step.call @weights(%beta_a, %t) : (f64, i64) -> f64
    %c = step.select %graft_corrected, %weights, %one : f64
    step.yield %c : f64
  }
  // |a| / (|p| + 1e-16), or 1.
  step.define @scale(%a: [n, m], %p: [n, m]) {
    %aa = step.mul %a, %a : [n, m]
    %a_sum = step.sum %aa : [n, m]
    %a_norm = step.sqrt %a_sum : f64
    %pp = step.mul %p, %p : [n, m]
    %p_sum = step.sum %pp : [n, m]
    %p_norm = step.sqrt %p_sum : f64
    %least = step.constant 1.0e-16
    %divisor = step.add %p_norm, %least : f64
    %ratio = step.div %a_norm, %divisor : f64
    %scale = step.select %graft, %ratio, %one : f64
    step.yield %scale : f64
  }
  // (l / c + d + epsilon)^-exponent: the square of a matrix, so symmetric to the bit.
  step.define @root_of_rows(%l: [n, n], %c: f64, %exponent: f64) {
    %q = step.eigh %l : [n, n]
    %own = step.eigenvalues %l : [n, n]
    %values = step.div %own, %c : [1, n], f64
    %opposite = step.neg %values : [1, n]
    %depth = step.amax %opposite : [1, n]
    %lift = step.maximum %depth, %zero : f64
    %lifted = step.add %values, %lift : [1, n], f64
    %damped = step.add %lifted, %epsilon : [1, n], f64
    %half = step.constant -0.5
    %power = step.mul %exponent, %half : f64
    %roots = step.pow %damped, %power : [1, n], f64
    %scaled = step.mul %q, %roots : [n, n], [1, n]
    %scaledt = step.transpose %scaled : [n, n]
    %root = step.matmul %scaled, %scaledt : [n, n]
    step.yield %root : [n, n]
  }
  step.define @root_of_columns(%l: [m, m], %c: f64, %exponent: f64) {
    %q = step.eigh %l : [m, m]
    %own = step.eigenvalues %l : [m, m]
    %values = step.div %own, %c : [1, m], f64
    %opposite = step.neg %values : [1, m]
    %depth = step.amax %opposite : [1, m]
    %lift = step.maximum %depth, %zero : f64
    %lifted = step.add %values, %lift : [1, m], f64
    %damped = step.add %lifted, %epsilon : [1, m], f64
    %half = step.constant -0.5
    %power = step.mul %exponent, %half : f64
    %roots = step.pow %damped, %power : [1, m], f64
    %scaled = step.mul %q, %roots : [m, m], [1, m]
    %scaledt = step.transpose %scaled : [m, m]
    %root = step.matmul %scaled, %scaledt : [m, m]
    step.yield %root : [m, m]
  }
  step.define @is_not_zero(%x: f64) {
    %result = step.compare ne, %x, %zero : f64
    step.yield %result : i1
  }
  // Whether a root has been made.
  step.define @has_root_of_rows(%root: [n, n]) {
    %diagonal = step.diagonal %root : [n, n]
    %trace = step.sum %diagonal : [1, n]
    %made = step.call @is_not_zero(%trace) : (f64) -> i1
    step.yield %made : i1
  }
  step.define @has_root_of_columns(%root: [m, m]) {
    %diagonal = step.diagonal %root : [m, m]
    %trace = step.sum %diagonal : [1, m]
    %made = step.call @is_not_zero(%trace) : (f64) -> i1
    step.yield %made : i1
  }

  step.rule @both(%theta: param[n, m], %grad: grad[n, m],
                  %m: state "filtered_grad"[n, m] if %filters,
                  %v: state "adagrad"[n, m] if %graft_squares,
                  %b: state "momentum_buffer"[n, m] if %has_momentum,
                  %l: state "factor_matrix_0"[n, n], %x: state "inv_factor_matrix_0"[n, n],
                  %r: state "factor_matrix_1"[m, m], %y: state "inv_factor_matrix_1"[m, m],
                  %l_begins: fresh("factor_matrix_0"), %r_begins: fresh("factor_matrix_1"),
                  %lost: fresh("inv_factor_matrix_0", "inv_factor_matrix_1"), %t: count)
      where %precondition, extent 0 gt 1, extent 1 gt 1, extent 0 le %max_dim,
            extent 1 le %max_dim {
    %decay = step.mul %theta, %lambda : [n, m], f64
    %penalized = step.add %grad, %decay : [n, m]
    %g = step.select %decoupled, %grad, %penalized : [n, m]
    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [n, m], [n, m], f64
    %w3 = step.sub %one, %beta3 : f64
    %average = step.lerp %m, %g, %w3 : [n, m], [n, m], f64
    %c1 = step.call @filter(%t) : (i64) -> f64
    %unbiased = step.div %average, %c1 : [n, m], f64
    %f = step.select %filters, %unbiased, %g : [n, m]

    %gg = step.mul %g, %g : [n, m]
    %gain = step.call @gain(%beta_a) : (f64) -> f64
    %v_kept = step.mul %v, %beta_a : [n, m], f64
    %v_gain = step.mul %gg, %gain : [n, m], f64
    %v1 = step.add %v_kept, %v_gain : [n, m]
    %c2 = step.call @grafting(%t) : (i64) -> f64
    %v_hat = step.div %v1, %c2 : [n, m], f64
    %root = step.sqrt %v_hat : [n, m]
    %denom = step.add %root, %eps_a : [n, m], f64
    %adapted = step.div %f, %denom : [n, m]
    %uses_squares = step.and %graft, %graft_squares : i1
    %a = step.select %uses_squares, %adapted, %f : [n, m]

    %gt = step.transpose %g : [n, m]
    %ggt = step.matmul %g, %gt : [n, m], [m, n]
    %l_weight, %l_c = step.call @factor(%t, %l_begins) : (i64, i1) -> (f64, f64)
    %l_kept = step.mul %l, %beta2 : [n, n], f64
    %l_gain = step.mul %ggt, %l_weight : [n, n], f64
    %l1 = step.add %l_kept, %l_gain : [n, n]
    %gtg = step.matmul %gt, %g : [m, n], [n, m]
    %r_weight, %r_c = step.call @factor(%t, %r_begins) : (i64, i1) -> (f64, f64)
    %r_kept = step.mul %r, %beta2 : [m, m], f64
    %r_gain = step.mul %gtg, %r_weight : [m, m], f64
    %r1 = step.add %r_kept, %r_gain : [m, m]

    %begun, %due = step.call @schedule(%t, %lost) : (i64, i1) -> (i1, i1)
    %x1, %y1 = step.when %due, %x, %y : [n, n], [m, m] {
      %left = step.call @root_of_rows(%l1, %l_c, %exponent_0) : ([n, n], f64, f64) -> [n, n]
      %right = step.call @root_of_columns(%r1, %r_c, %exponent_1)
          : ([m, m], f64, f64) -> [m, m]
      step.yield %left, %right : [n, n], [m, m]
    }
    %p = step.when %begun, %a : [n, m] {
      %has_x = step.call @has_root_of_rows(%x1) : ([n, n]) -> i1
      %from_left = step.matmul %x1, %f : [n, n], [n, m]
      %xf = step.select %has_x, %from_left, %f : [n, m]
      %has_y = step.call @has_root_of_columns(%y1) : ([m, m]) -> i1
      %from_right = step.matmul %xf, %y1 : [n, m], [m, m]
      %xfy = step.select %has_y, %from_right, %xf : [n, m]
      %scale = step.call @scale(%a, %xfy) : ([n, m], [n, m]) -> f64
      %grafted = step.mul %xfy, %scale : [n, m], f64
      step.yield %grafted : [n, m]
    }

    %decayed = step.add %p, %decay : [n, m]
    %d = step.select %decoupled, %decayed, %p : [n, m]
    %rest = step.sub %one, %tau : f64
    %b_kept = step.mul %b, %mu : [n, m], f64
    %b_gain = step.mul %d, %rest : [n, m], f64
    %b1 = step.add %b_kept, %b_gain : [n, m]
    %b_ahead = step.mul %b1, %mu : [n, m], f64
    %looking = step.add %b_gain, %b_ahead : [n, m]
    %moving = step.select %nesterov, %looking, %b1 : [n, m]
    %move = step.select %has_momentum, %moving, %d : [n, m]
    %update = step.mul %move, %lr : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    step.return %theta1, %m1, %v1, %b1, %l1, %x1, %r1, %y1
        : [n, m], [n, m], [n, m], [n, m], [n, n], [n, n], [m, m], [m, m]
  }

  step.rule @rows(%theta: param[n, m], %grad: grad[n, m],
                  %m: state "filtered_grad"[n, m] if %filters,
                  %v: state "adagrad"[n, m] if %graft_squares,
                  %b: state "momentum_buffer"[n, m] if %has_momentum,
                  %l: state "factor_matrix_0"[n, n], %x: state "inv_factor_matrix_0"[n, n],
                  %l_begins: fresh("factor_matrix_0"),
                  %lost: fresh("inv_factor_matrix_0"), %t: count)
      where %precondition, extent 0 gt 1, extent 0 le %max_dim {
    %decay = step.mul %theta, %lambda : [n, m], f64
    %penalized = step.add %grad, %decay : [n, m]
    %g = step.select %decoupled, %grad, %penalized : [n, m]
    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [n, m], [n, m], f64
    %w3 = step.sub %one, %beta3 : f64
    %average = step.lerp %m, %g, %w3 : [n, m], [n, m], f64
    %c1 = step.call @filter(%t) : (i64) -> f64
    %unbiased = step.div %average, %c1 : [n, m], f64
    %f = step.select %filters, %unbiased, %g : [n, m]

    %gg = step.mul %g, %g : [n, m]
    %gain = step.call @gain(%beta_a) : (f64) -> f64
    %v_kept = step.mul %v, %beta_a : [n, m], f64
    %v_gain = step.mul %gg, %gain : [n, m], f64
    %v1 = step.add %v_kept, %v_gain : [n, m]
    %c2 = step.call @grafting(%t) : (i64) -> f64
    %v_hat = step.div %v1, %c2 : [n, m], f64
    %root = step.sqrt %v_hat : [n, m]
    %denom = step.add %root, %eps_a : [n, m], f64
    %adapted = step.div %f, %denom : [n, m]
    %uses_squares = step.and %graft, %graft_squares : i1
    %a = step.select %uses_squares, %adapted, %f : [n, m]

    %gt = step.transpose %g : [n, m]
    %ggt = step.matmul %g, %gt : [n, m], [m, n]
    %l_weight, %l_c = step.call @factor(%t, %l_begins) : (i64, i1) -> (f64, f64)
    %l_kept = step.mul %l, %beta2 : [n, n], f64
    %l_gain = step.mul %ggt, %l_weight : [n, n], f64
    %l1 = step.add %l_kept, %l_gain : [n, n]

    %begun, %due = step.call @schedule(%t, %lost) : (i64, i1) -> (i1, i1)
    %x1 = step.when %due, %x : [n, n] {
      %left = step.call @root_of_rows(%l1, %l_c, %exponent_alone) : ([n, n], f64, f64) -> [n, n]
      step.yield %left : [n, n]
    }
    %p = step.when %begun, %a : [n, m] {
      %has_x = step.call @has_root_of_rows(%x1) : ([n, n]) -> i1
      %from_left = step.matmul %x1, %f : [n, n], [n, m]
      %xf = step.select %has_x, %from_left, %f : [n, m]
      %scale = step.call @scale(%a, %xf) : ([n, m], [n, m]) -> f64
      %grafted = step.mul %xf, %scale : [n, m], f64
      step.yield %grafted : [n, m]
    }

    %decayed = step.add %p, %decay : [n, m]
    %d = step.select %decoupled, %decayed, %p : [n, m]
    %rest = step.sub %one, %tau : f64
    %b_kept = step.mul %b, %mu : [n, m], f64
    %b_gain = step.mul %d, %rest : [n, m], f64
    %b1 = step.add %b_kept, %b_gain : [n, m]
    %b_ahead = step.mul %b1, %mu : [n, m], f64
    %looking = step.add %b_gain, %b_ahead : [n, m]
    %moving = step.select %nesterov, %looking, %b1 : [n, m]
    %move = step.select %has_momentum, %moving, %d : [n, m]
    %update = step.mul %move, %lr : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    step.return %theta1, %m1, %v1, %b1, %l1, %x1
        : [n, m], [n, m], [n, m], [n, m], [n, n], [n, n]
  }

  step.rule @columns(%theta: param[n, m], %grad: grad[n, m],
                     %m: state "filtered_grad"[n, m] if %filters,
                     %v: state "adagrad"[n, m] if %graft_squares,
                     %b: state "momentum_buffer"[n, m] if %has_momentum,
                     %r: state "factor_matrix_1"[m, m], %y: state "inv_factor_matrix_1"[m, m],
                     %r_begins: fresh("factor_matrix_1"),
                     %lost: fresh("inv_factor_matrix_1"), %t: count)
      where %precondition, extent 1 gt 1, extent 1 le %max_dim {
    %decay = step.mul %theta, %lambda : [n, m], f64
    %penalized = step.add %grad, %decay : [n, m]
    %g = step.select %decoupled, %grad, %penalized : [n, m]
    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [n, m], [n, m], f64
    %w3 = step.sub %one, %beta3 : f64
    %average = step.lerp %m, %g, %w3 : [n, m], [n, m], f64
    %c1 = step.call @filter(%t) : (i64) -> f64
    %unbiased = step.div %average, %c1 : [n, m], f64
    %f = step.select %filters, %unbiased, %g : [n, m]

    %gg = step.mul %g, %g : [n, m]
    %gain = step.call @gain(%beta_a) : (f64) -> f64
    %v_kept = step.mul %v, %beta_a : [n, m], f64
    %v_gain = step.mul %gg, %gain : [n, m], f64
    %v1 = step.add %v_kept, %v_gain : [n, m]
    %c2 = step.call @grafting(%t) : (i64) -> f64
    %v_hat = step.div %v1, %c2 : [n, m], f64
    %root = step.sqrt %v_hat : [n, m]
    %denom = step.add %root, %eps_a : [n, m], f64
    %adapted = step.div %f, %denom : [n, m]
    %uses_squares = step.and %graft, %graft_squares : i1
    %a = step.select %uses_squares, %adapted, %f : [n, m]

    %gt = step.transpose %g : [n, m]
    %gtg = step.matmul %gt, %g : [m, n], [n, m]
    %r_weight, %r_c = step.call @factor(%t, %r_begins) : (i64, i1) -> (f64, f64)
    %r_kept = step.mul %r, %beta2 : [m, m], f64
    %r_gain = step.mul %gtg, %r_weight : [m, m], f64
    %r1 = step.add %r_kept, %r_gain : [m, m]

    %begun, %due = step.call @schedule(%t, %lost) : (i64, i1) -> (i1, i1)
    %y1 = step.when %due, %y : [m, m] {
      %right = step.call @root_of_columns(%r1, %r_c, %exponent_alone)
          : ([m, m], f64, f64) -> [m, m]
      step.yield %right : [m, m]
    }
    %p = step.when %begun, %a : [n, m] {
      %has_y = step.call @has_root_of_columns(%y1) : ([m, m]) -> i1
      %from_right = step.matmul %f, %y1 : [n, m], [m, m]
      %xfy = step.select %has_y, %from_right, %f : [n, m]
      %scale = step.call @scale(%a, %xfy) : ([n, m], [n, m]) -> f64
      %grafted = step.mul %xfy, %scale : [n, m], f64
      step.yield %grafted : [n, m]
    }

    %decayed = step.add %p, %decay : [n, m]
    %d = step.select %decoupled, %decayed, %p : [n, m]
    %rest = step.sub %one, %tau : f64
    %b_kept = step.mul %b, %mu : [n, m], f64
    %b_gain = step.mul %d, %rest : [n, m], f64
    %b1 = step.add %b_kept, %b_gain : [n, m]
    %b_ahead = step.mul %b1, %mu : [n, m], f64
    %looking = step.add %b_gain, %b_ahead : [n, m]
    %moving = step.select %nesterov, %looking, %b1 : [n, m]
    %move = step.select %has_momentum, %moving, %d : [n, m]
    %update = step.mul %move, %lr : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    step.return %theta1, %m1, %v1, %b1, %r1, %y1
        : [n, m], [n, m], [n, m], [n, m], [m, m], [m, m]
  }

  step.rule @any(%theta: param[*], %grad: grad[*], %m: state "filtered_grad"[*] if %filters,
                 %v: state "adagrad"[*] if %graft_squares,
                 %b: state "momentum_buffer"[*] if %has_momentum, %t: count) {
    %decay = step.mul %theta, %lambda : [*], f64
    %penalized = step.add %grad, %decay : [*]
    %g = step.select %decoupled, %grad, %penalized : [*]
    %w1 = step.sub %one, %beta1 : f64
    %m1 = step.lerp %m, %g, %w1 : [*], [*], f64
    %w3 = step.sub %one, %beta3 : f64
    %average = step.lerp %m, %g, %w3 : [*], [*], f64
    %c1 = step.call @filter(%t) : (i64) -> f64
    %unbiased = step.div %average, %c1 : [*], f64
    %f = step.select %filters, %unbiased, %g : [*]

    %gg = step.mul %g, %g : [*]
    %gain = step.call @gain(%beta_a) : (f64) -> f64
    %v_kept = step.mul %v, %beta_a : [*], f64
    %v_gain = step.mul %gg, %gain : [*], f64
    %v1 = step.add %v_kept, %v_gain : [*]
    %c2 = step.call @grafting(%t) : (i64) -> f64
    %v_hat = step.div %v1, %c2 : [*], f64
    %root = step.sqrt %v_hat : [*]
    %denom = step.add %root, %eps_a : [*], f64
    %adapted = step.div %f, %denom : [*]
    %uses_squares = step.and %graft, %graft_squares : i1
    %a = step.select %uses_squares, %adapted, %f : [*]

    %decayed = step.add %a, %decay : [*]
    %d = step.select %decoupled, %decayed, %a : [*]
    %rest = step.sub %one, %tau : f64
    %b_kept = step.mul %b, %mu : [*], f64
    %b_gain = step.mul %d, %rest : [*], f64
    %b1 = step.add %b_kept, %b_gain : [*]
    %b_ahead = step.mul %b1, %mu : [*], f64
    %looking = step.add %b_gain, %b_ahead : [*]
    %moving = step.select %nesterov, %looking, %b1 : [*]
    %move = step.select %has_momentum, %moving, %d : [*]
    %update = step.mul %move, %lr : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %m1, %v1, %b1
  }
}
