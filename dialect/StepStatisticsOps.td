//===- StepStatisticsOps.td - reductions, statistics ------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_STATISTICS_OPS
#define STEP_STATISTICS_OPS

include "StepInterfaces.td"
include "StepValueOps.td"

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

def Step_ReductionGroup : OpDocGroup {
  let summary = "Reductions";
  let description = [{
    Over dims, which stay as `1`, or without `over` over a whole tensor, which gives
    an f64. Everything is added in f64, in the order that `docs/statistics.md`
    describes (*the tree*), and rounded to the compute type once where the result is
    a tensor.

    Several tensors of one type may be reduced together, as `step.mean %a, %b over [m]`:
    each is on its own, in the same order of additions, then the results are added (of
    `amax`: compared) in the order of the operands, still in f64, and only then divided
    and rounded. A mean is divided by the number of elements of one of them.

    The sum or mean of a whole tensor's squares may say `reassociable`: the order of its
    additions is then free, and it is found without a traversal of its own where that can be.
    For the mean of x^2 with x = y * c, where dims of y are 1 in c (a factor for each column,
    say), that is the mean over the other dims of

        (mean of y^2 over the dims that c does not have) * c * c

    which needs no c where it goes through all elements. Where x = y * min(r * c, bound), with
    r and c made of squares, roots, magnitudes, their sums, products and quotients, and so not
    below zero, y * r stands for y, as long as max(r) * max(c) <= bound; elsewhere it is
    computed as it is written. What is of none of these forms is an ordinary reduction, and so is
    one of values that the rule returns: these are rounded on their way.

    ```mlir
    step.optimizer @example {
      %one = step.constant 1.0
      step.rule @matrix(%p: param[n, m], %g: grad[n, m], %c: state "column"[1, m]) {
        %gg = step.mul %g, %g : [n, m]
        %c1 = step.mean %gg over [n] : [n, m]
        %root = step.sqrt %c1 : [1, m]
        %factor = step.div %one, %root : f64, [1, m]
        %u = step.mul %g, %factor : [n, m], [1, m]
        %uu = step.mul %u, %u : [n, m]
        %u_mean = step.mean %uu reassociable : [n, m]
        %d = step.div %u, %u_mean : [n, m], f64
        %p1 = step.sub %p, %d : [n, m]
        step.return %p1, %c1 : [n, m], [1, m]
      }
    }
    ```
  }];
}
let opDocGroup = Step_ReductionGroup in {

class Step_ReductionOp<string mnemonic, string kind, string what>
    : Step_Op<mnemonic, [
        Pure, AttrSizedOperandSegments, DeclareOpInterfaceMethods<InferTypeOpInterface>,
        DeclareOpInterfaceMethods<Step_ValueOpInterface>, Step_ReductionOpInterface]> {
  let summary = what;
  let arguments = (ins Variadic<Step_TensorType>:$inputs, OptionalAttr<StrArrayAttr>:$over,
                       OptionalAttr<StrArrayAttr>:$across, Optional<I1>:$unless,
                       UnitAttr:$reassociable);
  let results = (outs Step_Value:$result);
  let assemblyFormat = [{
    $inputs (`over` custom<DimNames>($over)^)?
    (`across` custom<DimNames>($across)^)? (`reassociable` $reassociable^)?
    (`unless` $unless^)? attr-dict `:`
    custom<OneShortType>(type($inputs), ref($inputs))
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::step::ReductionKind getReductionKind() {
      return ::mlir::step::ReductionKind::}] # kind # [{;
    }
    bool isWhole() { return !getOverAttr(); }
    ::llvm::SmallVector<unsigned> getReducedPositions() {
      return ::mlir::step::getReducedPositions(getInputs()[0].getType(), getOverAttr());
    }
    void setUnless(::mlir::Value flag) { getUnlessMutable().assign(flag); }
  }];
}

