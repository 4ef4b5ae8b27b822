// SGD with momentum.
// Polyak, "Some methods of speeding up the convergence of iteration methods",
// 1964; Nesterov momentum as in Sutskever et al., "On the importance of
// initialization and momentum in deep learning", ICML 2013.
//
//   g     <- g + lambda * theta                       where lambda is not 0
//   b     <- mu * b + (1 - tau) * g                   g in the first step
//   theta <- theta - lr * b                           plain
//   theta <- theta - lr * (g + mu * b)                nesterov
//   theta <- theta - lr * g                           where mu is 0
//
// The formulas and the state's name are those of torch.optim.SGD. It departs from
// Sutskever et al.: lr multiplies the momentum when it is used, not when it is
// gathered, so a change of lr acts at once; and the first momentum is g, not
// (1 - tau) * g. Without momentum there is no state; without decay the parameter
// does not enter g, so an Inf in it stays where it is.

step.optimizer @sgd {
  %lr = step.hyper "lr" = 1.0e-3
  %mu = step.hyper "momentum" = 0.0
  %tau = step.hyper "dampening" = 0.0
  %lambda = step.hyper "weight_decay" = 0.0
  %nesterov = step.option "nesterov" = false
  %maximize = step.option "maximize" = false
  %has_momentum = step.option "has_momentum" = %mu ne 0.0
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0

  step.rule @any(%theta: param[*], %grad: grad[*],
                 %buf: state "momentum_buffer"[*] if %has_momentum, %first: fresh) {
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %signed = step.select %maximize, %ascent, %grad : [*]
    %decay = step.mul %theta, %lambda : [*], f64
    %decayed = step.add %signed, %decay : [*]
    %g = step.select %has_decay, %decayed, %signed : [*]

    %gain = step.sub %one, %tau : f64
    %kept = step.mul %buf, %mu : [*], f64
    %gained = step.mul %g, %gain : [*], f64
    %later = step.add %kept, %gained : [*]
    %buf1 = step.select %first, %g, %later : [*]

    %ahead = step.mul %buf1, %mu : [*], f64
    %looking = step.add %g, %ahead : [*]
    %moving = step.select %nesterov, %looking, %buf1 : [*]
    %direction = step.select %has_momentum, %moving, %g : [*]
    %update = step.mul %direction, %lr : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %buf1
  }
}
