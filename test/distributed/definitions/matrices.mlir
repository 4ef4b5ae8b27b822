// Matrices are stepped whole, with a state that has none of their shapes; all else by elements.
step.optimizer @matrices {
  %lr = step.hyper "lr" = 1.0e-3
  %half = step.constant 0.5

  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %v: state "momentum"[n, m],
                    %l: state "gram"[n, n]) {
    %v1 = step.lerp %v, %g, %half : [n, m], [n, m], f64
    %gt = step.transpose %v1 : [n, m]
    %gg = step.matmul %v1, %gt : [n, m], [m, n]
    %l1 = step.lerp %l, %gg, %half : [n, n], [n, n], f64
    %u = step.matmul %l1, %v1 : [n, n], [n, m]
    %d = step.mul %u, %lr : [n, m], f64
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %v1, %l1 : [n, m], [n, m], [n, n]
  }

  step.rule @any(%p: param[*], %g: grad[*], %v: state "momentum"[*]) {
    %v1 = step.lerp %v, %g, %half : [*], [*], f64
    %d = step.mul %v1, %lr : [*], f64
    %p1 = step.sub %p, %d : [*]
    step.return %p1, %v1 : [*], [*]
  }
}
