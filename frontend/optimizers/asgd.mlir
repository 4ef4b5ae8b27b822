// ASGD: averaged stochastic gradient descent.
// Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", SIAM J.
// Control Optim. 30(4), 1992, with the schedule of Bottou's sgd package.
//
//   g     <- g + weight_decay * theta                 where weight_decay is not 0
//   theta <- (1 - lambd * eta) * theta
//   theta <- theta - eta * g
//   ax    <- ax + mu * (theta - ax)                   theta where mu is 1
//   eta   <- lr / (1 + lambd * lr * t)^alpha          of the next step; first lr
//   mu    <- 1 / max(1, t - t0)                       of the next step; first 1
//
// ax is the average; nothing reads it but its user. Formulas and names of states are
// those of torch.optim.ASGD, but for rounding. eta and mu are states of one element, in
// the parameter's compute type (torch: f32, also beside an f64 parameter, unless its
// default type is f64), and are of the step before: a change of lr acts one step
// later, as in torch.

step.optimizer @asgd {
  %lr = step.hyper "lr" = 1.0e-2
  %lambd = step.hyper "lambd" = 1.0e-4
  %alpha = step.hyper "alpha" = 0.75
  %t0 = step.hyper "t0" = 1.0e6
  %decay = step.hyper "weight_decay" = 0.0
  %maximize = step.option "maximize" = false
  %has_decay = step.option "has_weight_decay" = %decay ne 0.0

  step.rule @any(%theta: param[*], %grad: grad[*], %eta: state "eta"[1],
                 %mu: state "mu"[1] = 1.0, %ax: state "ax"[*] kept, %t: count, %first: fresh("eta")) {
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %signed = step.select %maximize, %ascent, %grad : [*]
    %pull = step.mul %theta, %decay : [*], f64
    %pulled = step.add %signed, %pull : [*]
    %g = step.select %has_decay, %pulled, %signed : [*]

    %eta0 = step.select %first, %lr, %eta : f64, [1]
    %rate = step.sum %eta0 : [1]
    %shrink = step.mul %lambd, %rate : f64
    %keep = step.sub %one, %shrink : f64
    %theta1 = step.mul %theta, %keep : [*], f64
    %update = step.mul %g, %rate : [*], f64
    %theta2 = step.sub %theta1, %update : [*]

    %weight = step.sum %mu : [1]
    %averaging = step.compare ne, %weight, %one : f64
    %average = step.lerp %ax, %theta2, %weight : [*], [*], f64
    %ax1 = step.select %averaging, %average, %theta2 : [*]

    %number = step.to_f64 %t
    %lambd_lr = step.mul %lambd, %lr : f64
    %gone = step.mul %lambd_lr, %number : f64
    %slower = step.add %one, %gone : f64
    %divisor = step.pow %slower, %alpha
    %next_eta = step.div %lr, %divisor : f64
    %averaged = step.sub %number, %t0 : f64
    %steps = step.maximum %one, %averaged : f64
    %next_mu = step.div %one, %steps : f64
    // In the states' shape, whatever was in them.
    %always = step.constant true
    %eta1 = step.select %always, %next_eta, %eta : f64, [1]
    %mu1 = step.select %always, %next_mu, %mu : f64, [1]
    step.return %theta2, %eta1, %mu1, %ax1 : [*], [1], [1], [*]
  }
}
