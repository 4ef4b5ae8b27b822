//===- Passes.td - passes of Stepc ----------------------------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In the order of the stages. One pass = one flag = one source file = one test:
// `step-mark-stored` is passes/define/MarkStored.cpp, tested in
// test/passes/mark-stored.mlir.
//
//===----------------------------------------------------------------------===//

#ifndef STEP_PASSES
#define STEP_PASSES

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// define
//===----------------------------------------------------------------------===//

def InlineCalls : Pass<"step-inline-calls", "::mlir::ModuleOp"> {
  let summary = "put what a step.define makes in place of its calls";
  let description = [{
    Before: optimizers and fragments with `step.define` and `step.call`. After: each
    call is replaced by the operations of its definition, and definitions are gone.

    ```mlir
    step.optimizer @example {
      %lr = step.hyper "lr" = 1.0e-3
      step.define @decaying(%t: i64) {
        %number = step.to_f64 %t
        %rate = step.div %lr, %number : f64
        step.yield %rate : f64
      }
      step.rule @any(%p: param[*], %g: grad[*], %t: count) {
        %rate = step.call @decaying(%t) : (i64) -> f64
        %p1 = step.mul %g, %rate : [*], f64
        step.return %p1
      }
    }
    // ==>
    step.optimizer @example {
      %lr = step.hyper "lr" = 1.0e-3
      step.rule @any(%p: param[*], %g: grad[*], %t: count) {
        %number = step.to_f64 %t
        %rate = step.div %lr, %number : f64
        %p1 = step.mul %g, %rate : [*], f64
        step.return %p1
      }
    }
    ```
  }];
}

def UnrollRepeats : Pass<"step-unroll-repeats", "::mlir::ModuleOp"> {
  let summary = "put what a step.repeat does in its place, as often as it does it";
  let description = [{
    Before: rules with `step.repeat`. After: copies of the body stand in its place, one for each
    time, of which each uses what the one before has made.

    ```mlir
    %x = step.repeat 2 (%a: [*] = %g) {
      %b = step.mul %a, %half : [*], f64
      step.yield %b : [*]
    }
    // ==>
    %b = step.mul %g, %half : [*], f64
    %x = step.mul %b, %half : [*], f64
    ```
  }];
}

def FlattenWhens : Pass<"step-flatten-whens", "::mlir::ModuleOp"> {
  let summary = "make selects of what is done in some steps";
  let description = [{
    Before: rules with `step.when`. After: its operations stand in its place, and each of its
    results is a `step.select` between what they make and the old value. Values stay as they
    are: no operation depends on whether another is done. What need not be done,
    `step-skip-products` finds again once options are decided and dead values are gone.

    ```mlir
    %q1 = step.when %due, %q : [n, n] {
      %new = step.eigh %gram : [n, n]
      step.yield %new : [n, n]
    }
    // ==>
    %new = step.eigh %gram : [n, n]
    %q1 = step.select %due, %new, %q : [n, n]
    ```
  }];
}

def ExpandIdentities : Pass<"step-expand-identities", "::mlir::ModuleOp"> {
  let summary = "make identities of indices that are compared";
  let description = [{
    Before: rules with `step.identity`. After: each is a `step.select` of 1 and 0, by where rows
    and columns are the same. A column and a row are in memory, and no matrix.

    ```mlir
    %one = step.identity : [n, n]
    // ==>
    %row = step.index : [n, 1]
    %column = step.index : [1, n]
    %same = step.compare eq, %row, %column : [n, 1], [1, n]
    %one = step.select %same, %1, %0 : mask[n, n], f64, f64
    ```
  }];
}

