// SM3: second moments as the least of one number for each index of each dim.
// Anil, Gupta, Koren and Singer, "Memory-Efficient Adaptive Optimization", NeurIPS
// 2019: SM3-II, its cover the slices along each dim (section 4).
//
//   nu(i)    <- min over dims d of mu_d(i_d), + g(i)^2
//   mu_d(j)  <- max of nu(i) over all i with i_d = j
//   u        <- g / sqrt(nu)                          0 where nu is 0, as in the paper
//   m        <- momentum * m + (1 - momentum) * u
//   theta    <- theta - lr * m                        u where momentum is 0
//
// Names of states are those of pytorch_optimizer's SM3, which adds eps to nu under the
// root (1e-30 there) and has beta, 0 in the paper:
//
//   nu(i)    <- beta * min over dims d of mu_d(i_d), + (1 - beta) * g(i)^2
//   mu_d(j)  <- the larger of mu_d(j) and the maximum    where beta is not 0
//
// Tensors of one to four dims have a mu_d for each; others have one number for each
// element, which is Adagrad's sum (pytorch_optimizer has a mu_d for each of any number
// of dims). Of one dim mu_0 is nu, so that is Adagrad too.

step.optimizer @sm3 {
  %lr = step.hyper "lr" = 1.0e-1
  %momentum = step.hyper "momentum" = 0.0
  %beta = step.hyper "beta" = 0.0
  %eps = step.hyper "eps" = 0.0
  %maximize = step.option "maximize" = false
  %has_momentum = step.option "has_momentum" = %momentum ne 0.0
  %has_beta = step.option "has_beta" = %beta ne 0.0
  %zero = step.constant 0.0
  %one = step.constant 1.0

  step.rule @convolution(%theta: param[o, i, h, w], %grad: grad[o, i, h, w],
                         %m: state "momentum_buffer"[o, i, h, w] if %has_momentum,
                         %a0: state "accumulator_0"[o, 1, 1, 1],
                         %a1: state "accumulator_1"[1, i, 1, 1],
                         %a2: state "accumulator_2"[1, 1, h, 1],
                         %a3: state "accumulator_3"[1, 1, 1, w]) {
    %ascent = step.neg %grad : [o, i, h, w]
    %g = step.select %maximize, %ascent, %grad : [o, i, h, w]
    %gain = step.sub %one, %beta : f64
    %part = step.mul %g, %gain : [o, i, h, w], f64
    %new = step.mul %part, %g : [o, i, h, w]

    %least01 = step.minimum %a0, %a1 : [o, 1, 1, 1], [1, i, 1, 1]
    %least23 = step.minimum %a2, %a3 : [1, 1, h, 1], [1, 1, 1, w]
    %least = step.minimum %least01, %least23 : [o, i, 1, 1], [1, 1, h, w]
    %faded = step.mul %least, %beta : [o, i, h, w], f64
    %old = step.select %has_beta, %faded, %least : [o, i, h, w]
    %nu = step.add %old, %new : [o, i, h, w]
    %most0 = step.amax %nu over [i, h, w] : [o, i, h, w]
    %larger0 = step.maximum %a0, %most0 : [o, 1, 1, 1]
    %mu0 = step.select %has_beta, %larger0, %most0 : [o, 1, 1, 1]
    %most1 = step.amax %nu over [o, h, w] : [o, i, h, w]
    %larger1 = step.maximum %a1, %most1 : [1, i, 1, 1]
    %mu1 = step.select %has_beta, %larger1, %most1 : [1, i, 1, 1]
    %most2 = step.amax %nu over [o, i, w] : [o, i, h, w]
    %larger2 = step.maximum %a2, %most2 : [1, 1, h, 1]
    %mu2 = step.select %has_beta, %larger2, %most2 : [1, 1, h, 1]
    %most3 = step.amax %nu over [o, i, h] : [o, i, h, w]
    %larger3 = step.maximum %a3, %most3 : [1, 1, 1, w]
    %mu3 = step.select %has_beta, %larger3, %most3 : [1, 1, 1, w]

    %sum = step.add %nu, %eps : [o, i, h, w], f64
    %root = step.sqrt %sum : [o, i, h, w]
    %ratio = step.div %g, %root : [o, i, h, w]
    %none = step.compare eq, %sum, %zero : [o, i, h, w], f64
    %u = step.select %none, %zero, %ratio : mask[o, i, h, w], f64, [o, i, h, w]
    %weight = step.sub %one, %momentum : f64
    %m1 = step.lerp %m, %u, %weight : [o, i, h, w], [o, i, h, w], f64
    %direction = step.select %has_momentum, %m1, %u : [o, i, h, w]
    %update = step.mul %direction, %lr : [o, i, h, w], f64
    %theta1 = step.sub %theta, %update : [o, i, h, w]
    step.return %theta1, %m1, %mu0, %mu1, %mu2, %mu3 : [o, i, h, w], [o, i, h, w], [o, 1, 1, 1], [1, i, 1, 1], [1, 1, h, 1], [1, 1, 1, w]
  }

  step.rule @cube(%theta: param[k, n, m], %grad: grad[k, n, m],
                  %m: state "momentum_buffer"[k, n, m] if %has_momentum,
                  %a0: state "accumulator_0"[k, 1, 1],
                  %a1: state "accumulator_1"[1, n, 1],
                  %a2: state "accumulator_2"[1, 1, m]) {
    %ascent = step.neg %grad : [k, n, m]
    %g = step.select %maximize, %ascent, %grad : [k, n, m]
    %gain = step.sub %one, %beta : f64
    %part = step.mul %g, %gain : [k, n, m], f64
    %new = step.mul %part, %g : [k, n, m]

    %least01 = step.minimum %a0, %a1 : [k, 1, 1], [1, n, 1]
    %least = step.minimum %least01, %a2 : [k, n, 1], [1, 1, m]
    %faded = step.mul %least, %beta : [k, n, m], f64
    %old = step.select %has_beta, %faded, %least : [k, n, m]
    %nu = step.add %old, %new : [k, n, m]
    %most0 = step.amax %nu over [n, m] : [k, n, m]
    %larger0 = step.maximum %a0, %most0 : [k, 1, 1]
    %mu0 = step.select %has_beta, %larger0, %most0 : [k, 1, 1]
    %most1 = step.amax %nu over [k, m] : [k, n, m]
    %larger1 = step.maximum %a1, %most1 : [1, n, 1]
    %mu1 = step.select %has_beta, %larger1, %most1 : [1, n, 1]
    %most2 = step.amax %nu over [k, n] : [k, n, m]
    %larger2 = step.maximum %a2, %most2 : [1, 1, m]
    %mu2 = step.select %has_beta, %larger2, %most2 : [1, 1, m]

    %sum = step.add %nu, %eps : [k, n, m], f64
    %root = step.sqrt %sum : [k, n, m]
    %ratio = step.div %g, %root : [k, n, m]
    %none = step.compare eq, %sum, %zero : [k, n, m], f64
    %u = step.select %none, %zero, %ratio : mask[k, n, m], f64, [k, n, m]
    %weight = step.sub %one, %momentum : f64
    %m1 = step.lerp %m, %u, %weight : [k, n, m], [k, n, m], f64
    %direction = step.select %has_momentum, %m1, %u : [k, n, m]
    %update = step.mul %direction, %lr : [k, n, m], f64
    %theta1 = step.sub %theta, %update : [k, n, m]
    step.return %theta1, %m1, %mu0, %mu1, %mu2 : [k, n, m], [k, n, m], [k, 1, 1], [1, n, 1], [1, 1, m]
  }

  step.rule @matrix(%theta: param[n, m], %grad: grad[n, m],
                    %m: state "momentum_buffer"[n, m] if %has_momentum,
                    %a0: state "accumulator_0"[n, 1],
                    %a1: state "accumulator_1"[1, m]) {
    %ascent = step.neg %grad : [n, m]
    %g = step.select %maximize, %ascent, %grad : [n, m]
    %gain = step.sub %one, %beta : f64
    %part = step.mul %g, %gain : [n, m], f64
    %new = step.mul %part, %g : [n, m]

    %least = step.minimum %a0, %a1 : [n, 1], [1, m]
    %faded = step.mul %least, %beta : [n, m], f64
    %old = step.select %has_beta, %faded, %least : [n, m]
    %nu = step.add %old, %new : [n, m]
    %most0 = step.amax %nu over [m] : [n, m]
    %larger0 = step.maximum %a0, %most0 : [n, 1]
    %mu0 = step.select %has_beta, %larger0, %most0 : [n, 1]
    %most1 = step.amax %nu over [n] : [n, m]
    %larger1 = step.maximum %a1, %most1 : [1, m]
    %mu1 = step.select %has_beta, %larger1, %most1 : [1, m]

    %sum = step.add %nu, %eps : [n, m], f64
    %root = step.sqrt %sum : [n, m]
    %ratio = step.div %g, %root : [n, m]
    %none = step.compare eq, %sum, %zero : [n, m], f64
    %u = step.select %none, %zero, %ratio : mask[n, m], f64, [n, m]
    %weight = step.sub %one, %momentum : f64
    %m1 = step.lerp %m, %u, %weight : [n, m], [n, m], f64
    %direction = step.select %has_momentum, %m1, %u : [n, m]
    %update = step.mul %direction, %lr : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    step.return %theta1, %m1, %mu0, %mu1 : [n, m], [n, m], [n, 1], [1, m]
  }

  step.rule @vector(%theta: param[n], %grad: grad[n],
                    %m: state "momentum_buffer"[n] if %has_momentum,
                    %a0: state "accumulator_0"[n]) {
    %ascent = step.neg %grad : [n]
    %g = step.select %maximize, %ascent, %grad : [n]
    %gain = step.sub %one, %beta : f64
    %part = step.mul %g, %gain : [n], f64
    %new = step.mul %part, %g : [n]

    %faded = step.mul %a0, %beta : [n], f64
    %old = step.select %has_beta, %faded, %a0 : [n]
    %nu = step.add %old, %new : [n]
    %larger0 = step.maximum %a0, %nu : [n]
    %mu0 = step.select %has_beta, %larger0, %nu : [n]

    %sum = step.add %nu, %eps : [n], f64
    %root = step.sqrt %sum : [n]
    %ratio = step.div %g, %root : [n]
    %none = step.compare eq, %sum, %zero : [n], f64
    %u = step.select %none, %zero, %ratio : mask[n], f64, [n]
    %weight = step.sub %one, %momentum : f64
    %m1 = step.lerp %m, %u, %weight : [n], [n], f64
    %direction = step.select %has_momentum, %m1, %u : [n]
    %update = step.mul %direction, %lr : [n], f64
    %theta1 = step.sub %theta, %update : [n]
    step.return %theta1, %m1, %mu0 : [n], [n], [n]
  }

  step.rule @any(%theta: param[*], %grad: grad[*],
                 %m: state "momentum_buffer"[*] if %has_momentum,
                 %a0: state "accumulator_0"[*]) {
    %ascent = step.neg %grad : [*]
    %g = step.select %maximize, %ascent, %grad : [*]
    %gain = step.sub %one, %beta : f64
    %part = step.mul %g, %gain : [*], f64
    %new = step.mul %part, %g : [*]

    %faded = step.mul %a0, %beta : [*], f64
    %old = step.select %has_beta, %faded, %a0 : [*]
    %nu = step.add %old, %new : [*]
    %larger0 = step.maximum %a0, %nu : [*]
    %mu0 = step.select %has_beta, %larger0, %nu : [*]

    %sum = step.add %nu, %eps : [*], f64
    %root = step.sqrt %sum : [*]
    %ratio = step.div %g, %root : [*]
    %none = step.compare eq, %sum, %zero : [*], f64
    %u = step.select %none, %zero, %ratio : mask[*], f64, [*]
    %weight = step.sub %one, %momentum : f64
    %m1 = step.lerp %m, %u, %weight : [*], [*], f64
    %direction = step.select %has_momentum, %m1, %u : [*]
    %update = step.mul %direction, %lr : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %m1, %mu0 : [*], [*], [*]
  }
}
