// Keeps an exponential moving average of the parameters.
// Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", SIAM
// Journal on Control and Optimization, 1992; with these weights in Tarvainen and
// Valpola, "Mean teachers are better role models", NeurIPS 2017, section 2.
//
//   in the first step   a <- p
//   then                a <- a + (1 - decay) * (p - a)
//
// p is the new parameter, as it is stored. As torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn, updated behind each step. A skipped step averages nothing.
// Where active is 0, what is averaged stays, and is neither read nor written.
//
// A parameter that has no gradient in a step is not averaged in it; torch averages what
// did not change. Whoever adds a state in a later step than the first begins it with
// the parameter.

step.fragment @ema {
  %decay = step.hyper "ema_decay" = 0.999
  %active = step.hyper "ema_active" = 1.0
  %on = step.option "averages" = %active ne 0.0
  %averaged = step.scalar "n_averaged" = 0.0 over model

  step.scalars over model {
    %one = step.constant 1.0
    %more = step.add %averaged, %one : f64
    %averaged1 = step.select %on, %more, %averaged : f64
    step.update %averaged, %averaged1
    step.yield
  }

  step.rule @any(%p: param[*], %a: state "ema"[*] kept) {
    // Not from the step.scalars, whose results come after a round, and so after the
    // traversal that has the new parameter at hand.
    %zero = step.constant 0.0
    %one = step.constant 1.0
    %first = step.compare eq, %averaged, %zero : f64
    %weight = step.sub %one, %decay : f64
    %moved = step.lerp %a, %p, %weight : [*], [*], f64
    %average = step.select %first, %p, %moved : [*]
    %a1 = step.select %on, %average, %a : [*]
    step.return %a1
  }
}
