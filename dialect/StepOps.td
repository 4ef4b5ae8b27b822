//===- StepOps.td - structure of a definition -----------------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_OPS
#define STEP_OPS

include "StepAttrs.td"
include "StepTypes.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Step_Op<string mnemonic, list<Trait> traits = []>
    : Op<Step_Dialect, mnemonic, traits>;

/// A body that ends in step.yield.
def Step_EndsInYield : NativeOpTrait<"EndsInYield"> {
  let cppNamespace = "::mlir::step";
}

/// What stands in the body of an optimizer or a fragment.
def Step_InDefinition : ParentOneOf<["OptimizerOp", "FragmentOp"]>;

//===----------------------------------------------------------------------===//
// Structure of a definition
//===----------------------------------------------------------------------===//

def Step_StructureGroup : OpDocGroup {
  let summary = "Structure of a definition";
  let description = "What is declared once, and how one tensor is updated.";
}
let opDocGroup = Step_StructureGroup in {

def Step_OptimizerOp : Step_Op<"optimizer", [
    IsolatedFromAbove, Symbol, SymbolTable, SingleBlock, NoTerminator,
    NoRegionArguments]> {
  let summary = "an optimizer";
  let description = [{
    Holds the hyper-parameters, the options and the rules of one optimizer, and
    what its rules share: statistics over several tensors, scalars that are kept
    between steps, and the scalars made of these. A hyper-parameter is a run-time
    value; an option is known when the definition is bound.

    ```mlir
    step.optimizer @sign_descent {
      %lr = step.hyper "lr" = 1.0e-3
      step.rule @any(%p: param[*], %g: grad[*]) {
        %s = step.sign %g : [*]
        %u = step.mul %s, %lr : [*], f64
        %p1 = step.sub %p, %u : [*]
        step.return %p1
      }
    }
    ```

    Constraints:
    - the body holds only hyper-parameters, options, constants, scalars,
      statistics, definitions of values and rules (from the schedule stage on:
      programs)
    - names are not empty; those of hyper-parameters, options, scalars and
      statistics are distinct, and so are those of reports
    - a scalar is updated at most once
    - a rule contributes to a statistic at most once
    - nothing that is contributed to a statistic depends on what is computed
      from that statistic
    - a call is of a `step.define` before it, with its types
    - calls and repetitions make at most 10000 operations
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword custom<Body>($body)";
  let hasRegionVerifier = 1;
}

def Step_FragmentOp : Step_Op<"fragment", [
    IsolatedFromAbove, Symbol, SymbolTable, SingleBlock, NoTerminator,
    NoRegionArguments]> {
  let summary = "what is done before or after the rules of any optimizer";
  let description = [{
    Holds what an optimizer holds, with one rule. It sees a gradient, and
    returns the gradient that the rules of the optimizer see in its place. Or it
    sees a param, the new one as it is stored, and returns the new values of
    states of its own, which every rule of the optimizer gets.
    `step-inline-fragments` puts the fragments of a module in front of its
    optimizer's rules, or behind them, in their order.

    ```mlir
    step.fragment @scale {
      %factor = step.hyper "factor" = 0.5
      step.rule @any(%g: grad[*]) {
        %g1 = step.mul %g, %factor : [*], f64
        step.return %g1
      }
    }
    step.fragment @mean_of_two {
      %half = step.constant 0.5
      step.rule @any(%p: param[*], %a: state "mean"[*] kept) {
        %s = step.add %p, %a : [*]
        %a1 = step.mul %s, %half : [*], f64
        step.return %a1
      }
    }
    ```

    Constraints:
    - those of an optimizer
    - there is exactly one rule, of one grad, or of one param and states that are
      not guarded, with dims [*], at most one count and at most one fresh, and
      without conditions
    - no rule of the optimizer has a state of the same name
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword custom<Body>($body)";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    RuleOp getRule();
  }];
}

def Step_HyperOp : Step_Op<"hyper", [
    Step_InDefinition, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a hyper-parameter";
  let description = [{
    An f64 that may change from step to step; changing it never recompiles.

    ```mlir
    step.optimizer @example {
      %lr = step.hyper "lr" = 1.0e-3
    }
    ```

    Constraints:
    - the name is not empty
    - the default is finite
  }];
  let arguments = (ins StrAttr:$name, F64Attr:$default_value);
  let results = (outs F64:$result);
  let assemblyFormat = "$name `=` custom<PlainFloat>($default_value) attr-dict";
  let hasVerifier = 1;
}

def Step_OptionOp : Step_Op<"option", [
    Step_InDefinition, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "an option, known when the definition is bound";
  let description = [{
    A boolean with a default, or derived by comparing a hyper-parameter with a
    constant. When a hyper-parameter crosses that constant at run time, another
    variant of the rule is used; nothing is compiled anew.

    Or an integer with a default, which only the conditions of rules use.

    ```mlir
    step.optimizer @example {
      %momentum = step.hyper "momentum" = 0.0
      %nesterov = step.option "nesterov" = false
      %has_momentum = step.option "has_momentum" = %momentum ne 0.0
      %min_dim = step.option "min_dim_size_to_factor" = 128
    }
    ```

    Constraints:
    - the name is not empty
    - a derived option compares a hyper-parameter
    - exactly one of a default and a comparison is given
    - the result is an i64 for an integer and an i1 otherwise
  }];
  let arguments = (ins
    StrAttr:$name,
    OptionalAttr<BoolAttr>:$default_value,
    OptionalAttr<I64Attr>:$default_integer,
    Optional<F64>:$hyper,
    OptionalAttr<Step_PredicateAttr>:$predicate,
    OptionalAttr<F64Attr>:$threshold);
  let results = (outs AnyTypeOf<[I1, I64]>:$result);
  let assemblyFormat = [{
    $name `=` custom<OptionValue>($default_value, $default_integer, $hyper,
                                  $predicate, $threshold, type($result))
    attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool isDerived() { return bool(getPredicateAttr()); }
    /// An integer is for conditions of rules; others are i1.
    bool isInteger() { return bool(getDefaultIntegerAttr()); }
  }];
}

def Step_RuleOp : Step_Op<"rule", [
    Step_InDefinition, Symbol, SingleBlock, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "how one tensor is updated";
  let description = [{
    A function of one parameter, its gradient and its states, which returns the
    new parameter and the new states in the order in which they are declared, and
    may contribute to statistics. The arguments' roles give their types.

    A parameter takes the first rule that its shape fits and whose conditions,
    after `where`, all hold:

        where rank ge 2, extent -1 ge %min_dim, extent 0 lt 512, %factored, not %flat
        where extent -2 gt extent -1

    An extent is that of the dim at an index, from the end where it is negative;
    the condition does not hold where there is no such dim. The right side is an
    integer, an integer option or an extent. A shape fits `[*]` always, `[n, m]` with two
    dims, `[n, n]` with two equal ones, `[...b, n, m]` with two or more.

    Dims of states, besides those of the param, may follow from these: `r` is the least
    of an integer option and two extents, `k` the number of blocks of 64 along `m`.

        dim r = min %rank, n, m
        dim k = m / 64

    They stand before the conditions. A quotient is rounded up. Such a state reaches the
    param by products (`step.matmul`).

    A guarded state exists only where the guarding option holds; the value
    returned for it is dropped elsewhere. `count` is the number of the step that
    is being taken, 1 in a tensor's first.

    `fresh` holds in the step that creates a state of the rule, whatever the
    count: where the tensor had none of them, and where it had some and lacked
    others, as when a state is given by hand, an option that guards one has come
    to hold, or a checkpoint lacks one. `fresh("sum")` speaks of the named states
    alone: what is begun by it is begun once, and what was given beside it is
    left alone. States of fragments and the `master` of a parameter are not the
    rule's; a fragment's `fresh` speaks of the fragment's own, or, where it has
    none, of the rule's. Of a tensor that has all of them, from a checkpoint too,
    it never holds. Where none of the states exists, it holds in the tensor's
    first step. A step that is skipped creates nothing: it holds in the next.

    Arguments are written, in any order,

        %p: param[n, m]
        %g: grad[n, m]
        %s: state "name"[n, 1] = 0.5 if %option
        %t: count
        %f: fresh("name")

    where `= 0.5`, the initial value, is 0.0 if it is left out, and `if` with the
    guard may be left out. A state that influences neither the param nor a
    statistic, itself or by a `fresh` that speaks of it, is dropped, unless `kept`
    stands before the guard: then it is for whoever uses the optimizer, as an
    average of the parameters. Where `given` stands there it is from whoever uses
    the optimizer, as an estimate of the Hessian: the rule reads it, and returns
    no value for it. In a bound rule `as bf16`, the storage type,
    follows each tensor.

    ```mlir
    step.optimizer @heavy_ball {
      %lr = step.hyper "lr" = 1.0e-3
      %momentum = step.hyper "momentum" = 0.9
      %has_momentum = step.option "has_momentum" = %momentum ne 0.0
      step.rule @any(%p: param[*], %g: grad[*],
                     %b: state "momentum_buffer"[*] = 0.0 if %has_momentum) {
        %bm = step.mul %b, %momentum : [*], f64
        %b1 = step.add %bm, %g : [*]
        %d = step.select %has_momentum, %b1, %g : [*]
        %u = step.mul %d, %lr : [*], f64
        %p1 = step.sub %p, %u : [*]
        step.return %p1, %b1
      }
    }
    ```

    Constraints:
    - there is exactly one param and exactly one grad, with equal dims
    - there is at most one count, at most one fresh that names no states and at
      most 64 in all
    - a fresh names states of the rule
    - names of states are not empty and distinct
    - dims of a state are dims of the param, dims that follow from these, or 1
    - a dim that follows from others has a name of its own, and they are single dims
      of the param
    - at most three dims follow from others
    - an option among what a dim is the least of is an integer option
    - no state of a fragment is given
    - a guard is an option
    - a condition compares with an integer option, or is an option that is not
      derived
    - roles agree with the arguments' types
    - the body ends in step.return
  }];
  let arguments = (ins
    SymbolNameAttr:$sym_name,
    Variadic<I1>:$guards,
    Variadic<AnyTypeOf<[I1, I64]>>:$condition_operands,
    Variadic<I64>:$dim_operands,
    OptionalAttr<Step_BoundDimArrayAttr>:$bound_dims,
    Step_RoleArrayAttr:$roles,
    OptionalAttr<Step_ConditionArrayAttr>:$conditions,
    OptionalAttr<Step_VariantAttr>:$variant);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    RoleAttr getRole(unsigned index) {
      return cast<RoleAttr>(getRoles()[index]);
    }
    /// Indices of the arguments whose new values are returned, in order.
    SmallVector<unsigned> getReturnedArguments();
    /// The guard of argument `index`; null if it has none.
    Value getGuard(unsigned index);
    /// What a parameter must satisfy, besides that its shape fits.
    SmallVector<RuleCondition> getRuleConditions();
    /// Dims whose extents follow from those of the param.
    SmallVector<BoundDim> getRuleDims();
    /// Whether the param has the dim, or the rule says what it is.
    bool hasDim(StringAttr dim);
    /// Replaces the conditions.
    void setRuleConditions(ArrayRef<RuleCondition> conditions);
    /// True for the rule of a fragment, which returns a gradient.
    bool isOfFragment() { return isa_and_nonnull<FragmentOp>((*this)->getParentOp()); }

    /// The new value of the param.
    ::mlir::Value getReturnedParam();

    /// Whether this is of a fragment that sees the new param: it stands behind
    /// the optimizer's rules, others before them.
    bool comesAfter();
    /// The argument of the kind; null if there is none. Of freshes there may be
    /// several.
    BlockArgument getArgumentOfKind(RoleKind kind);
    /// Adds one of that role, behind the others.
    BlockArgument addArgument(RoleAttr role, Type type);
    SmallVector<BlockArgument> getFreshes();
    /// The names of the states that it declares.
    ArrayAttr getStateNames();
    /// Names the rule's states for the fresh that speaks of all, before the rule
    /// gets states that others declared.
    void nameFreshStates();
    /// True once the rule is bound: a variant with storage types.
    bool isBound() { return bool(getVariantAttr()); }
    ReturnOp getReturn();
  }];
}

def Step_DefineOp : Step_Op<"define", [
    Step_InDefinition, Symbol, SingleBlock, Step_EndsInYield]> {
  let summary = "values that are made alike in several places";
  let description = [{
    Scalars and tensors made of others, written once for all rules and
    `step.scalars` that need them. Each `step.call` means what it would if the
    operations stood in its place, and `step-inline-calls` puts them there.
    Besides its arguments it sees hyper-parameters, options and constants. Dims
    of tensors are those of the rule that calls it, by their names.

    ```mlir
    step.optimizer @example {
      %lr = step.hyper "lr" = 1.0e-3
      %one = step.constant 1.0
      step.define @decaying(%t: i64) {
        %number = step.to_f64 %t
        %root = step.sqrt %number : f64
        %rate = step.div %lr, %root : f64
        step.yield %rate : f64
      }
      step.rule @vector(%p: param[n], %g: grad[n], %t: count) {
        %rate = step.call @decaying(%t) : (i64) -> f64
        %u = step.mul %g, %rate : [n], f64
        %p1 = step.sub %p, %u : [n]
        step.return %p1 : [n]
      }
      step.rule @any(%p: param[*], %g: grad[*], %t: count) {
        %rate = step.call @decaying(%t) : (i64) -> f64
        %s = step.sign %g : [*]
        %u = step.mul %s, %rate : [*], f64
        %p1 = step.sub %p, %u : [*]
        step.return %p1
      }
    }
    ```

    Constraints:
    - the name is not empty, and no rule's
    - arguments are tensors, f64, i1 or i64
    - the body holds only operations that compute a value, none of them
      `reassociable`, calls and repetitions, and ends in a step.yield of at least
      one tensor, f64 or i1
    - what is read from outside is a hyper-parameter, a constant, or an option
      that is no integer
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
}

def Step_CallOp : Step_Op<"call", [
    Pure, ParentOneOf<["RuleOp", "ScalarsOp", "DefineOp", "RepeatOp", "WhenOp"]>]> {
  let summary = "values that a step.define makes";
  let description = [{
    The types are those of the arguments and of what is yielded. A tensor that it
    gives is not returned by a rule as it is: what a rule stores, an operation of
    the rule makes.

    Constraints:
    - the `step.define` stands before it, in the same optimizer or fragment; so
      none calls itself
    - arguments and results have its types
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee,
                       Variadic<AnyTypeOf<[Step_TensorType, F64, I1, I64]>>:$arguments);
  let results = (outs Variadic<AnyTypeOf<[Step_TensorType, F64, I1]>>:$values);
  let assemblyFormat = [{
    $callee `(` $arguments `)` attr-dict `:`
    custom<ShortSignature>(type($arguments), type($values))
  }];
  let extraClassDeclaration = [{
    /// What is called, in the definition that this stands in.
    DefineOp getDefinition();
  }];
}

def Step_RepeatOp : Step_Op<"repeat", [
    Pure, SingleBlock, Step_EndsInYield,
    ParentOneOf<["RuleOp", "DefineOp", "RepeatOp", "WhenOp"]>]> {
  let summary = "values that become others, again and again";
  let description = [{
    As often as the number says the body makes new values of the ones before; the first are
    given, and the last are the results. It means what the operations would if they stood there
    that often, and `step-unroll-repeats` puts them there. The body sees what stands before it.
    A tensor that it gives is not returned by a rule as it is, as with `step.call`.

    ```mlir
    step.optimizer @example {
      %half = step.constant 0.5
      step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
        %gt = step.transpose %g : [n, m]
        %gram = step.matmul %g, %gt : [n, m], [m, n]
        %x = step.repeat 3 (%a: [n, m] = %g) {
          %u = step.matmul %gram, %a : [n, n], [n, m]
          %next = step.mul %u, %half : [n, m], f64
          step.yield %next : [n, m]
        }
        %p1 = step.sub %p, %x : [n, m]
        step.return %p1 : [n, m]
      }
    }
    ```

    Constraints:
    - the number is not negative, and there is a value
    - the body holds only operations that compute a value, none of them `reassociable`,
      calls and repetitions, and ends in a step.yield of the values' types
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$times,
                       Variadic<AnyTypeOf<[Step_TensorType, F64, I1]>>:$inits);
  let results = (outs Variadic<AnyTypeOf<[Step_TensorType, F64, I1]>>:$values);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
}

def Step_WhenOp : Step_Op<"when", [
    Pure, SingleBlock, Step_EndsInYield, HasParent<"RuleOp">]> {
  let summary = "values that are new in some steps";
  let description = [{
    Where the condition holds what the body yields, else the values that are given. The
    condition is the same for all tensors of a group and count: it is known before the step.

    Products, transposes and decompositions that only the body needs are not made where it does
    not hold. Other operations of it may be; they are worth little beside these. So passes make
    `step.select` of it (`step-flatten-whens`), and leave out what no select takes
    (`step-skip-products`).

    ```mlir
    step.optimizer @example {
      %gap = step.hyper "gap" = 10.0
      step.rule @matrix(%p: param[n, m], %g: grad[n, m], %q: state "basis"[n, n],
                        %t: count) {
        %due = step.every %gap, %t
        %q1 = step.when %due, %q : [n, n] {
          %gt = step.transpose %g : [n, m]
          %gram = step.matmul %g, %gt {accumulate = f64} : [n, m], [m, n]
          %new = step.eigh %gram : [n, n]
          step.yield %new : [n, n]
        }
        %u = step.matmul %q1, %g : [n, n], [n, m]
        %p1 = step.sub %p, %u : [n, m]
        step.return %p1, %q1 : [n, m], [n, n]
      }
    }
    ```

    Constraints:
    - the condition is made of counts, fresh flags, hyper-parameters, options and constants,
      by calls too
    - there is a value
    - the body holds only operations that compute a value, none of them `reassociable`,
      calls and repetitions, and ends in a step.yield of the values' types
  }];
  let arguments = (ins I1:$condition, Variadic<AnyTypeOf<[Step_TensorType, F64]>>:$old);
  let results = (outs Variadic<AnyTypeOf<[Step_TensorType, F64]>>:$values);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
}

def Step_ReturnOp : Step_Op<"return", [Terminator, HasParent<"RuleOp">]> {
  let summary = "ends a rule";
  let description = [{
    Gives the new values; of a fragment the new gradient, or those of its states. Their types follow
    after a colon, unless all are `[*]`.

    ```mlir
    step.optimizer @example {
      step.rule @matrix(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1]) {
        step.return %p, %r : [n, m], [n, 1]
      }
    }
    ```

    Constraints:
    - one operand for the param and for each state, in the order in which the
      rule declares them; of a fragment one for the grad
    - none is what a `step.call` or a `step.repeat` gives
    - types of the operands are those of the arguments
  }];
  let arguments = (ins Variadic<Step_TensorType>:$values);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Step_YieldOp : Step_Op<"yield", [
    Pure, Terminator, ParentOneOf<["ScalarsOp", "DefineOp", "RepeatOp", "WhenOp",
                                   "CohortScalarsOp", "TraverseOp"]>]> {
  let summary = "ends a body that gives values";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` custom<EachShortType>(type($values)))? attr-dict";
}

} // opDocGroup

#endif // STEP_OPS
