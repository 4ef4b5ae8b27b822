// RMSprop.
// Tieleman and Hinton, "Lecture 6.5, RMSProp", COURSERA: Neural Networks for Machine
// Learning, 2012; centered as in Graves, "Generating Sequences With Recurrent Neural
// Networks", 2013, equations 38 to 45.
//
//   g     <- g + lambda * theta                       where lambda is not 0
//   v     <- alpha * v + (1 - alpha) * g^2
//   a     <- alpha * a + (1 - alpha) * g              centered
//   d     <- sqrt(v) + eps                            sqrt(v - a^2) + eps where centered
//   b     <- mu * b + g / d                           where mu is positive
//   theta <- theta - lr * b                           lr * g / d elsewhere
//
// Formulas and names of states are those of torch.optim.RMSprop, but for rounding. It
// departs from Graves, and from TensorFlow, as torch does: eps is added to the root, not
// inside; lr multiplies the momentum when it is used, not when it is gathered.
// TensorFlow's v begins as 1. Where both v and a^2 are infinite, centered, theta is NaN;
// torch fuses the product with the difference there.

step.optimizer @rmsprop {
  %lr = step.hyper "lr" = 1.0e-2
  %alpha = step.hyper "alpha" = 0.99
  %eps = step.hyper "eps" = 1.0e-8
  %lambda = step.hyper "weight_decay" = 0.0
  %mu = step.hyper "momentum" = 0.0
  %centered = step.option "centered" = false
  %maximize = step.option "maximize" = false
  %has_momentum = step.option "has_momentum" = %mu gt 0.0
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0

  step.rule @any(%theta: param[*], %grad: grad[*], %v: state "square_avg"[*],
                 %b: state "momentum_buffer"[*] if %has_momentum,
                 %a: state "grad_avg"[*] if %centered) {
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %signed = step.select %maximize, %ascent, %grad : [*]
    %pull = step.mul %theta, %lambda : [*], f64
    %pulled = step.add %signed, %pull : [*]
    %g = step.select %has_decay, %pulled, %signed : [*]

    %w = step.sub %one, %alpha : f64
    %v_kept = step.mul %v, %alpha : [*], f64
    %g_part = step.mul %g, %w : [*], f64
    %v_gain = step.mul %g_part, %g : [*]
    %v1 = step.add %v_kept, %v_gain : [*]
    %a1 = step.lerp %a, %g, %w : [*], [*], f64
    %aa = step.mul %a1, %a1 : [*]
    %variance = step.sub %v1, %aa : [*]
    %square = step.select %centered, %variance, %v1 : [*]
    %root = step.sqrt %square : [*]
    %denom = step.add %root, %eps : [*], f64
    %ratio = step.div %g, %denom : [*]

    %b_kept = step.mul %b, %mu : [*], f64
    %b1 = step.add %b_kept, %ratio : [*]
    %direction = step.select %has_momentum, %b1, %ratio : [*]
    %update = step.mul %direction, %lr : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %v1, %b1, %a1
  }
}
