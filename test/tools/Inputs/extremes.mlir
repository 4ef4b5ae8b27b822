// A matrix with a maximum for each column and a sum of all.
step.optimizer @extremes {
  step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
    %top = step.amax %g over [n] : [n, m]
    %all = step.sum %g : [n, m]
    %a = step.mul %g, %top : [n, m], [1, m]
    %b = step.mul %a, %all : [n, m], f64
    %p1 = step.sub %p, %b : [n, m]
    step.return %p1 : [n, m]
  }
}
