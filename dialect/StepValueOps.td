//===- StepValueOps.td - operations on values -------------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_VALUE_OPS
#define STEP_VALUE_OPS

include "StepInterfaces.td"
include "StepOps.td"

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

def Step_ValueGroup : OpDocGroup {
  let summary = "Values";
  let description = [{
    Tensors are worked on element by element. Operands broadcast: a scalar goes with
    anything, and a dim of 1 with any other in its place; ranks must agree. The
    result's type is inferred. Operations write the types of their operands, or
    one type where all are the same; a select that of its condition only where it is
    a mask.
  }];
}
/// What has no instruction. It stays one operation in programs and is expanded when
/// these are lowered, functions when bodies are made of vectors: on every target alike.
def Step_Expanded : NativeOpTrait<"ExpandedInBodies"> {
  let cppNamespace = "::mlir::step";
}

let opDocGroup = Step_ValueGroup in {

/// What a rule computes values by.
class Step_ValueOp<string mnemonic, list<Trait> traits = []>
    : Step_Op<mnemonic, traits # [
        Pure, DeclareOpInterfaceMethods<Step_ValueOpInterface>]>;

def Step_ConstantOp : Step_ValueOp<"constant", [
    ConstantLike, AllTypesMatch<["value", "result"]>]> {
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
class Step_ElementwiseOp<string mnemonic, list<Trait> traits = [],
                         string infer = "inferValue">
    : Step_ValueOp<mnemonic, traits # [
        DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let hasFolder = 1;
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::inferReturnTypes(
        ::mlir::MLIRContext *context, ::std::optional<::mlir::Location> loc,
        ::mlir::ValueRange operands, ::mlir::DictionaryAttr, ::mlir::OpaqueProperties,
        ::mlir::RegionRange, ::llvm::SmallVectorImpl<::mlir::Type> &results) {
      return ::mlir::step::}] # infer # [{(context, loc, operands.getTypes(), results);
    }
  }];
}

/// Of conditions: the result is a mask, or an i1.
class Step_ConditionOp<string mnemonic>
    : Step_ElementwiseOp<mnemonic, [], "inferCondition">;

