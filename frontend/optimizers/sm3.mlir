// SM3: second moments as the least of one number for each index of each dim.
// Anil, Gupta, Koren and Singer, "Memory-Efficient Adaptive Optimization", NeurIPS
// 2019: SM3-II, with the slices along each dim as the cover (section 4).
//
//   nu(i)    <- min over dims d of mu_d(i_d), + g(i)^2
//   mu_d(j)  <- max of nu(i) over all i with i_d = j
//   u        <- g / sqrt(nu)                          0 where nu is 0, as in the paper
//   m        <- momentum * m + (1 - momentum) * u
//   theta    <- theta - lr * m                        u where momentum is 0
//
// The weight decay is added to g before all else. Tensors of one to four dims have an
// accumulator mu_d for each dim, named as in pytorch_optimizer; others have one number
// for each element, which is Adagrad. Of one dim mu_0 is nu: Adagrad too.

step.optimizer @sm3 {
  %lr = step.hyper "lr" = 1.0e-1
  %momentum = step.hyper "momentum" = 0.0
  %lambda = step.hyper "weight_decay" = 0.0
  %maximize = step.option "maximize" = false
  %has_momentum = step.option "has_momentum" = %momentum ne 0.0
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0
  %zero = step.constant 0.0
  %one = step.constant 1.0

  step.rule @convolution(%theta: param[o, i, h, w], %grad: grad[o, i, h, w],
                         %m: state "momentum_buffer"[o, i, h, w] if %has_momentum,
                         %a0: state "accumulator_0"[o, 1, 1, 1],
                         %a1: state "accumulator_1"[1, i, 1, 1],
                         %a2: state "accumulator_2"[1, 1, h, 1],
                         %a3: state "accumulator_3"[1, 1, 1, w]) {
    %ascent = step.neg %grad : [o, i, h, w]
    %signed = step.select %maximize, %ascent, %grad : [o, i, h, w]
    %pull = step.mul %theta, %lambda : [o, i, h, w], f64
    %pulled = step.add %signed, %pull : [o, i, h, w]
    %g = step.select %has_decay, %pulled, %signed : [o, i, h, w]
    %gg = step.mul %g, %g : [o, i, h, w]

    %least01 = step.minimum %a0, %a1 : [o, 1, 1, 1], [1, i, 1, 1]
    %least23 = step.minimum %a2, %a3 : [1, 1, h, 1], [1, 1, 1, w]
    %least = step.minimum %least01, %least23 : [o, i, 1, 1], [1, 1, h, w]
    %nu = step.add %least, %gg : [o, i, h, w]
    %mu0 = step.amax %nu over [i, h, w] : [o, i, h, w]
    %mu1 = step.amax %nu over [o, h, w] : [o, i, h, w]
    %mu2 = step.amax %nu over [o, i, w] : [o, i, h, w]
    %mu3 = step.amax %nu over [o, i, h] : [o, i, h, w]

    %root = step.sqrt %nu : [o, i, h, w]
    %ratio = step.div %g, %root : [o, i, h, w]
    %none = step.compare eq, %nu, %zero : [o, i, h, w], f64
    %u = step.select %none, %zero, %ratio : mask[o, i, h, w], f64, [o, i, h, w]
    %share = step.sub %one, %momentum : f64
    %kept = step.mul %m, %momentum : [o, i, h, w], f64
    %new = step.mul %u, %share : [o, i, h, w], f64
    %m1 = step.add %kept, %new : [o, i, h, w]
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
    %signed = step.select %maximize, %ascent, %grad : [k, n, m]
    %pull = step.mul %theta, %lambda : [k, n, m], f64
    %pulled = step.add %signed, %pull : [k, n, m]
    %g = step.select %has_decay, %pulled, %signed : [k, n, m]
    %gg = step.mul %g, %g : [k, n, m]

    %least01 = step.minimum %a0, %a1 : [k, 1, 1], [1, n, 1]
    %least = step.minimum %least01, %a2 : [k, n, 1], [1, 1, m]
    %nu = step.add %least, %gg : [k, n, m]
    %mu0 = step.amax %nu over [n, m] : [k, n, m]
    %mu1 = step.amax %nu over [k, m] : [k, n, m]
    %mu2 = step.amax %nu over [k, n] : [k, n, m]

    %root = step.sqrt %nu : [k, n, m]
    %ratio = step.div %g, %root : [k, n, m]
    %none = step.compare eq, %nu, %zero : [k, n, m], f64
    %u = step.select %none, %zero, %ratio : mask[k, n, m], f64, [k, n, m]
    %share = step.sub %one, %momentum : f64
    %kept = step.mul %m, %momentum : [k, n, m], f64
    %new = step.mul %u, %share : [k, n, m], f64
    %m1 = step.add %kept, %new : [k, n, m]
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
    %signed = step.select %maximize, %ascent, %grad : [n, m]
    %pull = step.mul %theta, %lambda : [n, m], f64
    %pulled = step.add %signed, %pull : [n, m]
    %g = step.select %has_decay, %pulled, %signed : [n, m]
    %gg = step.mul %g, %g : [n, m]

    %least = step.minimum %a0, %a1 : [n, 1], [1, m]
    %nu = step.add %least, %gg : [n, m]
    %mu0 = step.amax %nu over [m] : [n, m]
    %mu1 = step.amax %nu over [n] : [n, m]

    %root = step.sqrt %nu : [n, m]
    %ratio = step.div %g, %root : [n, m]
    %none = step.compare eq, %nu, %zero : [n, m], f64
    %u = step.select %none, %zero, %ratio : mask[n, m], f64, [n, m]
    %share = step.sub %one, %momentum : f64
    %kept = step.mul %m, %momentum : [n, m], f64
    %new = step.mul %u, %share : [n, m], f64
    %m1 = step.add %kept, %new : [n, m]
    %direction = step.select %has_momentum, %m1, %u : [n, m]
    %update = step.mul %direction, %lr : [n, m], f64
    %theta1 = step.sub %theta, %update : [n, m]
    step.return %theta1, %m1, %mu0, %mu1 : [n, m], [n, m], [n, 1], [1, m]
  }

  step.rule @vector(%theta: param[n], %grad: grad[n],
                    %m: state "momentum_buffer"[n] if %has_momentum,
                    %a0: state "accumulator_0"[n]) {
    %ascent = step.neg %grad : [n]
    %signed = step.select %maximize, %ascent, %grad : [n]
    %pull = step.mul %theta, %lambda : [n], f64
    %pulled = step.add %signed, %pull : [n]
    %g = step.select %has_decay, %pulled, %signed : [n]
    %gg = step.mul %g, %g : [n]

    %nu = step.add %a0, %gg : [n]

    %root = step.sqrt %nu : [n]
    %ratio = step.div %g, %root : [n]
    %none = step.compare eq, %nu, %zero : [n], f64
    %u = step.select %none, %zero, %ratio : mask[n], f64, [n]
    %share = step.sub %one, %momentum : f64
    %kept = step.mul %m, %momentum : [n], f64
    %new = step.mul %u, %share : [n], f64
    %m1 = step.add %kept, %new : [n]
    %direction = step.select %has_momentum, %m1, %u : [n]
    %update = step.mul %direction, %lr : [n], f64
    %theta1 = step.sub %theta, %update : [n]
    step.return %theta1, %m1, %nu : [n], [n], [n]
  }

  step.rule @any(%theta: param[*], %grad: grad[*],
                 %m: state "momentum_buffer"[*] if %has_momentum,
                 %a0: state "accumulator"[*]) {
    %ascent = step.neg %grad : [*]
    %signed = step.select %maximize, %ascent, %grad : [*]
    %pull = step.mul %theta, %lambda : [*], f64
    %pulled = step.add %signed, %pull : [*]
    %g = step.select %has_decay, %pulled, %signed : [*]
    %gg = step.mul %g, %g : [*]

    %nu = step.add %a0, %gg : [*]

    %root = step.sqrt %nu : [*]
    %ratio = step.div %g, %root : [*]
    %none = step.compare eq, %nu, %zero : [*], f64
    %u = step.select %none, %zero, %ratio : mask[*], f64, [*]
    %share = step.sub %one, %momentum : f64
    %kept = step.mul %m, %momentum : [*], f64
    %new = step.mul %u, %share : [*], f64
    %m1 = step.add %kept, %new : [*]
    %direction = step.select %has_momentum, %m1, %u : [*]
    %update = step.mul %direction, %lr : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %m1, %nu : [*], [*], [*]
  }
}