def Step_SumOp : Step_ReductionOp<"sum", "Sum", "the sum of a tensor's elements"> {
  let description = [{
    +0.0 where there are no elements.

    ```mlir
    step.optimizer @example {
      step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m],
                        %r: state "row"[...b, n, 1]) {
        %row = step.sum %g over [m] : [...b, n, m]
        %all = step.sum %g : [...b, n, m]
        %u = step.mul %p, %all : [...b, n, m], f64
        %p1 = step.sub %u, %row : [...b, n, m], [...b, n, 1]
        step.return %p1, %row : [...b, n, m], [...b, n, 1]
      }
    }
    ```

    Constraints:
    - there is an operand, and all are of one type
    - dims after `over` are distinct names of dims of the operand, at least one;
      `*` and `...b` are reduced only with the whole tensor
    - what is `reassociable` is a sum or mean of one whole tensor
  }];
}
def Step_MeanOp : Step_ReductionOp<"mean", "Mean", "the mean of a tensor's elements"> {
  let description = [{
    The sum divided by the number of elements, in f64; NaN where there are none.
  }];
}
def Step_AmaxOp : Step_ReductionOp<"amax", "Amax", "the largest of a tensor's elements"> {
  let description = [{
    By `step.maximum`: NaN if any is NaN. -Inf where there are no elements.
  }];
}

} // opDocGroup

//===----------------------------------------------------------------------===//
// Statistics
//===----------------------------------------------------------------------===//

def Step_StatisticsGroup : OpDocGroup {
  let summary = "Statistics over several tensors";
  let description = [{
    Rules contribute to statistics; `step.scalars` makes scalars of them, which
    rules may use, and is the only way in which one tensor's step depends on another
    tensor. All are over the model or over a group: one for each group of parameters
    that share their hyper-parameters.
  }];
}
let opDocGroup = Step_StatisticsGroup in {

def Step_StatisticOp : Step_Op<"statistic", [
    Step_InDefinition, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a sum or a maximum over all tensors";
  let description = [{
    Combines what rules contribute to it, in the order in which the tensors were
    bound, in f64. A tensor that takes no part in the step, or whose rule does
    not contribute, counts as +0.0 (`amax`: -Inf). Only `step.scalars` can read
    it.

    ```mlir
    step.optimizer @clipped {
      %max_norm = step.hyper "max_norm" = 1.0
      %norm2 = step.statistic "norm2" sum over model
      %coef = step.scalars over model {
        %one = step.constant 1.0
        %norm = step.sqrt %norm2 : f64
        %ratio = step.div %max_norm, %norm : f64
        %c = step.minimum %ratio, %one : f64
        step.report "grad_norm", %norm
        step.yield %c : f64
      }
      step.rule @any(%p: param[*], %g: grad[*]) {
        %gg = step.mul %g, %g : [*]
        %s = step.sum %gg : [*]
        step.contribute %norm2, %s
        %g1 = step.mul %g, %coef : [*], f64
        %p1 = step.sub %p, %g1 : [*]
        step.return %p1
      }
    }
    ```

    Constraints:
    - the name is not empty
    - it is a sum or an amax
  }];
  let arguments = (ins StrAttr:$name, Step_ReductionKindAttr:$kind, Step_ScopeAttr:$scope);
  let results = (outs F64:$result);
  let assemblyFormat = "$name custom<PlainKind>($kind) `over` custom<PlainScope>($scope) attr-dict";
  let hasVerifier = 1;
}

def Step_ContributeOp : Step_Op<"contribute", [ParentOneOf<["RuleOp", "ProgramOp"]>]> {
  let summary = "adds a tensor's part to a statistic";
  let description = [{
    `partial` are the sharded dims over which a rank has only a part of the value; along the
    axes of others ranks have the same. It stands in programs alone.

    Constraints:
    - the first operand is a statistic
    - only a program contributes what is partial
  }];
  let arguments = (ins F64:$statistic, F64:$value, OptionalAttr<StrArrayAttr>:$partial);
  let assemblyFormat = "$statistic `,` $value (`partial` $partial^)? attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    StatisticOp getStatisticOp();
  }];
}

