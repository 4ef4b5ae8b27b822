// Adagrad.
// Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and
// Stochastic Optimization", JMLR 12, 2011, with diagonal matrices.
//
//   g     <- g + lambda * theta                       where lambda is not 0
//   s     <- s + g^2                                  s begins as initial_accumulator_value
//   theta <- theta - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)
//
// Formulas and names of states are those of torch.optim.Adagrad, but for rounding.
// lr_decay and the weight decay are torch's additions. torch makes the state when the
// optimizer is made, this definition in a tensor's first step; a state that is given is
// taken as it is. Keras and optax have eps inside the root.

step.optimizer @adagrad {
  %lr = step.hyper "lr" = 1.0e-2
  %lr_decay = step.hyper "lr_decay" = 0.0
  %lambda = step.hyper "weight_decay" = 0.0
  %initial = step.hyper "initial_accumulator_value" = 0.0
  %eps = step.hyper "eps" = 1.0e-10
  %maximize = step.option "maximize" = false
  %has_decay = step.option "has_weight_decay" = %lambda ne 0.0

  step.rule @any(%theta: param[*], %grad: grad[*], %sum: state "sum"[*],
                 %t: count, %first: fresh) {
    %one = step.constant 1.0
    %ascent = step.neg %grad : [*]
    %signed = step.select %maximize, %ascent, %grad : [*]
    %pull = step.mul %theta, %lambda : [*], f64
    %pulled = step.add %signed, %pull : [*]
    %g = step.select %has_decay, %pulled, %signed : [*]

    %before = step.select %first, %initial, %sum : f64, [*]
    %gg = step.mul %g, %g : [*]
    %sum1 = step.add %before, %gg : [*]

    %number = step.to_f64 %t
    %past = step.sub %number, %one : f64
    %slower = step.mul %past, %lr_decay : f64
    %divisor = step.add %one, %slower : f64
    %rate = step.div %lr, %divisor : f64
    %root = step.sqrt %sum1 : [*]
    %denom = step.add %root, %eps : [*], f64
    %ratio = step.div %g, %denom : [*]
    %update = step.mul %ratio, %rate : [*], f64
    %theta1 = step.sub %theta, %update : [*]
    step.return %theta1, %sum1
  }
}
