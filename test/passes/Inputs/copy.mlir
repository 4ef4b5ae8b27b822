// A rule that only copies, which LLVM would make a call of memcpy.
step.optimizer @copy {
  step.rule @any(%p: param[*], %g: grad[*], %last: state "last"[*]) {
    step.return %last, %g
  }
}
