// What the zoo has none of: vectors that are kept from one segment to the next, states
// with an initial value, two results of a round, and statistics, scalars and rounds of
// the model and of groups side by side.

step.optimizer @mixed {
  %lr = step.hyper "lr" = 0.1
  %limit = step.hyper "limit" = 1.0e+30
  %one = step.constant 1.0
  %age = step.scalar "age" = 0.0 over model
  %skips = step.scalar "skips" = 0.0 over model
  %seen = step.scalar "seen" = 0.0 over group
  %size = step.statistic "size" sum over model
  %own = step.statistic "own" sum over group
  %most = step.statistic "most" amax over model

  %coef, %shift = step.scalars over model {
    %root = step.sqrt %size : f64
    %sum = step.add %root, %one : f64
    %part = step.div %one, %sum : f64
    %age1 = step.add %age, %one : f64
    step.update %age, %age1
    %skips1 = step.add %skips, %one : f64
    %over = step.compare gt, %most, %limit : f64
    %next = step.select %over, %skips1, %skips : f64
    step.update %skips, %next always
    step.skip_if %over
    step.report "root", %root
    step.yield %part, %sum : f64, f64
  }

  %mine = step.scalars over group {
    %seen1 = step.add %seen, %own : f64
    step.update %seen, %seen1
    step.report "own", %own
    step.yield %seen1 : f64
  }

  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1] = 0.5,
                    %s: state "sum"[n, m] = 0.25, %b: state "narrow"[n, m],
                    %t: count, %first: fresh) {
    %gg = step.mul %g, %g : [n, m]
    %row_mean = step.mean %gg over [m] : [n, m]
    %row = step.add %row_mean, %r : [n, 1]
    %col = step.amax %gg over [n] : [n, m]
    %by_row = step.div %g, %row : [n, m], [n, 1]
    %u = step.div %by_row, %col : [n, m], [1, m]
    %uu = step.mul %u, %u : [n, m]
    %total = step.sum %uu : [n, m]
    step.contribute %size, %total
    %largest = step.amax %gg : [n, m]
    step.contribute %most, %largest
    %size_g = step.abs %g : [n, m]
    %flat = step.sum %size_g : [n, m]
    step.contribute %own, %flat
    %scaled = step.mul %u, %coef : [n, m], f64
    %moved = step.add %scaled, %shift : [n, m], f64
    %more = step.div %moved, %mine : [n, m], f64
    %start = step.select %first, %g, %s : [n, m]
    %s1 = step.lerp %start, %more, %coef : [n, m], [n, m], f64
    %r1 = step.mul %row, %coef : [n, 1], f64
    %b1 = step.add %p, %g : [n, m]
    %number = step.to_f64 %t
    %rate = step.div %lr, %number : f64
    %step = step.mul %s1, %rate : [n, m], f64
    %less = step.sub %p, %step : [n, m]
    %p1 = step.sub %less, %b : [n, m]
    step.return %p1, %r1, %s1, %b1 : [n, m], [n, 1], [n, m], [n, m]
  }
}