def ReassociateMeans : Pass<"step-reassociate-means", "::mlir::ModuleOp"> {
  let summary = "find means of squares column by column";
  let description = [{
    Before: rules of optimizers and fragments as they are written. After: no reduction
    says `reassociable`. Where the language has a form for it (docs/language.md), it is
    of that form, elsewhere an ordinary one. The form needs a factor that is only known
    at the end of a traversal, as that of a column, for its vector alone, so it is found
    along with what that factor is made of.

    ```mlir
    %u = step.mul %g, %column : [n, m], [1, m]
    %uu = step.mul %u, %u : [n, m]
    %mean = step.mean %uu reassociable : [n, m]
    // ==>
    %gg = step.mul %g, %g : [n, m]
    %by_column = step.mean %gg over [n] : [n, m]
    %half = step.mul %by_column, %column : [1, m]
    %whole = step.mul %half, %column : [1, m]
    %mean = step.mean %whole : [1, m]
    ```

    What is bounded becomes a select between this and what was written.
  }];
}

def InlineFragments : Pass<"step-inline-fragments", "::mlir::ModuleOp"> {
  let summary = "put fragments in front of the optimizer's rules, or behind them";
  let description = [{
    Before: an optimizer, and fragments beside it. After: the optimizer declares
    what the fragments do, and each of its rules begins with their operations, in
    their order, on the rule's dims; the rest of the rule uses the gradient that
    they return. Those that see a param come last: each rule gets their states, and
    does what they do with its new param. The fragments are gone.

    What no source may say is refused, whether or not a result depends on it.

    A name that the optimizer or a fragment before has already gets the prefix
    `fragment.`. Where a rule stores its gradient in a state, what is stored is
    marked here: to the rule the gradient is an argument still, and its other
    uses see it unrounded.

    ```mlir
    step.optimizer @sgd {
      step.rule @any(%p: param[*], %g: grad[*]) {
        %p1 = step.sub %p, %g : [*]
        step.return %p1
      }
    }
    step.fragment @scale {
      %factor = step.hyper "factor" = 0.5
      step.rule @any(%g: grad[*]) {
        %g1 = step.mul %g, %factor : [*], f64
        step.return %g1
      }
    }
    // ==>
    step.optimizer @sgd {
      %factor = step.hyper "factor" = 0.5
      step.rule @any(%p: param[*], %g: grad[*]) {
        %g1 = step.mul %g, %factor : [*], f64
        %p1 = step.sub %p, %g1 : [*]
        step.return %p1
      }
    }
    ```
  }];
}

def MarkStored : Pass<"step-mark-stored", "::mlir::step::OptimizerOp"> {
  let summary = "mark where new values get their storage type";
  let description = [{
    Before: rules as they are written. A value that `step.return` stores is
    rounded to its storage type where it is defined, and every use sees the
    rounded value.

    After: each such value x is followed by `x' = step.stored x`, and every use
    of x is one of x'. A stored argument of the rule is marked at the return
    only: its other uses keep the value that was read. A param or state that is
    returned as it came in is not marked. From here on, folds and CSE cannot
    change where a value is rounded.

    ```mlir
    %m1 = step.lerp %m, %g, %w : [*], [*], f64
    step.return %p1, %m1
    // ==>
    %m1 = step.lerp %m, %g, %w : [*], [*], f64
    %m1s = step.stored %m1 as [2] : [*]
    step.return %p1s, %m1s
    ```
  }];
}

def DropDeadStates : Pass<"step-drop-dead-states", "::mlir::step::OptimizerOp"> {
  let summary = "remove states that influence nothing";
  let description = [{
    Before: marked rules. After: a state that neither a param, nor a
    contribution, nor another state that is kept depends on, in this step or a
    later one, is gone, with what only it needed; a remark says so, and the rule's
    attribute `dropped_states`, for requests that name it. A state whose storage
    type a used value is rounded to is kept, and so is one that says `kept`, with
    what it depends on.
  }];
}

def VerifyDefined : Pass<"step-verify-defined", "::mlir::step::OptimizerOp"> {
  let summary = "check what may stand after the define stage";
  let description = [{
    Rules are not bound, they hold what a source may say and no operations that
    later passes insert, no calls and nothing reassociable, and each returned value is a `step.stored` or the
    argument whose new value it is.
  }];
}

