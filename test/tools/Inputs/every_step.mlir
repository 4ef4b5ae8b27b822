// A round that reads no statistic.
step.fragment @every_step {
  %decay = step.hyper "decay" = 0.9
  %scale = step.scalar "scale" = 1.0 over model

  step.scalars over model {
    %next = step.mul %scale, %decay : f64
    step.update %scale, %next
    step.yield
  }

  step.rule @any(%g: grad[*]) {
    %g1 = step.mul %g, %scale : [*], f64
    step.return %g1
  }
}
