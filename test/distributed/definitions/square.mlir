// Square matrices and single rows have rules of their own, which ranks cannot share: of two
// equal names, and of a dim of 1, nobody knows what a part of it is.
step.optimizer @square {
  %lr = step.hyper "lr" = 1.0e-2
  %beta = step.hyper "beta" = 0.9
  %eps = step.hyper "eps" = 1.0e-8
  step.rule @square(%p: param[n, n], %g: grad[n, n],
                    %m: state "exp_avg"[n, n], %r: state "row"[n, 1] = 1.0,
                    %c: state "column"[1, n] = 1.0, %t: count) {
    %m1 = step.lerp %g, %m, %beta : [n, n], [n, n], f64
    %mm = step.mul %m1, %m1 : [n, n]
    %power = step.mean %mm over [n] : [n, n]
    %root = step.sqrt %power : [1, 1]
    %size = step.add %root, %eps : [1, 1], f64
    %r1 = step.mul %r, %beta : [n, 1], f64
    %c1 = step.lerp %c, %size, %beta : [1, n], [1, 1], f64
    %scaled = step.mul %m1, %r1 : [n, n], [n, 1]
    %both = step.mul %scaled, %c1 : [n, n], [1, n]
    %unit = step.div %both, %size : [n, n], [1, 1]
    %u = step.mul %unit, %lr : [n, n], f64
    %p1 = step.sub %p, %u : [n, n]
    step.return %p1, %m1, %r1, %c1 : [n, n], [n, n], [n, 1], [1, n]
  }
  step.rule @row(%p: param[1, m], %g: grad[1, m], %v: state "exp_avg_sq"[1, m] kept) {
    %gg = step.mul %g, %g : [1, m]
    %power = step.mean %gg over [m] : [1, m]
    %v1 = step.lerp %gg, %v, %beta : [1, m], [1, m], f64
    %sum = step.add %power, %eps : [1, 1], f64
    %root = step.sqrt %sum : [1, 1]
    %unit = step.div %g, %root : [1, m], [1, 1]
    %u = step.mul %unit, %lr : [1, m], f64
    %p1 = step.sub %p, %u : [1, m]
    step.return %p1, %v1 : [1, m], [1, m]
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %u = step.mul %g, %lr : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }
}