//===----------------------------------------------------------------------===//
// bind
//===----------------------------------------------------------------------===//

def InstantiateVariants
    : Pass<"step-instantiate-variants", "::mlir::step::OptimizerOp"> {
  let summary = "make one rule for each variant";
  let description = [{
    Before: rules of a definition. After: for each rule and each requested
    variant one bound rule, with a storage type for each tensor, a compute type
    and a value of each option; the definition's rules are gone.

    A request is a list "param=bf16,grad=bf16,state=f32,state.exp_avg=bf16,
    option.amsgrad=true,master=f32". What it does not name: param f32, grad as the
    param, states the compute type, options their default, no master. A derived option that is
    not named takes both values, each in a variant of its own. Without a request
    there is one empty request.

    A layout that shards a dim whose name stands twice in the param, or is 1, makes no
    variant of a rule that is not elementwise. Its variant of whole tensors stands for it,
    and says so in `owned_layouts`, and a remark does: one rank steps the tensor for all.
  }];
  let options = [
    ListOption<"variants", "variants", "std::string",
               "requests, separated by commas outside, by semicolons inside">];
}

def ResolveOptions : Pass<"step-resolve-options", "::mlir::step::OptimizerOp"> {
  let summary = "replace options of bound rules by their values";
  let description = [{
    Before: bound rules that use options. After: they use constants, selects on
    them are gone, and so are the states whose guard does not hold, with the
    values returned for them.

    An absent state whose value would still be needed is an error.
  }];
}

def KeepMasters : Pass<"step-keep-masters", "::mlir::step::OptimizerOp"> {
  let summary = "keep the f32 of parameters that are stored as bf16";
  let description = [{
    Before: bound rules whose attribute `master`, from a request, is "f32" or
    "remainder". After: such a rule has one more state, and the attribute is gone.

    With "f32" the state is `master`, and where it rounds to the parameter it is
    what the rule reads in its place; elsewhere, and in the first step, the parameter
    is. With "remainder" the state is `remainder`, an i16 that together with the
    parameter is the f32. Both leave the same bits in the parameter, the nearest bf16
    with ties away from zero.

    ```mlir
    step.optimizer @example {
      step.rule @any_0(%p: param[*] as bf16, %g: grad[*] as bf16,
                       %r: state "remainder"[*] as i16) variant <"any", {}, f32> {
        %x = step.join_halves %p, %r : [*]
        %x1 = step.sub %x, %g : [*]
        %p1 = step.upper_half %x1 : [*]
        %r1 = step.lower_half %x1 : [*]
        step.return %p1, %r1
      }
    }
    ```
  }];
}

def NumberTensors : Pass<"step-number-tensors", "::mlir::step::OptimizerOp"> {
  let summary = "tell random numbers which tensor they are of";
  let description = [{
    Before: bound rules. After: those with a `step.random_normal` have the role of positions,
    which says the tensor's number, and the operation takes it.

    ```mlir
    step.optimizer @example {
      %seed = step.hyper "seed" = 1.0
      step.rule @matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %t: count,
                          %i: position[n, m] as i64) variant <"matrix", {}, f32> {
        %z = step.random_normal "z" %seed, %t at %i : [n, m] : [n, m]
        %p1 = step.sub %p, %z : [n, m]
        step.return %p1 : [n, m]
      }
    }
    ```
  }];
}

def RoundStochastically
    : Pass<"step-round-stochastically", "::mlir::step::OptimizerOp"> {
  let summary = "round what is stored as bf16 by random bits";
  let description = [{
    Before: bound rules whose attribute `rounding`, from a request, is "stochastic",
    with `step.stored`. After: what such a rule stores as bf16 in the parameter and in
    states of all its dims is rounded by `step.round_stochastic`, and the attribute is
    gone. Random bits follow from the position of an element, a role that the rule
    gets, the step count, and the optimizer's new hyper-parameter `rounding_seed`, a
    whole number from 0 to 2^53. States of fewer dims are rounded to nearest.

    ```mlir
    step.optimizer @example {
      %seed = step.hyper "rounding_seed" = 0.0
      step.rule @any_0(%p: param[*] as bf16, %g: grad[*] as bf16,
                       %i: position[*] as i64, %t: count) variant <"any", {}, f32> {
        %s = step.to_i64 %seed
        %x = step.sub %p, %g : [*]
        %p1 = step.round_stochastic %x at %i, %s, %t of "" : [*]
        step.return %p1
      }
    }
    ```
  }];
}

