//===- StepOps.td - operations of a definition ----------------*- tablegen -*-===//
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
    Holds the hyper-parameters, the options and the rules of one optimizer.
    A hyper-parameter is a run-time value; an option is known when the
    definition is bound.

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
    - the body holds only hyper-parameters, options, constants and rules (from
      the schedule stage on: programs)
    - names are not empty, those of hyper-parameters and options distinct
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

def Step_HyperOp : Step_Op<"hyper", [
    HasParent<"OptimizerOp">, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
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
    HasParent<"OptimizerOp">, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "an option, known when the definition is bound";
  let description = [{
    Either a boolean with a default, or derived by comparing a hyper-parameter
    with a constant. When a hyper-parameter crosses that constant at run time,
    another variant of the rule is used; nothing is compiled anew.

    ```mlir
    step.optimizer @example {
      %momentum = step.hyper "momentum" = 0.0
      %nesterov = step.option "nesterov" = false
      %has_momentum = step.option "has_momentum" = %momentum ne 0.0
    }
    ```

    Constraints:
    - the name is not empty
    - a derived option compares a hyper-parameter
    - exactly one of a default and a comparison is given
  }];
  let arguments = (ins
    StrAttr:$name,
    OptionalAttr<BoolAttr>:$default_value,
    Optional<F64>:$hyper,
    OptionalAttr<Step_PredicateAttr>:$predicate,
    OptionalAttr<F64Attr>:$threshold);
  let results = (outs I1:$result);
  let assemblyFormat = [{
    $name `=` custom<OptionValue>($default_value, $hyper, $predicate, $threshold)
    attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool isDerived() { return bool(getPredicateAttr()); }
  }];
}

def Step_RuleOp : Step_Op<"rule", [
    HasParent<"OptimizerOp">, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "how one tensor is updated";
  let description = [{
    A pure function of one parameter, its gradient and its states, which returns
    the new parameter and the new states in the order in which they are
    declared. The arguments' roles give their types.

    A guarded state exists only where the guarding option holds; the value
    returned for it is dropped elsewhere. `count` is the number of the step that
    is being taken, 1 in a tensor's first. `fresh` holds in the step that
    creates the tensor's states, whatever the count.

    Arguments are written, in any order,

        %p: param[n, m]
        %g: grad[n, m]
        %s: state "name"[n, 1] = 0.5 if %option
        %t: count
        %f: fresh

    where `= 0.5`, the initial value, is 0.0 if it is left out, and `if` with the
    guard may be left out. In a bound rule `as bf16`, the storage type, follows
    each tensor.

    ```mlir
    step.optimizer @heavy_ball {
      %lr = step.hyper "lr" = 1.0e-3
      %momentum = step.hyper "momentum" = 0.9
      %has_momentum = step.option "has_momentum" = %momentum ne 0.0
      step.rule @any(%p: param[*], %g: grad[*],
                     %b: state "momentum_buffer"[*] = 0.0 if %has_momentum) {
        %bm = step.mul %b, %momentum : [*], f64
        %b1 = step.add %bm, %g : [*]
        %d = step.select %has_momentum, %b1, %g : i1, [*], [*]
        %u = step.mul %d, %lr : [*], f64
        %p1 = step.sub %p, %u : [*]
        step.return %p1, %b1
      }
    }
    ```

    Constraints:
    - there is exactly one param and exactly one grad, with equal dims
    - there is at most one count and at most one fresh
    - names of states are not empty and distinct
    - dims of a state are dims of the param, or 1
    - a guard is an option
    - roles agree with the arguments' types
    - the body ends in step.return
  }];
  let arguments = (ins
    SymbolNameAttr:$sym_name,
    Variadic<I1>:$guards,
    Step_RoleArrayAttr:$roles,
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
    /// The argument of the kind; null if there is none.
    BlockArgument getArgumentOfKind(RoleKind kind);
    /// True once the rule is bound: a variant with storage types.
    bool isBound() { return bool(getVariantAttr()); }
    ReturnOp getReturn();
  }];
}