def Step_ScalarOp : Step_Op<"scalar", [
    Step_InDefinition, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a scalar that is kept between steps";
  let description = [{
    Its value before the step; before the first one that which is given. A
    `step.update` sets the value from the next step on.

    ```mlir
    step.optimizer @example {
      %steps = step.scalar "steps" = 0.0 over model
      %rate = step.scalars over model {
        %one = step.constant 1.0
        %n = step.add %steps, %one : f64
        step.update %steps, %n
        %r = step.div %one, %n : f64
        step.yield %r : f64
      }
      step.rule @any(%p: param[*], %g: grad[*]) {
        %u = step.mul %g, %rate : [*], f64
        %p1 = step.sub %p, %u : [*]
        step.return %p1
      }
    }
    ```

    Constraints:
    - the name is not empty
    - the value before the first step is finite
  }];
  let arguments = (ins StrAttr:$name, F64Attr:$init, Step_ScopeAttr:$scope);
  let results = (outs F64:$result);
  let assemblyFormat = [{
    $name `=` custom<PlainFloat>($init) `over` custom<PlainScope>($scope) attr-dict
  }];
  let hasVerifier = 1;
}

def Step_ScalarsOp : Step_Op<"scalars", [
    Step_InDefinition, SingleBlock, Step_EndsInYield, NoRegionArguments,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "scalars made of statistics";
  let description = [{
    Runs once a step, for the model or for each group, when the statistics that
    it reads are complete. It sees hyper-parameters, options, statistics, kept
    scalars, and results of such operations before it, and yields values that
    rules can use. Hyper-parameters and options that are read over the model must
    be equal in all groups.

    Constraints:
    - the body holds only operations on scalars, calls, updates, reports and skips,
      and ends in step.yield
    - results are f64 or i1
    - over the model nothing is read that is of a group
    - no integer option is read
  }];
  let arguments = (ins Step_ScopeAttr:$scope, OptionalAttr<I64Attr>:$round);
  let results = (outs Variadic<AnyTypeOf<[F64, I1]>>:$values);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
}

def Step_UpdateOp : Step_Op<"update", [HasParent<"ScalarsOp">]> {
  let summary = "sets a kept scalar";
  let description = [{
    From the next step on. In a skipped step only updates with `always` count.

    Constraints:
    - the first operand is a kept scalar of the same scope
  }];
  let arguments = (ins F64:$scalar, F64:$value, UnitAttr:$always);
  let assemblyFormat = "$scalar `,` $value (`always` $always^)? attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ScalarOp getScalarOp();
  }];
}

def Step_ReportOp : Step_Op<"report", [HasParent<"ScalarsOp">]> {
  let summary = "a value that can be read after the step";
  let description = [{
    Constraints:
    - the name is not empty
  }];
  let arguments = (ins StrAttr:$name, F64:$value);
  let assemblyFormat = "$name `,` $value attr-dict";
  let hasVerifier = 1;
}

def Step_SkipIfOp : Step_Op<"skip_if", [HasParent<"ScalarsOp">]> {
  let summary = "skips the step";
  let description = [{
    Where the condition holds, the step changes no parameter, state, count or
    scalar, but for updates that say `always`.

    ```mlir
    step.optimizer @careful {
      %sum = step.statistic "sum" sum over model
      step.scalars over model {
        %finite = step.is_finite %sum : f64
        %overflow = step.not %finite : i1
        step.skip_if %overflow
        step.yield
      }
      step.rule @any(%p: param[*], %g: grad[*]) {
        %s = step.sum %g : [*]
        step.contribute %sum, %s
        %p1 = step.sub %p, %g : [*]
        step.return %p1
      }
    }
    ```

    Constraints:
    - it stands in a step.scalars over the model
  }];
  let arguments = (ins I1:$condition);
  let assemblyFormat = "$condition attr-dict";
  let hasVerifier = 1;
}

} // opDocGroup

#endif // STEP_STATISTICS_OPS