def ResolveStorage : Pass<"step-resolve-storage", "::mlir::step::OptimizerOp"> {
  let summary = "turn stored values into roundings";
  let description = [{
    Before: `step.stored` in bound rules. After: `step.round` to the narrowest
    storage among its roles where that is narrower than the compute type, and
    nothing elsewhere.
  }];
}

def SkipReductions : Pass<"step-skip-reductions", "::mlir::step::OptimizerOp"> {
  let summary = "leave out reductions that a select does not take";
  let description = [{
    Before: bound rules. After: the reduction of a whole tensor of the param's dims whose result nothing
    but selects by one flag takes, all on the same side, says `unless` of the flag where
    the other side is taken. It is +0.0 then, and the tensor is not traversed for it.

    Only where the flag is known as soon as the reduction could begin: its input depends
    on all traversals and rounds that the flag does. A later flag would take a traversal
    more where it does not hold.

    ```mlir
    %mean = step.mean %uu : [n, m]
    %taken = step.select %flag, %other, %mean : f64
    // ==>
    %mean = step.mean %uu unless %flag : [n, m]
    %taken = step.select %flag, %other, %mean : f64
    ```
  }];
}

def SkipProducts : Pass<"step-skip-products", "::mlir::step::OptimizerOp"> {
  let summary = "Leave out products that a select does not take";
  let description = [{
    Before: bound rules. After: an operation on matrices whose result reaches
    nothing but selects by one flag, all on the same side, says `unless` of the flag where the
    other side is taken: it is not computed then, and its memory has anything in it. So are those
    of which only such are made.

    Only where the flag is known before the step: it is made of the count, the fresh flags,
    hyper-parameters and constants.

    ```mlir
    %gram = step.matmul %gt, %g : [m, n], [n, m]
    %new = step.eigh %gram : [m, m]
    %q1 = step.select %due, %new, %q : [m, m]
    // ==>
    %undue = step.not %due : i1
    %gram = step.matmul %gt, %g unless %undue : [m, n], [n, m]
    %new = step.eigh %gram unless %undue : [m, m]
    %q1 = step.select %due, %new, %q : [m, m]
    ```
  }];
}

def VerifyBound : Pass<"step-verify-bound", "::mlir::step::OptimizerOp"> {
  let summary = "check what may stand after the bind stage";
  let description = [{
    Rules are bound, each tensor has a storage type that is no wider than the
    compute type, no option is used and nothing is left to be stored.
  }];
}

//===----------------------------------------------------------------------===//
// shard
//===----------------------------------------------------------------------===//