def Step_ReturnOp : Step_Op<"return", [Terminator, HasParent<"RuleOp">]> {
  let summary = "ends a rule";
  let description = [{
    Gives the new values. Their types follow after a colon, unless all are `[*]`.

    ```mlir
    step.optimizer @example {
      step.rule @matrix(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1]) {
        step.return %p, %r : [n, m], [n, 1]
      }
    }
    ```

    Constraints:
    - one operand for the param and for each state, in the order in which the
      rule declares them
    - types of the operands are those of the arguments
  }];
  let arguments = (ins Variadic<Step_TensorType>:$values);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

} // opDocGroup

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

def Step_ValueGroup : OpDocGroup {
  let summary = "Values";
  let description = [{
    Tensors are worked on element by element. Operands broadcast: a scalar goes with
    anything, and a dim of 1 with any other in its place; ranks must agree. The
    result's type is inferred. Operations write the types of their operands, or
    one type where all are the same.
  }];
}
let opDocGroup = Step_ValueGroup in {

def Step_ConstantOp : Step_Op<"constant", [
    Pure, ConstantLike, AllTypesMatch<["value", "result"]>]> {
  let summary = "a constant scalar";
  let description = [{
    An f64 or a boolean. A float is written with a point, or as its bits.

    ```mlir
    step.optimizer @example {
      %half = step.constant 0.5
      %yes = step.constant true
    }
    ```
  }];
  let arguments = (ins TypedAttrInterface:$value);
  let results = (outs AnyTypeOf<[F64, I1]>:$result);
  let assemblyFormat = "custom<PlainScalar>($value) attr-dict";
  let builders = [OpBuilder<(ins "double":$value), [{
    build($_builder, $_state, $_builder.getF64FloatAttr(value));
  }]>];
  let hasFolder = 1;
  let hasVerifier = 1;
}

/// Operations that work element by element and broadcast.
class Step_ElementwiseOp<string mnemonic, list<Trait> traits = []>
    : Step_Op<mnemonic, traits # [
        Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let hasFolder = 1;
}

class Step_UnaryOp<string mnemonic, string what> : Step_ElementwiseOp<mnemonic> {
  let summary = what;
  let arguments = (ins Step_Value:$operand);
  let results = (outs Step_Value:$result);
  let assemblyFormat = "$operand attr-dict `:` custom<ShortType>(type($operand))";
}

class Step_BinaryOp<string mnemonic, string what, list<Trait> traits = []>
    : Step_ElementwiseOp<mnemonic, traits> {
  let summary = what;
  let arguments = (ins Step_Value:$lhs, Step_Value:$rhs);
  let results = (outs Step_Value:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs attr-dict `:` custom<ShortTypes>(type($lhs), type($rhs))
  }];
}

def Step_NegOp : Step_UnaryOp<"neg", "the value with the other sign"> {
  let description = "Flips the sign bit, of NaN too.";
}
def Step_AbsOp : Step_UnaryOp<"abs", "the magnitude"> {
  let description = "Clears the sign bit, of NaN too.";
}
def Step_SqrtOp : Step_UnaryOp<"sqrt", "the square root, correctly rounded"> {
  let description = "IEEE 754 squareRoot: NaN below zero, -0 of -0.";
}
def Step_SignOp : Step_UnaryOp<"sign", "-1, 1, or the operand where it is zero or NaN"> {
  let description = [{
    `sign(x)` is 1 for x > 0, -1 for x < 0, and x itself for +0, -0 and NaN.
  }];
}

