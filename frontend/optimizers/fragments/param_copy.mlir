// Writes a copy of the new parameter, which may have another storage type: the weights
// that the model computes with in bf16, beside parameters in f32.
//
//   c <- p
//
// One rounding, of the parameter as it is stored. The copy is written and never read:
// whoever binds it in bf16 adds two bytes a parameter. The parameter itself is not
// rounded to the copy's type.

step.fragment @param_copy {
  step.rule @any(%p: param[*], %c: state "param_copy"[*] kept) {
    step.return %p
  }
}
