// SGD that finds its learning rate, by D-Adaptation.
// Defazio and Mishchenko, "Learning-Rate-Free Learning by D-Adaptation", ICML 2023,
// algorithm 4, as in the authors' package dadaptation, version 3.
//
// d, a lower bound of the distance from the start to a solution, and a are of the
// whole model; theta_0 is the parameter before the first step.
//
//   g     <- g + weight_decay * theta                 where weight_decay is not 0
//   c     <- |g_0|, the 2-norm of the first gradient of all tensors together
//   rate  <- lr * d / c
//   a     <- a + rate * <g, s>
//   s     <- s + rate * g
//   d     <- max(d, min(2 * a / |s|, d * growth_rate))         for the next step
//   theta <- momentum * theta + (1 - momentum) * (theta_0 - s)
//
// The scalar "d" begins with d0. While all gradients are zero nothing moves, and c is
// that of the first step in which one is not; there dadaptation divides by zero. Its
// c leaves the decay out, by an add for an add_, and it keeps z = theta_0 - s as a
// state, too.

step.optimizer @dadapt_sgd {
  %lr = step.hyper "lr" = 1.0
  %mu = step.hyper "momentum" = 0.0
  %lambda = step.hyper "weight_decay" = 0.0
  %growth = step.hyper "growth_rate" = 1.7976931348623157e+308
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0
  %zero = step.constant 0.0
  %one = step.constant 1.0
  %d = step.scalar "d" = 1.0e-6 over model
  %a = step.scalar "numerator_weighted" = 0.0 over model
  %c = step.scalar "g0_norm" = 0.0 over model
  %g_sum = step.statistic "g_sq" sum over model
  %gs_sum = step.statistic "g_s" sum over model
  %s_sum = step.statistic "s_sq" sum over model

  %rate = step.scalars over model {
    %norm = step.sqrt %g_sum : f64
    %begins = step.compare eq, %c, %zero : f64
    %c1 = step.select %begins, %norm, %c : f64
    step.update %c, %c1
    %lr_d = step.mul %lr, %d : f64
    %quotient = step.div %lr_d, %c1 : f64
    %still = step.compare eq, %c1, %zero : f64
    %r = step.select %still, %zero, %quotient : f64
    step.yield %r : f64
  }

  step.scalars over model {
    %two = step.constant 2.0
    %gain = step.mul %rate, %gs_sum : f64
    %a1 = step.add %a, %gain : f64
    step.update %a, %a1
    %s_norm = step.sqrt %s_sum : f64
    %twice = step.mul %two, %a1 : f64
    %estimate = step.div %twice, %s_norm : f64
    %most = step.mul %d, %growth : f64
    %bounded = step.minimum %estimate, %most : f64
    %grows = step.compare gt, %bounded, %d : f64
    %larger = step.select %grows, %bounded, %d : f64
    %still = step.compare eq, %s_norm, %zero : f64
    %d1 = step.select %still, %d, %larger : f64
    step.update %d, %d1
    step.report "d", %d
    step.yield
  }

  step.rule @any(%theta: param[*], %grad: grad[*], %s: state "s"[*], %x0: state "x0"[*],
                 %first: fresh("x0")) {
    %start = step.select %first, %theta, %x0 : [*]
    %decay = step.mul %theta, %lambda : [*], f64
    %decayed = step.add %grad, %decay : [*]
    %g = step.select %has_decay, %decayed, %grad : [*]
    %gg = step.mul %g, %g : [*]
    %gg_sum = step.sum %gg : [*]
    step.contribute %g_sum, %gg_sum
    %gs = step.mul %g, %s : [*]
    %dot = step.sum %gs : [*]
    step.contribute %gs_sum, %dot

    %part = step.mul %g, %rate : [*], f64
    %s1 = step.add %s, %part : [*]
    %ss = step.mul %s1, %s1 : [*]
    %ss_sum = step.sum %ss : [*]
    step.contribute %s_sum, %ss_sum

    %z = step.sub %start, %s1 : [*]
    %w = step.sub %one, %mu : f64
    %theta_kept = step.mul %theta, %mu : [*], f64
    %theta_gain = step.mul %z, %w : [*], f64
    %theta1 = step.add %theta_kept, %theta_gain : [*]
    step.return %theta1, %s1, %start
  }
}
