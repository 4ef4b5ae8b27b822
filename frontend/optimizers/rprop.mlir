// Rprop: resilient backpropagation.
// Riedmiller and Braun, "A Direct Adaptive Method for Faster Backpropagation Learning:
// The RPROP Algorithm", IEEE ICNN 1993; without weight backtracking: Rprop- with its
// gradient set to 0, iRprop- of Igel and Huesken, "Improving the Rprop Learning
// Algorithm", NC 2000.
//
//   f     <- eta_plus where g' * g > 0, eta_minus where g' * g < 0, else 1
//   s     <- min(max(s * f, step_size_min), step_size_max)     s begins as lr
//   g     <- 0 where g' * g < 0
//   theta <- theta - sign(g) * s
//   g'    <- g
//
// g' is the state prev. Names of states are those of torch.optim.Rprop, and so is the
// result, to the bit: torch's sign of NaN is 0, so that a gradient of NaN leaves the
// parameter as it is. Products of gradients
// that are too small for the compute type count as 0. lr is read in a tensor's first
// step only.

step.optimizer @rprop {
  %lr = step.hyper "lr" = 1.0e-2
  %eta_minus = step.hyper "eta_minus" = 0.5
  %eta_plus = step.hyper "eta_plus" = 1.2
  %smallest = step.hyper "step_size_min" = 1.0e-6
  %largest = step.hyper "step_size_max" = 50.0
  %maximize = step.option "maximize" = false

  step.rule @any(%theta: param[*], %grad: grad[*], %prev: state "prev"[*],
                 %size: state "step_size"[*], %first: fresh("step_size")) {
    %zero = step.constant 0.0
    %minus = step.constant -1.0
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %g = step.select %maximize, %ascent, %grad : [*]

    %product = step.mul %g, %prev : [*]
    %same = step.compare gt, %product, %zero : [*], f64
    %turned = step.compare lt, %product, %zero : [*], f64
    %not_same = step.select %turned, %eta_minus, %one : mask[*], f64
    %factor = step.select %same, %eta_plus, %not_same : mask[*], f64, [*]

    %size0 = step.select %first, %lr, %size : f64, [*]
    %scaled = step.mul %size0, %factor : [*]
    %at_least = step.maximum %scaled, %smallest : [*], f64
    %size1 = step.minimum %at_least, %largest : [*], f64

    %g1 = step.select %turned, %zero, %g : mask[*], f64, [*]
    %up = step.compare gt, %g1, %zero : [*], f64
    %down = step.compare lt, %g1, %zero : [*], f64
    %not_up = step.select %down, %minus, %zero : mask[*], f64
    %direction = step.select %up, %one, %not_up : mask[*], f64, [*]  // of NaN 0, as torch.sign
    %update = step.mul %direction, %size1 : [*]
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %g1, %size1
  }
}
