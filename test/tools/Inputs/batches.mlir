step.optimizer @batches {
  %rank = step.option "rank" = 4
  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m], %s: state "s"[...b, m, r])
      dim r = min %rank, n, m {
    %gt = step.transpose %g : [...b, n, m]
    %gram = step.matmul %g, %gt {accumulate = f64} : [...b, n, m], [...b, m, n]
    %y = step.matmul %g, %s : [...b, n, m], [...b, m, r]
    %q = step.qr %y : [...b, n, r]
    %z = step.matmul %gt, %q : [...b, m, n], [...b, n, r]
    %u = step.matmul %gram, %p : [...b, n, n], [...b, n, m]
    %zt = step.transpose %z : [...b, m, r]
    %low = step.matmul %q, %zt : [...b, n, r], [...b, r, m]
    %p1 = step.sub %u, %low : [...b, n, m]
    step.return %p1, %z : [...b, n, m], [...b, m, r]
  }
}
