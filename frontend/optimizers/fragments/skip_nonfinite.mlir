// Leaves out a step in which a gradient is infinite or NaN.
//
// As a loss scaler does, without a scale: nothing changes, no parameter, state or
// count. The answer comes from the traversal that clipping by a norm makes, too. Before
// any clipping.

step.fragment @skip_nonfinite {
  %largest = step.statistic "largest" amax over model

  step.scalars over model {
    %infinity = step.constant 0x7FF0000000000000
    %below = step.compare lt, %largest, %infinity : f64 // not for NaN
    %overflow = step.not %below : i1
    step.skip_if %overflow
    step.yield
  }

  step.rule @any(%g: grad[*]) {
    %size = step.abs %g : [*]
    %most = step.amax %size : [*]
    step.contribute %largest, %most
    step.return %g
  }
}