def ReproduceSums : Pass<"step-reproduce-sums", "::mlir::step::OptimizerOp"> {
  let summary = "make sums whose bits do not depend on the order of additions";
  let description = [{
    Before: bound rules. After: the same, where each sum and mean, of elements or of
    what tensors contribute to a statistic, is made of terms that are rounded before
    they are added (P. Demmel, H. D. Nguyen: Fast Reproducible Floating-Point Summation,
    ARITH 2013), so that f64 holds every sum of them exactly, in any order and over any
    ranks. For a sum of x with the largest magnitude in [L/2, L], L a power of two:

        y = x / L, h1 = (y + C1) - C1, h2 = ((y - h1) + C2) - C2, ...
        sum = ((((sum of h5 + sum of h4) + sum of h3) + sum of h2) + sum of h1) * L

    where Cj is 1.5 * 2^(p - 18 * j) with p bits in a number of the compute type, so hj is
    a multiple of 2^(1 - 18 * j) of at most 2^17 times that. Exact up to 2^36 terms. What
    is lost of a term is at most L * 2^-90.

    Where a term is infinite or NaN so is the sum, whatever the others: Inf, -Inf, or
    NaN where both of these are among the terms. The sum of nothing and of zeros is +0.0.

    A statistic takes a round more: what tensors contribute is compared before it is
    added. In a skipped step the same `step.scalars` run as without the pass.

    ```mlir
    %row = step.mean %x over [m] : [n, m]
    // ==>
    %high = step.amax %x over [m] : [n, m]
    %minus = step.neg %x : [n, m]
    %low = step.amax %minus over [m] : [n, m]
    ...
    %sum = step.mean %h5, %h4, %h3, %h2, %h1 over [m] : [n, m]
    %row = step.select %finite, %scaled, %other : mask[n, 1], [n, 1]
    ```
  }];
}

def InsertCollectives : Pass<"step-insert-collectives", "::mlir::step::OptimizerOp"> {
  let summary = "reduce over ranks what a rank has only a part of";
  let description = [{
    Before: bound rules, with the layout of their param. After: a reduction over
    a dim that is sharded, or with `flat` of a tensor of the param's dims, says over which
    axes its parts are reduced. Its meaning stays: that of the whole tensor.

    What is only contributed to a statistic that is reduced the same way stays the part of
    a rank: statistics are reduced over ranks in any case.

    ```mlir
    // layout {n = ["dp"]}
    %row = step.mean %gg over [m] : [n, m]
    %col = step.mean %gg over [n] : [n, m]
    // ==>
    %row = step.mean %gg over [m] : [n, m]
    %col = step.mean %gg over [n] across [dp] : [n, m]
    ```
  }];
}

def InsertExchanges : Pass<"step-insert-exchanges", "::mlir::step::OptimizerOp"> {
  let summary = "bring gradients to where the step needs them, and parameters back";
  let description = [{
    Before: bound rules whose variants may have an entry, how the param and its gradient
    lie outside of the step. After: the gradient is what an exchange makes of the
    argument, and the param that is returned is put together again, so that nobody else has
    to move anything.

    ```mlir
    // layout {"flat range" = ["dp"]}, entry <whole = ["dp"], partial = ["dp", "replica"], ...>
    %s = step.sub %param, %grad : [*]
    step.return %s
    // ==>
    %0 = step.reduce_scatter %grad over ["dp"] of f32 wire f32 : [*]
    %1 = step.all_reduce %0 over ["replica"] of f32 wire f32 : [*]
    %s = step.sub %param, %1 : [*]
    %2 = step.all_gather %s over ["dp"] : [*]
    step.return %2
    ```
  }];
}

def VerifySharded : Pass<"step-verify-sharded", "::mlir::step::OptimizerOp"> {
  let summary = "check what may stand after the shard stage";
  let description = [{
    Every reduction names the axes that shard what it reduces, and no others; or its result
    is a part that is contributed to statistics and used for nothing else. Where the variant
    has an entry, the gradient and the param are exchanged as it says.
  }];
}

//===----------------------------------------------------------------------===//
// schedule
//===----------------------------------------------------------------------===//

def CarryStatistics : Pass<"step-carry-statistics", "::mlir::step::OptimizerOp"> {
  let summary = "keep statistics of parameters from step to step";
  let description = [{
    Before: bound rules. After: the same, with the same bits as long as nobody but the
    step writes parameters and states; a reduction of a whole tensor that depends on
    nothing else is computed of the new values, when they are written, and its result is
    carried (`step.carry`) to the next step, which then need not read the old ones for it.
    Where the carried value is 0 it is not known, and the reduction is made as before.

    Only where that saves reading: nothing else that is reduced reads the same tensors, and
    the new parameter depends on the result. So it is for Adafactor's and AdaLomo's
    root mean square of the parameter and LARS's norm, not for LAMB's, whose update has
    read the parameter anyway. Not by default: whoever asks for it promises
    that all writes are the step's, or are told to the runtime
    (`stepcPlanParametersWritten`). Rules of sharded tensors stay as they are.

    ```
    %before = step.carried "carried0"
    %known = step.compare ne %before, %zero : f64, f64
    %mean = step.mean %square unless %known : [n, m]
    %now = step.select %known, %before, %mean : f64
    ...
    %after = step.mean %square_of_new : [n, m]
    step.carry %after as %before of %mean
    ```
  }];
}

