// What the zoo has none of, for tensors of which a rank has a part: sums to items,
// maxima over rows, both kinds of contribution, vectors that wait for a later round.

step.optimizer @parts {
  %lr = step.hyper "lr" = 0.1
  %one = step.constant 1.0
  %size = step.statistic "size" sum over model
  %tensors = step.statistic "tensors" sum over model
  %own = step.statistic "own" sum over group
  %most = step.statistic "most" amax over model
  %tops = step.statistic "tops" sum over model
  %seen = step.scalar "seen" = 0.0 over group

  %coef = step.scalars over model {
    %root = step.sqrt %size : f64
    %sum = step.add %root, %tensors : f64
    %all = step.add %sum, %most : f64
    %part = step.div %one, %all : f64
    step.report "tensors", %tensors
    step.report "tops", %tops
    step.yield %part : f64
  }
  %mine = step.scalars over group {
    %seen1 = step.add %seen, %own : f64
    step.update %seen, %seen1
    step.yield %seen1 : f64
  }

  step.rule @batched(%p: param[...b, n, m], %g: grad[...b, n, m],
                     %i: state "item"[...b, 1, 1], %r: state "row"[...b, n, 1],
                     %c: state "col"[...b, 1, m]) {
    %gg = step.mul %g, %g : [...b, n, m]
    %item = step.mean %g over [n, m] : [...b, n, m]
    %i1 = step.add %i, %item : [...b, 1, 1]
    %most_of_row = step.amax %g over [m] : [...b, n, m]
    %r1 = step.add %r, %most_of_row : [...b, n, 1]
    %col = step.sum %gg over [n] : [...b, n, m]
    %c1 = step.add %c, %col : [...b, 1, m]
    %row_mean = step.mean %r1 over [n] : [...b, n, 1]
    %total = step.sum %gg : [...b, n, m]
    step.contribute %size, %total
    step.contribute %tensors, %one
    %largest = step.amax %g : [...b, n, m]
    step.contribute %most, %largest
    // A part over n alone.
    %top = step.sum %most_of_row : [...b, n, 1]
    step.contribute %tops, %top
    %sizes = step.abs %g : [...b, n, m]
    %sum = step.sum %sizes : [...b, n, m]
    step.contribute %own, %sum
    %by_item = step.mul %g, %i1 : [...b, n, m], [...b, 1, 1]
    %by_row = step.mul %by_item, %r1 : [...b, n, m], [...b, n, 1]
    %by_col = step.div %by_row, %c1 : [...b, n, m], [...b, 1, m]
    %shifted = step.add %by_col, %row_mean : [...b, n, m], [...b, 1, 1]
    %scaled = step.mul %shifted, %coef : [...b, n, m], f64
    %more = step.add %scaled, %mine : [...b, n, m], f64
    %u = step.mul %more, %lr : [...b, n, m], f64
    %p1 = step.sub %p, %u : [...b, n, m]
    step.return %p1, %i1, %r1, %c1 : [...b, n, m], [...b, 1, 1], [...b, n, 1], [...b, 1, m]
  }
  step.rule @rest(%p: param[*], %g: grad[*]) {
    %gg = step.mul %g, %g : [*]
    %total = step.mean %gg : [*]
    step.contribute %size, %total
    step.contribute %tensors, %one
    %u = step.mul %g, %coef : [*], f64
    %by = step.div %u, %total : [*], f64
    %p1 = step.sub %p, %by : [*]
    step.return %p1
  }
}
