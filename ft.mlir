step.optimizer @ft {
  step.rule @any(%p: param[*], %g: grad[*], %h: state "input"[*], %s: state "start"[*] kept, %first: fresh) {
    %s1 = step.select %first, %p, %s : i1, [*], [*]
    %u = step.mul %g, %h : [*]
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %h, %s1
  }
}