def Step_AddOp : Step_BinaryOp<"add", "the sum"> {
  let description = [{
    Operands broadcast: a scalar with anything, tensors where a dim is 1.

    ```mlir
    step.optimizer @example {
      %lr = step.hyper "lr" = 1.0e-3
      step.rule @any(%p: param[*], %g: grad[*]) {
        %twice = step.add %g, %g : [*]
        %shifted = step.add %twice, %lr : [*], f64
        step.return %shifted
      }
    }
    ```
  }];
}
def Step_SubOp : Step_BinaryOp<"sub", "the difference"> {
  let description = "`lhs - rhs`, rounded once.";
}
def Step_MulOp : Step_BinaryOp<"mul", "the product"> {
  let description = "`lhs * rhs`, rounded once.";
}
def Step_DivOp : Step_BinaryOp<"div", "the quotient"> {
  let description = [{
    `lhs / rhs`, rounded once; never a multiplication by a reciprocal.
  }];
}
def Step_MaximumOp : Step_BinaryOp<"maximum", "the larger value"> {
  let description = "IEEE 754-2019 maximum: NaN if either is NaN, and +0 > -0.";
}
def Step_MinimumOp : Step_BinaryOp<"minimum", "the smaller value"> {
  let description = "IEEE 754-2019 minimum: NaN if either is NaN, and -0 < +0.";
}

def Step_LerpOp : Step_ElementwiseOp<"lerp"> {
  let summary = "linear interpolation";
  let description = [{
    `start + weight * (end - start)`, each of the three operations rounded.
  }];
  let arguments = (ins Step_Value:$start, Step_Value:$end, Step_Value:$weight);
  let results = (outs Step_Value:$result);
  let assemblyFormat = [{
    $start `,` $end `,` $weight attr-dict `:`
    custom<ShortTypes>(type($start), type($end), type($weight))
  }];
}

def Step_CompareOp : Step_ElementwiseOp<"compare"> {
  let summary = "compares values";
  let description = [{
    Predicates `lt, le, gt, ge, eq` are false where an operand is NaN; `ne` is
    true there. The result is an i1 for scalars and a mask otherwise.

    ```mlir
    step.optimizer @example {
      %eps = step.hyper "eps" = 1.0e-8
      step.rule @any(%p: param[*], %g: grad[*]) {
        %small = step.compare lt, %g, %eps : [*], f64
        %p1 = step.select %small, %p, %g : mask[*], [*], [*]
        step.return %p1
      }
    }
    ```
  }];
  let arguments = (ins Step_PredicateAttr:$predicate, Step_Value:$lhs,
                       Step_Value:$rhs);
  let results = (outs Step_Condition:$result);
  let assemblyFormat = [{
    custom<PlainPredicate>($predicate) `,` $lhs `,` $rhs attr-dict `:`
    custom<ShortTypes>(type($lhs), type($rhs))
  }];
}

def Step_SelectOp : Step_ElementwiseOp<"select"> {
  let summary = "one of two values";
  let description = [{
    Where the condition holds the second operand, elsewhere the third. An option
    as the condition is decided when the definition is bound, and the other
    operand is not computed at all.

    ```mlir
    step.optimizer @example {
      %maximize = step.option "maximize" = false
      step.rule @any(%p: param[*], %g: grad[*]) {
        %ascent = step.neg %g : [*]
        %d = step.select %maximize, %ascent, %g : i1, [*], [*]
        %p1 = step.sub %p, %d : [*]
        step.return %p1
      }
    }
    ```
  }];
  let arguments = (ins Step_Condition:$condition, Step_Value:$true_value,
                       Step_Value:$false_value);
  let results = (outs Step_Value:$result);
  let assemblyFormat = [{
    $condition `,` $true_value `,` $false_value attr-dict `:`
    custom<ShortTypes>(type($condition), type($true_value), type($false_value))
  }];
}

def Step_PowiOp : Step_Op<"powi", [Pure]> {
  let summary = "a scalar to an integer power";
  let description = [{
    By squaring, from the lowest bit of the exponent up, each product rounded:

        result = 1; factor = base
        for n = |exponent|; n != 0; n >>= 1:
          if n is odd: result = result * factor
          factor = factor * factor
        if exponent < 0: result = 1 / result

    so the value does not depend on a mathematical library.

    ```mlir
    step.optimizer @example {
      %beta = step.hyper "beta" = 0.9
      step.rule @any(%p: param[*], %g: grad[*], %t: count) {
        %beta_t = step.powi %beta, %t
        %p1 = step.mul %p, %beta_t : [*], f64
        step.return %p1
      }
    }
    ```
  }];
  let arguments = (ins F64:$base, I64:$exponent);
  let results = (outs F64:$result);
  let assemblyFormat = "$base `,` $exponent attr-dict";
}