def DropUnreadContributions
    : Pass<"step-drop-unread-contributions", "::mlir::step::OptimizerOp"> {
  let summary = "leave out what is contributed to statistics that nothing reads";
  let description = [{
    Before and after: bound rules. Options have decided what is read: of a statistic whose
    readers are gone, contributions go too, and what only these needed.

    ```
    %norm2 = step.statistic "norm2" sum over model       // nothing reads it
    ...
    %s = step.sum %gg : [n]
    step.contribute %norm2, %s
    // ==>
    %norm2 = step.statistic "norm2" sum over model
    ```
  }];
}

def PrintTimes : Pass<"step-print-times", "::mlir::step::OptimizerOp"> {
  let summary = "print what each value of a rule is, and when it is known";
  let description = [{
    Before and after: bound rules. Prints, for each rule and value, what it is a value of
    (the cohort, the tensor, each element, a vector of some dims), and when it is known:
    before, or of an element in, traversal `level` of `segment`, written `segment.level`.
    That of a reduction is of the traversal that it needs. See RuleAnalysis.
  }];
}

def PrintTraversals : Pass<"step-print-traversals", "::mlir::step::OptimizerOp"> {
  let summary = "print which traversal of a rule does what";
  let description = [{
    Before and after: bound rules. Prints, for each rule and traversal, when it runs, what
    it reads, reduces and writes, and whether it trails the one before it; and what is
    computed of a strip of rows between them. See TraversalPlan.
  }];
}

def PrintFinishes : Pass<"step-print-finishes", "::mlir::step::OptimizerOp"> {
  let summary = "print what of a rule is done once for a tensor";
  let description = [{
    Before and after: bound rules. Prints, for each rule, what is done between traversals,
    in its order: vectors and scalars of the tensor, and which of them get memory. See
    FinishPlan.
  }];
}

