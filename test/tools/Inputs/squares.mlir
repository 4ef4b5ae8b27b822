// A rule of elements alone whose dims have one name, beside a scalar of the step.
step.optimizer @squares {
  %lr = step.hyper "lr" = 1.0e-2
  %power = step.statistic "power" sum over model
  %shrink = step.scalars over model {
    %one = step.constant 1.0
    %sum = step.add %power, %one : f64
    %inverse = step.div %one, %sum : f64
    step.yield %inverse : f64
  }
  step.rule @square(%p: param[n, n], %g: grad[n, n]) {
    %u = step.mul %g, %lr : [n, n], f64
    %p1 = step.sub %p, %u : [n, n]
    step.return %p1 : [n, n]
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %gg = step.mul %g, %g : [*]
    %sum = step.sum %gg : [*]
    step.contribute %power, %sum
    %u = step.mul %g, %shrink : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }
}
