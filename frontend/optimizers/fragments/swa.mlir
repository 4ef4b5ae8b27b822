// Keeps the mean of the parameters over the steps in which it is active.
// Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization",
// UAI 2018, algorithm 1.
//
//   n = 0    a <- p
//   else     a <- a + (p - a) / (n + 1)
//   n <- n + 1
//
// p is the new parameter, as it is stored; n, n_averaged, is of the model. As
// torch.optim.swa_utils.AveragedModel with get_swa_multi_avg_fn. The paper averages once
// in a cycle of the learning rate: active is 0 in other steps, in which the average is
// neither read nor written. A skipped step averages nothing.
//
// A parameter that has no gradient in a step is not averaged in it; torch averages what
// did not change. Whoever adds a state in a later step than the first begins it with
// the parameter.

step.fragment @swa {
  %active = step.hyper "swa_active" = 1.0
  %on = step.option "averages" = %active ne 0.0
  %averaged = step.scalar "n_averaged" = 0.0 over model

  step.scalars over model {
    %one = step.constant 1.0
    %more = step.add %averaged, %one : f64
    %averaged1 = step.select %on, %more, %averaged : f64
    step.update %averaged, %averaged1
    step.yield
  }

  step.rule @any(%p: param[*], %a: state "swa"[*] kept) {
    // Not from the step.scalars, whose results come after a round, and so after the
    // traversal that has the new parameter at hand.
    %zero = step.constant 0.0
    %one = step.constant 1.0
    %first = step.compare eq, %averaged, %zero : f64
    %number = step.add %averaged, %one : f64
    %away = step.sub %p, %a : [*]
    %part = step.div %away, %number : [*], f64
    %moved = step.add %a, %part : [*]
    %average = step.select %first, %p, %moved : [*]
    %a1 = step.select %on, %average, %a : [*]
    step.return %a1
  }
}
