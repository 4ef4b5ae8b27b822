// A state of fewer dims stands before the param, and reductions cross no rank where rows are cut.
step.optimizer @row_first {
  step.rule @matrix(%r: state "row"[...b, n, 1], %p: param[...b, n, m], %g: grad[...b, n, m]) {
    %row = step.mean %g over [m] : [...b, n, m]
    %r1 = step.add %r, %row : [...b, n, 1]
    %u = step.mul %g, %r1 : [...b, n, m], [...b, n, 1]
    %p1 = step.sub %p, %u : [...b, n, m]
    step.return %r1, %p1 : [...b, n, 1], [...b, n, m]
  }
}