def Step_PowOp : Step_Op<"pow", [Pure]> {
  let summary = "a scalar to a real power";
  let description = [{
    Less than 0.51 units in the last place from the exact power, 0.76 where the
    result is denormal; special operands as in IEEE 754's pow. What is computed
    is fixed, with nothing but sums, products and quotients of doubles and
    operations on their bits (`dialect/reference/Pow.cpp`), so the value does
    not depend on a mathematical library.

    ```mlir
    step.optimizer @example {
      %decay_rate = step.hyper "decay_rate" = -0.8
      step.rule @any(%p: param[*], %g: grad[*], %t: count) {
        %number = step.to_f64 %t
        %w = step.pow %number, %decay_rate
        %p1 = step.mul %p, %w : [*], f64
        step.return %p1
      }
    }
    ```
  }];
  let arguments = (ins F64:$base, F64:$exponent);
  let results = (outs F64:$result);
  let assemblyFormat = "$base `,` $exponent attr-dict";
}

def Step_ToF64Op : Step_Op<"to_f64", [Pure]> {
  let summary = "a count as a number";
  let description = "To nearest, ties to even; exact up to 2^53.";
  let arguments = (ins I64:$operand);
  let results = (outs F64:$result);
  let assemblyFormat = "$operand attr-dict";
}

} // opDocGroup

//===----------------------------------------------------------------------===//
// Operations that passes insert
//===----------------------------------------------------------------------===//

def Step_InsertedGroup : OpDocGroup {
  let summary = "Operations that passes insert into rules";
  let description = "No definition needs to write them.";
}
let opDocGroup = Step_InsertedGroup in {

def Step_StoredOp : Step_Op<"stored", [
    Pure, HasParent<"RuleOp">, AllTypesMatch<["operand", "result"]>]> {
  let summary = "a value in the storage type of what it becomes";
  let description = [{
    Marks the place where the new value of a parameter or state is rounded to
    its storage type, which only the binding knows. `roles` are indices of the
    rule's arguments. Inserted by `step-mark-stored` in the define stage, so
    that folds and CSE cannot merge a rounded value with an unrounded one;
    binding turns it into `step.round` or nothing.

    Constraints:
    - roles are indices of the rule's param and states, at least one
  }];
  let arguments = (ins Step_TensorType:$operand, DenseI64ArrayAttr:$roles);
  let results = (outs Step_TensorType:$result);
  let assemblyFormat = [{
    $operand `as` $roles attr-dict `:` custom<ShortType>(type($operand))
  }];
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Step_BroadcastOp : Step_Op<"broadcast", [Pure, HasParent<"RuleOp">]> {
  let summary = "a value in a larger shape";
  let description = [{
    Inserted where an option decides a select whose chosen operand has a smaller
    shape than the result.

    Constraints:
    - the operand broadcasts to the result
  }];
  let arguments = (ins Step_Value:$operand);
  let results = (outs Step_TensorType:$result);
  let assemblyFormat = [{
    $operand attr-dict `:` custom<ShortType>(type($operand)) `to`
    custom<ShortType>(type($result))
  }];
  let hasVerifier = 1;
}

def Step_RoundOp : Step_Op<"round", [
    Pure, HasParent<"RuleOp">, AllTypesMatch<["operand", "result"]>]> {
  let summary = "rounds to a storage type, keeping the compute type";
  let description = [{
    To nearest, ties to even. Inserted by binding.

    Constraints:
    - the storage type is f32 or bf16
  }];
  let arguments = (ins Step_TensorType:$operand, TypeAttr:$storage);
  let results = (outs Step_TensorType:$result);
  let assemblyFormat = [{
    $operand `to` $storage attr-dict `:` custom<ShortType>(type($operand))
  }];
  let hasVerifier = 1;
}
} // opDocGroup

#endif // STEP_OPS