def FormPrograms : Pass<"step-form-programs", "::mlir::step::OptimizerOp"> {
  let summary = "make a program of each rule";
  let description = [{
    Before: bound rules on whole tensors. After: for each a `step.program`, with
    bodies in `arith`. It is what three plans say, each of which a pass prints:
    when a value is known (`step-print-times`), which traversal does what
    (`step-print-traversals`), what a finish does (`step-print-finishes`).

    An elementwise rule becomes one traversal that reads and writes each element
    of each tensor once. A reduction that is needed whole ends a traversal, and so
    does a round of the model. All that can share a traversal does; what several
    need is computed again from what they read, or read back where it is the new
    value of a state, and new values are written where the bytes moved are least.
    Vectors of some dims and scalars of the tensor are worked on between
    traversals. Nothing is written before it is known that the step is not
    skipped.

    Scalars that tensors have in common are computed once for each row of scalars, and
    rounded to the compute type where they meet a tensor.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
}

def DropTwinPrograms : Pass<"step-drop-twin-programs", "::mlir::step::OptimizerOp"> {
  let summary = "keep one of programs that are the same";
  let description = [{
    Before and after: programs. An elementwise program is the same in every layout: of
    those of one variant the first is enough.
  }];
}

def ShareKernels : Pass<"step-share-kernels", "::mlir::step::OptimizerOp"> {
  let summary = "have programs that differ in their exchanges alone run the same kernels";
  let description = [{
    Before and after: programs. Of programs that do the same between what brings their
    gradients and what takes their params back, the first has kernels; the others name
    it, `kernels_of`, and call its functions. So a tensor may lie outside of the step in
    however many ways, and code is made once.
  }];
}

def KeepOverRounds : Pass<"step-keep-over-rounds", "::mlir::step::OptimizerOp"> {
  let summary = "mark the vectors that a later segment uses";
  let description = [{
    Before: programs. After: a vector that is used after a round of exchanges is kept by
    `step.keep` in memory of the tensor's own. Others lie in memory that the next tensor
    uses again.

    ```
    %rows = step.combine mean %0 : ... -> !step.buffer<[n, 1], f32>
    %1 = step.exchange round 0
    ... reads (%rows)
    // ==>
    %rows = step.combine mean %0 : ... -> !step.buffer<[n, 1], f32>
    %kept = step.keep %rows : !step.buffer<[n, 1], f32>
    %1 = step.exchange round 0
    ... reads (%kept)
    ```
  }];
}

def VerifyScheduled : Pass<"step-verify-scheduled", "::mlir::step::OptimizerOp"> {
  let summary = "check what may stand after the schedule stage";
  let description = [{
    The optimizer holds hyper-parameters, options and programs; no rule is left. What a
    program uses after a round is kept, what is kept is used after one, and before a
    trailing traversal stands only what can be computed for some rows. No operation may
    change the value of another: no fast-math flags.
  }];
}

//===----------------------------------------------------------------------===//
// lower
//===----------------------------------------------------------------------===//

def LowerScalarPhases : Pass<"step-lower-scalar-phases", "::mlir::ModuleOp"> {
  let summary = "make functions of scalar phases";
  let description = [{
    Before: programs. After: beside them one function for each scalar phase with
    the signature of StepcScalarFunction (runtime/include/stepc/kernel_abi.h).
  }];
  let dependentDialects = ["::mlir::func::FuncDialect",
                           "::mlir::memref::MemRefDialect"];
}

def LowerRounds : Pass<"step-lower-rounds", "::mlir::ModuleOp"> {
  let summary = "make functions of rounds";
  let description = [{
    Before: scheduled optimizers with `step.scalars`. After: beside them one
    function for each, with the signature of StepcRoundFunction.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect"];
}

def LowerPhasesToCPU : Pass<"step-lower-phases-to-cpu", "::mlir::ModuleOp"> {
  let summary = "make CPU kernels of phases";
  let description = [{
    Before: programs. After: for each phase of elements or tiles two kernels with
    the signature of StepcKernel, one for rows whose operands are contiguous and
    one for strided rows, made of functions that work on one run of elements: a
    loop over vectors, and a scalar loop over the same body for the rest. What
    stands between two traversals becomes a function with the signature of
    StepcFinish. 16-bit floats cross memory as i16. The optimizers are gone.
  }];
  let options = [
    Option<"prefetchLines", "prefetch-lines", "int64_t", "128",
           "how many cache lines to have on their way ahead of a loop, of all its operands together; 0: none">,
    Option<"avx512", "avx512", "bool", "false",
           "make products for AVX-512: with 32 registers, and dot products of bf16 where the processor has them">];
  let dependentDialects = [
    "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def LowerPhasesToCUDA : Pass<"step-lower-phases-to-cuda", "::mlir::ModuleOp"> {
  let summary = "make CUDA kernels of phases";
  let description = [{
    Before: scheduled programs, and the functions of their scalar phases and rounds.
    After: one `gpu.module` with an entry point for each kernel of the schedule, `name`
    and, but for flat ranges, `name_strided`, and for each finish, over the same table and chunks as on the CPU (docs/cuda.md), made of
    functions that a block of threads runs: over accesses of 16 bytes, and over the
    same body for single elements, which are left or not aligned; with reductions in
    the order of additions of the CPU. Besides an entry point for each function, over
    a list of its arguments, and one for each kind of statistics over tensors. The
    optimizers are gone.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def ExpandLerp : Pass<"step-expand-lerp", "::mlir::ModuleOp"> {
  let summary = "expand interpolations to arithmetic";
  let description = [{
    `step.lerp` in a program or a function becomes the seven operations of its description.
    It goes before bodies are lowered: of a weight that is the same for all elements the
    condition and the factor then are computed once.

    ```mlir
    %m1 = step.lerp %m, %g, %w : f32
    // ==>
    %near = arith.cmpf olt, %w, %half : f32
    %from_end = arith.subf %w, %one : f32
    %factor = arith.select %near, %w, %from_end : f32
    %end = arith.select %near, %m, %g : f32
    %difference = arith.subf %g, %m : f32
    %part = arith.mulf %factor, %difference : f32
    %m1 = arith.addf %end, %part : f32
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def ExpandPowi : Pass<"step-expand-powi", "::mlir::ModuleOp"> {
  let summary = "expand integer powers to multiplications";
  let description = [{
    `step.powi` in a function becomes a call of one function of the module: the
    loop of its description, in f64.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::func::FuncDialect",
                           "::mlir::LLVM::LLVMDialect",
                           "::mlir::arith::ArithDialect"];
}

def ExpandPow : Pass<"step-expand-pow", "::mlir::ModuleOp"> {
  let summary = "expand real powers to arithmetic";
  let description = [{
    In f64 `step.pow` in a function becomes a call of one function of the module,
    `power`, or of vectors `power_16`: the operations of its description
    (`dialect/Functions.h`), in their order, so that every target computes the same
    bits. In f32 it becomes the operations themselves, which are fewer and have no loop:
    those of exp(y * log(x)) in f64, rounded once.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::LLVM::LLVMDialect",
                           "::mlir::scf::SCFDialect"];
}

def ExpandExp : Pass<"step-expand-exp", "::mlir::ModuleOp"> {
  let summary = "expand exponentials to arithmetic";
  let description = [{
    `step.exp` of elements, or of vectors of them, becomes the operations of
    `dialect/Functions.h`, in their order and without branches, so that every target
    computes the same bits. In f32 they work on doubles, and the result is rounded once.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def ExpandLog : Pass<"step-expand-log", "::mlir::ModuleOp"> {
  let summary = "expand logarithms to arithmetic";
  let description = [{
    As `step-expand-exp`, of `step.log`.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def ExpandBF16 : Pass<"step-expand-bf16", "::mlir::ModuleOp"> {
  let summary = "expand bf16 conversions to integer arithmetic";
  let description = [{
    `arith.extf` and `arith.truncf` between bf16 and f32 become shifts and a
    rounding to nearest, ties to even; no bf16 value is left but as bits.
    Upstream's arith-expand would do more than this: it also rewrites
    arith.maximumf, and makes -0 of max(+0, -0).
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def ConvertToLLVM : Pass<"step-convert-to-llvm", "::mlir::ModuleOp"> {
  let summary = "convert to the LLVM dialect";
  let description = [{
    Memory by address (`step.view`, `step.prefetch`) and upstream's dialects, in
    one conversion.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ConvertToNVVM : Pass<"step-convert-to-nvvm", "::mlir::gpu::GPUModuleOp"> {
  let summary = "convert a device's module to the LLVM and NVVM dialects";
  let description = [{
    As step-convert-to-llvm does on the CPU; memory is global. Accesses of 16
    bytes that are `nontemporal` become inline PTX, with the cache operator `.cs`;
    square roots are rounded correctly.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect"];
}

def VerifyLowered : Pass<"step-verify-lowered", "::mlir::ModuleOp"> {
  let summary = "check what may stand after the lower stage";
  let description = [{
    Only the LLVM dialect is left, and for a device a `gpu.module` with, besides, the
    NVVM dialect's numbers of threads and inline PTX that loads or stores. There is no
    call to a function without a body, no intrinsic but those of a list of exact ones,
    no fused multiply-add, no fast-math flag, no bf16 or f16 arithmetic and no global.
  }];
}

#endif // STEP_PASSES
