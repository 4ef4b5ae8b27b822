// As @square of square.mlir: ranks cannot share dims of one name. Its states hang on options,
// which may change between two steps.
step.optimizer @square_momentum {
  %lr = step.hyper "lr" = 1.0e-2
  %beta = step.hyper "beta" = 0.9
  %eps = step.hyper "eps" = 1.0e-8
  %slow = step.option "slow" = false
  %fast = step.option "fast" = false
  step.rule @square(%p: param[n, n], %g: grad[n, n], %m: state "slow_avg"[n, n] if %slow,
                    %v: state "fast_avg"[n, n] = 2.0 if %fast) {
    %m1 = step.lerp %g, %m, %beta : [n, n], [n, n], f64
    %v1 = step.lerp %v, %g, %beta : [n, n], [n, n], f64
    %a = step.select %slow, %m1, %g : [n, n]
    %b = step.select %fast, %v1, %g : [n, n]
    %both = step.add %a, %b : [n, n]
    %squares = step.mul %both, %both : [n, n]
    %power = step.mean %squares over [n] : [n, n]
    %root = step.sqrt %power : [1, 1]
    %size = step.add %root, %eps : [1, 1], f64
    %unit = step.div %both, %size : [n, n], [1, 1]
    %u = step.mul %unit, %lr : [n, n], f64
    %p1 = step.sub %p, %u : [n, n]
    step.return %p1, %m1, %v1 : [n, n], [n, n], [n, n]
  }
}
