// Divides gradients by the number of backward passes that they are the sum of.
//
//   g <- g / accumulation_steps
//
// So the step takes the mean of them, as where each loss is divided before its backward
// pass. After unscaling, before any clipping. No traversal of its own.

step.fragment @accumulation {
  %steps = step.hyper "accumulation_steps" = 1.0

  step.rule @any(%g: grad[*]) {
    %g1 = step.div %g, %steps : [*], f64
    step.return %g1
  }
}
