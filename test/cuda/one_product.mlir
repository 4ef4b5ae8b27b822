// A matrix times the gradient: one product between two kernels.
step.optimizer @one {
  %lr = step.hyper "lr" = 1.0e-2
  step.rule @both(%p: param[n, m], %g: grad[n, m], %a: state "a"[n, n] = 0.5) {
    %u = step.matmul %a, %g : [n, n], [n, m]
    %s = step.mul %u, %lr : [n, m], f64
    %p1 = step.sub %p, %s : [n, m]
    step.return %p1, %a : [n, m], [n, n]
  }
}