class Step_UnaryOp<string mnemonic, string what, list<Trait> traits = [],
                   Constraint type = Step_Value>
    : Step_ElementwiseOp<mnemonic, traits> {
  let summary = what;
  let arguments = (ins type:$operand);
  let results = (outs type:$result);
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

def Step_FloorOp : Step_UnaryOp<"floor", "the largest integer that is not above"> {
  let description = "Exact. Zeros, infinities and NaN stay as they are.";
}

def Step_RoundOp : Step_ValueOp<"round", [AllTypesMatch<["operand", "result"]>]> {
  let summary = "the nearest value of a narrower type, in the compute type";
  let description = [{
    Ties go to even, what is too large becomes infinite. What is computed in f64 is rounded to
    f32 before. Binding inserts it where a value is stored; a definition writes it where its
    algorithm computes in a narrow type.

    ```mlir
    step.optimizer @example {
      %lr = step.hyper "lr" = 1.0e-3
      step.rule @any(%p: param[*], %g: grad[*]) {
        %short = step.round %g to bf16 : [*]
        %u = step.mul %short, %lr : [*], f64
        %p1 = step.sub %p, %u : [*]
        step.return %p1
      }
    }
    ```

    Constraints:
    - the type is f32, bf16 or f16
  }];
  let arguments = (ins Step_TensorType:$operand, TypeAttr:$storage);
  let results = (outs Step_TensorType:$result);
  let assemblyFormat = [{
    $operand `to` $storage attr-dict `:` custom<ShortType>(type($operand))
  }];
  let hasVerifier = 1;
}

def Step_ExpOp : Step_UnaryOp<"exp", "e to the power of the value", [Step_Expanded],
                              Step_Operand> {
  let description = [{
    Less than one unit in the last place from the exact value in f64, and less than
    0.501 in f32. Special operands as in
    IEEE 754: 1 of zeros, 0 of -Inf, Inf of what is too large. What is computed is fixed,
    with nothing but sums, products and quotients of doubles and operations on their
    bits (`dialect/Functions.h`), so the value does not depend on a mathematical
    library.

    ```mlir
    step.optimizer @example {
      step.rule @any(%p: param[*], %g: grad[*]) {
        %size = step.abs %g : [*]
        %opposite = step.neg %size : [*]
        %damp = step.exp %opposite : [*]
        %u = step.mul %g, %damp : [*]
        %p1 = step.sub %p, %u : [*]
        step.return %p1
      }
    }
    ```
  }];
}
def Step_LogOp : Step_UnaryOp<"log", "the natural logarithm", [Step_Expanded],
                              Step_Operand> {
  let description = [{
    Less than one unit in the last place from the exact value in f64, and less than
    0.501 in f32. Special operands as in IEEE 754: -Inf of zeros, NaN below zero. What is
    computed is fixed, as that of `step.exp` is.

    ```mlir
    step.optimizer @example {
      %one = step.constant 1.0
      step.rule @any(%p: param[*], %g: grad[*]) {
        %size = step.abs %g : [*]
        %above = step.add %size, %one : [*], f64
        %u = step.log %above : [*]
        %p1 = step.sub %p, %u : [*]
        step.return %p1
      }
    }
    ```
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

def Step_LerpOp : Step_ElementwiseOp<"lerp", [Step_Expanded]> {
  let summary = "linear interpolation";
  let description = [{
    From the end that is nearer: where `weight < 0.5`
    `start + weight * (end - start)`, else `end + (weight - 1) * (end - start)`, each
    operation rounded. So a weight of 0 is `start`, one of 1 is `end`, and equal ends are
    kept. For weights from 0 to 1 it is `torch.lerp`. Where an end, or their difference, is
    infinite, it is NaN, as there: a mean of what may overflow, as of squares, is two products
    and a sum.
  }];
  let arguments = (ins Step_Operand:$start, Step_Operand:$end, Step_Operand:$weight);
  let results = (outs Step_Operand:$result);
  let assemblyFormat = [{
    $start `,` $end `,` $weight attr-dict `:`
    custom<ShortTypes>(type($start), type($end), type($weight))
  }];
}

def Step_CompareOp : Step_ConditionOp<"compare"> {
  let summary = "compares values";
  let description = [{
    Predicates `lt, le, gt, ge, eq` are false where an operand is NaN; `ne` is
    true there. The result is an i1 for scalars and a mask otherwise.

    ```mlir
    step.optimizer @example {
      %eps = step.hyper "eps" = 1.0e-8
      step.rule @any(%p: param[*], %g: grad[*]) {
        %small = step.compare lt, %g, %eps : [*], f64
        %p1 = step.select %small, %p, %g : mask[*], [*]
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

    Types are those of the two values, or one where they are the same. The type of
    the condition stands before them where it is a mask, and is left out where it is
    an i1.

    ```mlir
    step.optimizer @example {
      %maximize = step.option "maximize" = false
      step.rule @any(%p: param[*], %g: grad[*]) {
        %ascent = step.neg %g : [*]
        %d = step.select %maximize, %ascent, %g : [*]
        %low = step.compare lt, %d, %p : [*]
        %u = step.select %low, %p, %d : mask[*], [*]
        %p1 = step.sub %p, %u : [*]
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
    custom<SelectTypes>(type($condition), type($true_value), type($false_value))
  }];
}

/// Operations on conditions, which broadcast as values do.
class Step_LogicalOp<string mnemonic, string what>
    : Step_ConditionOp<mnemonic> {
  let summary = what;
  let arguments = (ins Step_Condition:$lhs, Step_Condition:$rhs);
  let results = (outs Step_Condition:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs attr-dict `:` custom<ShortTypes>(type($lhs), type($rhs))
  }];
}

def Step_AndOp : Step_LogicalOp<"and", "whether both conditions hold"> {
  let description = [{
    An i1 goes with anything; the result is an i1 for two of them and a mask
    otherwise.

    ```mlir
    step.optimizer @example {
      %low = step.hyper "low" = -1.0
      %high = step.hyper "high" = 1.0
      step.rule @any(%p: param[*], %g: grad[*]) {
        %above = step.compare ge, %g, %low : [*], f64
        %below = step.compare le, %g, %high : [*], f64
        %inside = step.and %above, %below : mask[*]
        %p1 = step.select %inside, %g, %p : mask[*], [*]
        step.return %p1
      }
    }
    ```
  }];
}
def Step_OrOp : Step_LogicalOp<"or", "whether either condition holds"> {
  let description = "An i1 goes with anything, as in `step.and`.";
}
def Step_NotOp : Step_ConditionOp<"not"> {
  let summary = "whether the condition does not hold";
  let description = "The other value of each element.";
  let arguments = (ins Step_Condition:$operand);
  let results = (outs Step_Condition:$result);
  let assemblyFormat = "$operand attr-dict `:` custom<ShortType>(type($operand))";
}
def Step_IsFiniteOp : Step_ConditionOp<"is_finite"> {
  let summary = "whether a value is neither infinite nor NaN";
  let description = "An i1 for a scalar and a mask for a tensor.";
  let arguments = (ins Step_Value:$operand);
  let results = (outs Step_Condition:$result);
  let assemblyFormat = "$operand attr-dict `:` custom<ShortType>(type($operand))";
}

def Step_PowiOp : Step_ValueOp<"powi"> {
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

def Step_PowOp : Step_ElementwiseOp<"pow", [Step_Expanded]> {
  let summary = "a value to a real power";
  let description = [{
    In f64, as scalars are, less than 0.51 units in the last place from the exact power,
    0.76 where the result is denormal; in f32 less than 0.501. Special operands as in IEEE
    754's pow. What is computed is fixed, with nothing but sums, products and quotients of
    doubles and operations on their bits (`dialect/Functions.h`), so the value does not
    depend on a mathematical library. Types are left out where both are scalars.

    ```mlir
    step.optimizer @example {
      %decay_rate = step.hyper "decay_rate" = -0.8
      %power = step.hyper "power" = 0.4
      step.rule @any(%p: param[*], %g: grad[*], %t: count) {
        %number = step.to_f64 %t
        %w = step.pow %number, %decay_rate
        %size = step.abs %g : [*]
        %u = step.pow %size, %power : [*], f64
        %scaled = step.mul %u, %w : [*], f64
        %p1 = step.sub %p, %scaled : [*]
        step.return %p1
      }
    }
    ```
  }];
  let arguments = (ins Step_Operand:$base, Step_Operand:$exponent);
  let results = (outs Step_Operand:$result);
  let assemblyFormat = [{
    $base `,` $exponent attr-dict `` custom<TypesUnlessScalar>(type($base), type($exponent))
  }];
}

def Step_ToF64Op : Step_ValueOp<"to_f64"> {
  let summary = "a count as a number";
  let description = "To nearest, ties to even; exact up to 2^53.";
  let arguments = (ins I64:$operand);
  let results = (outs F64:$result);
  let assemblyFormat = "$operand attr-dict";
}

def Step_EveryOp : Step_ValueOp<"every"> {
  let summary = "whether a step is one of every so many";
  let description = [{
    Holds in the first step, and each time that `gap` more have been taken: of 3 in steps 1, 4,
    7. With g = max(floor(gap), 1) that is where

        (count - 1) - g * floor((count - 1) / g) = 0

    in f64, exact for counts up to 2^52. Never where the gap is NaN, and of Inf in no step.

    ```mlir
    step.optimizer @example {
      %gap = step.hyper "gap" = 10.0
      step.rule @any(%p: param[*], %g: grad[*], %s: state "now_and_then"[*], %t: count) {
        %due = step.every %gap, %t
        %s1 = step.select %due, %g, %s : [*]
        %p1 = step.sub %p, %s1 : [*]
        step.return %p1, %s1
      }
    }
    ```
  }];
  let arguments = (ins F64:$gap, I64:$count);
  let results = (outs I1:$result);
  let assemblyFormat = "$gap `,` $count attr-dict";
}

} // opDocGroup

#endif // STEP_VALUE_OPS
