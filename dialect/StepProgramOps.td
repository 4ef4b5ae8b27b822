//===- StepProgramOps.td - operations that passes make --------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_PROGRAM_OPS
#define STEP_PROGRAM_OPS

include "StepStatisticsOps.td"

//===----------------------------------------------------------------------===//
// Operations that passes insert
//===----------------------------------------------------------------------===//

def Step_InsertedGroup : OpDocGroup {
  let summary = "Operations that passes insert into rules";
  let description = [{
    No definition may say them, but for `step.stored`, which the define stage leaves:
    `stepc` and the interpreter refuse them alike.
  }];
}
/// The one list of what no source may say: the define stage and the interpreter
/// ask for it.
def Step_InsertedByPasses : NativeOpTrait<"InsertedByPasses"> {
  let cppNamespace = "::mlir::step";
}
class Step_InsertedOp<string mnemonic, list<Trait> traits>
    : Step_Op<mnemonic, [Step_InsertedByPasses] # traits>;
class Step_InsertedValueOp<string mnemonic, list<Trait> traits>
    : Step_ValueOp<mnemonic, [Step_InsertedByPasses, HasParent<"RuleOp">] # traits>;

let opDocGroup = Step_InsertedGroup in {

def Step_StoredOp : Step_ValueOp<"stored", [
    HasParent<"RuleOp">, AllTypesMatch<["operand", "result"]>]> {
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

def Step_BroadcastOp : Step_InsertedValueOp<"broadcast", []> {
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

def Step_RoundOp : Step_InsertedValueOp<"round", [
    AllTypesMatch<["operand", "result"]>]> {
  let summary = "rounds to a storage type, keeping the compute type";
  let description = [{
    To nearest, ties to even. Inserted by binding.

    Constraints:
    - the storage type is f32, bf16 or f16
  }];
  let arguments = (ins Step_TensorType:$operand, TypeAttr:$storage);
  let results = (outs Step_TensorType:$result);
  let assemblyFormat = [{
    $operand `to` $storage attr-dict `:` custom<ShortType>(type($operand))
  }];
  let hasVerifier = 1;
}

/// What takes an f32 apart into its nearest bf16 and the rest.
class Step_HalfOp<string mnemonic, string what> : Step_InsertedValueOp<mnemonic, [
    SameOperandsAndResultType]> {
  let summary = what;
  let results = (outs Step_TensorType:$result);
  let hasVerifier = 1;
}

def Step_UpperHalfOp : Step_HalfOp<"upper_half", "the nearest bf16, a tie away from zero"> {
  let description = [{
    With `step.lower_half` it is another way to write every f32: no other rule
    for ties leaves a difference that 16 bits always hold. Any NaN gives the quiet
    one, and what is too large infinity. Inserted by binding.

    Constraints:
    - the rule is bound and computes in f32
  }];
  let arguments = (ins Step_TensorType:$operand);
  let assemblyFormat = "$operand attr-dict `:` custom<ShortType>(type($operand))";
}

def Step_LowerHalfOp : Step_HalfOp<"lower_half", "what the nearest bf16 lacks"> {
  let description = [{
    The bits of the operand less those of `step.upper_half` of it, as integers: a
    number from -32768 to 32767; 0 for NaN. Inserted by binding.

    Constraints:
    - those of step.upper_half
  }];
  let arguments = (ins Step_TensorType:$operand);
  let assemblyFormat = "$operand attr-dict `:` custom<ShortType>(type($operand))";
}

def Step_JoinHalvesOp : Step_HalfOp<"join_halves", "the f32 that was taken apart"> {
  let description = [{
    The sum of the bits of `upper`, a value of bf16, and the integer `lower`. Where
    that is NaN the two were not made of one number, and it is `upper`. Inserted by
    binding.

    Constraints:
    - those of step.upper_half
  }];
  let arguments = (ins Step_TensorType:$upper, Step_TensorType:$lower);
  let assemblyFormat = [{
    $upper `,` $lower attr-dict `:` custom<ShortTypes>(type($upper), type($lower))
  }];
}

def Step_CarriedOp : Step_InsertedValueOp<"carried", []> {
  let summary = "a scalar of the tensor, kept from the step before";
  let description = [{
    What `step.carry` left in the last step of the tensor; 0 where there was none, or
    where somebody else may have written what it was computed from. So 0 says nothing,
    and whoever uses the value computes it where it is 0. `step-carry-statistics`
    inserts both.

    Constraints:
    - the rule is bound
    - at most one step.carry is of it
  }];
  let arguments = (ins StrAttr:$name);
  let results = (outs F64:$result);
  let assemblyFormat = "$name attr-dict";
  let hasVerifier = 1;
}

def Step_CarryOp : Step_InsertedOp<"carry", [HasParent<"RuleOp">]> {
  let summary = "keeps a scalar of the tensor for the next step";
  let description = [{
    When the step's new values are written, so never in a skipped step. `recomputed` is
    the scalar from which the carried one, where it is known, must not differ: the
    runtime compares the two for a tensor now and then.

    Constraints:
    - `carried` is the result of a step.carried
  }];
  let arguments = (ins F64:$value, F64:$carried, F64:$recomputed);
  let assemblyFormat = "$value `as` $carried `of` $recomputed attr-dict";
  let hasVerifier = 1;
}

def Step_ToI64Op : Step_InsertedValueOp<"to_i64", []> {
  let summary = "a whole number as an integer";
  let description = [{
    Of numbers from -2^53 to 2^53; a fraction is cut off. Inserted by binding.
  }];
  let arguments = (ins F64:$operand);
  let results = (outs I64:$result);
  let assemblyFormat = "$operand attr-dict";
}

def Step_RoundStochasticOp : Step_InsertedValueOp<"round_stochastic", [
    AllTypesMatch<["operand", "position", "result"]>]> {
  let summary = "rounds to bf16, up as often as the value is near the upper one";
  let description = [{
    Adds a random number of 16 bits to the bits of the f32 and cuts the lower half off,
    so that of the two neighbours in bf16 the one away from zero comes with the
    probability (lower half) / 2^16: the mean is the value. What is a bf16 stays as it
    is, infinities too, any NaN gives the quiet one, and what is between the largest
    bf16 and infinity gives the former.

    The random number is half `position mod 8` (two in a word, the lower first) of

        Philox4x32-10(key = seed, counter = (position / 8, count, stream))

    (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: Parallel Random Numbers: As
    Easy as 1, 2, 3. SC 2011), the key two words and `position / 8` two, lower first,
    the count modulo 2^32, and the stream the 32-bit FNV-1a hash of the name `of` the
    state that the value becomes, or of "" for the parameter. The position is the
    tensor's number times 2^40, and the index of the element in row-major order of the
    whole tensor. Inserted by binding.

    Constraints:
    - the rule is bound and computes in f32
    - the position is the rule's
  }];
  let arguments = (ins Step_TensorType:$operand, Step_TensorType:$position,
                   I64:$seed, I64:$count, StrAttr:$of);
  let results = (outs Step_TensorType:$result);
  let assemblyFormat = [{
    $operand `at` $position `,` $seed `,` $count `of` $of attr-dict `:`
    custom<ShortType>(type($operand))
  }];
  let hasVerifier = 1;
}
} // opDocGroup

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

def Step_ProgramGroup : OpDocGroup {
  let summary = "Schedules";
  let description = [{
    What the schedule stage makes of a bound rule. From here on the bodies are
    scalar code.
  }];
}
let opDocGroup = Step_ProgramGroup in {

def Step_ProgramOp : Step_Op<"program", [
    HasParent<"OptimizerOp">, IsolatedFromAbove, Symbol, SymbolTable,
    SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "the schedule of one variant";
  let description = [{
    What runs for a tensor, in this order: a scalar phase, then phases. Bodies are
    scalar code in `arith`.

    A program in the space of elements has one phase. One in the space of tiles
    traverses the tensor in phases of the space `tiles`; what stands between those
    (`step.combine`, phases of other spaces, `step.tensor_scalars`) runs once for a
    tensor. Segments are numbered; scalar phases of later segments stand where
    their segment begins (docs/statistics.md). `contributions` are triples of a
    statistic, a slot and a segment. `partial_statistics` are pairs of a statistic and of a
    dim of the layout, its place there, over which the slot holds a part; along the axes
    of others ranks have the same. `carried` are pairs of slots: of a scalar that is kept
    from step to step, and of the one that is computed where that is not known. `fresh` has, for each flag that the scalar phases take behind the count, the
    states that it speaks of: it is set in the step that creates one of them, or, of a
    list without states, in one before which the tensor has none. Where it is left out,
    there is one such list.

    Constraints:
    - the body begins with a scalar phase, and there is a phase
    - phases agree with the slots of the scalar phases and of the tensor
    - scalar phases take a flag for each of `fresh`, whose states are operands
    - operands of every phase are those of the program, with the same storage
    - partial results and temps are in the program's workspace
    - segments are in order
    - phases of elements and of other spaces are not mixed
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Step_VariantAttr:$variant,
                       Step_OperandArrayAttr:$operands,
                       DefaultValuedAttr<Step_BufferArrayAttr, "{}">:$workspace,
                       DefaultValuedAttr<I64Attr, "0">:$tensor_slots,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$contributions,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$partial_statistics,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$carried,
                       OptionalAttr<Step_FreshArrayAttr>:$fresh);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `variant` $variant `operands` $operands
    attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The scalar phase of segment 0.
    ScalarPhaseOp getScalarPhase();
    /// Slots of the scalar row: those of all scalar phases.
    int64_t getNumSlots();
    /// Whether its phases are of other spaces than elements.
    bool isTiled();
    /// Whether a rank has a range of the row-major order, whose rows are not whole.
    bool isFlatRange();
    /// The dims of the parameter, wherever it stands among the operands.
    Type getParamShape();
    /// `fresh`, or what stands for it where it is left out.
    SmallVector<ArrayAttr> getFreshLists();
    /// The position of the buffer of that name in the workspace; -1 if none.
    int64_t findBuffer(StringRef name);
  }];
}

def Step_ScalarPhaseOp : Step_Op<"scalar_phase", [
    HasParent<"ProgramOp">, IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "computes the scalar row of a tensor";
  let description = [{
    Runs once for each distinct row, never per element. The block's arguments
    are the hyper-parameters of the optimizer (f64), its persistent scalars and
    the results of its `step.scalars` (f64), then the count (i64) and the program's
    fresh flags (i1); it yields one f64 for each slot from `first_slot` on.

    Constraints:
    - the arguments are f64 values followed by an i64 and i1 flags
    - it yields f64 values
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       DefaultValuedAttr<I64Attr, "0">:$segment,
                       DefaultValuedAttr<I64Attr, "0">:$first_slot);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getNumSlots();
    /// f64 arguments: hyper-parameters, persistent scalars, results.
    int64_t getNumInputs();
    /// i1 arguments, behind the count.
    int64_t getNumFreshes();
  }];
}

def Step_PhaseOp : Step_Op<"phase", [
    HasParent<"ProgramOp">, IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one traversal of a tensor's elements";
  let description = [{
    The body is run for every element of the space. Its arguments are the slots
    of the scalar row and those of the tensor (f64), then for each operand that
    is read its element, in the operand's storage type; it yields for each
    operand that is written the new element, in storage type, and then a value
    for each accumulator. One kernel is made of each phase of elements or tiles. It
    is left out for a tensor whose slot `unless` is not 0.

    A phase of tiles that is `trailing` needs nothing of the phases of tiles before it,
    back to the last that is not trailing, but what they accumulate along rows: what
    stands between them is rows' own. So a block of rows may be run by all of them
    before the next block is.

    Constraints:
    - only a phase of tiles that writes nothing is left out, by a slot of the tensor
    - only a phase of tiles that is never left out is trailing
    - arguments and yielded values agree with slots, operands and accumulators
    - the body holds only arith and math operations, without side effects
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$num_slots,
                       Step_OperandArrayAttr:$operands,
                       DefaultValuedAttr<Step_SpaceAttr, "Space::Elements">:$space,
                       DefaultValuedAttr<I64Attr, "0">:$segment,
                       DefaultValuedAttr<I64Attr, "0">:$tensor_slots,
                       DefaultValuedAttr<Step_AccumulatorArrayAttr, "{}">:$accumulators,
                       OptionalAttr<I64Attr>:$unless,
                       UnitAttr:$trailing);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name (`trailing` $trailing^)? `slots` $num_slots (`unless` $unless^)? `operands` $operands attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
}

def Step_CombineOp : Step_Op<"combine", [HasParent<"ProgramOp">]> {
  let summary = "combines partial reductions";
  let description = [{
    Of the partial results that a phase of the space left in a buffer: to one
    for each row, column or item (one entry of the leading dims), rounded into a
    temp; or to one for the tensor, in one of its slots. `mean` divides by
    the number of elements of the whole tensor. The order of additions is the tree's
    (docs/statistics.md). The buffer's contents are used up. What is only a part, of
    the rank or of one of several tensors that are reduced together, goes unrounded and
    undivided to a buffer, from which `step.receive` takes the whole. Where the slot `unless` is not 0 it is +0.0: the phase was left out.

    Constraints:
    - the buffer is in the program's workspace
    - a temp of the program, a slot of the tensor or a buffer of parts is named
    - columns are combined to columns, rows to the others
    - what may be left out is one result for the tensor
  }];
  let arguments = (ins StrAttr:$partial, Step_CombinerAttr:$combiner,
                       Step_SpaceAttr:$space, Step_LevelAttr:$level,
                       UnitAttr:$mean, OptionalAttr<StrAttr>:$temp,
                       OptionalAttr<I64Attr>:$slot,
                       OptionalAttr<StrAttr>:$exchange,
                       OptionalAttr<I64Attr>:$unless,
                       DefaultValuedAttr<I64Attr, "0">:$segment);
  let assemblyFormat = [{
    $partial $combiner `of` $space `to` $level (`mean` $mean^)?
    (`in` $temp^)? (`slot` $slot^)? (`send` $exchange^)? (`unless` $unless^)?
    attr-dict
  }];
  let hasVerifier = 1;
}

def Step_ReceiveOp : Step_Op<"receive", [HasParent<"ProgramOp">]> {
  let summary = "takes what was reduced over ranks, or of several tensors";
  let description = [{
    From the buffers of one reduction's tensors, of exchanges after their round: combined
    in their order, then rounded into a temp, or into a slot of the tensor. Space and level
    are those of the `step.combine` that sent them, and say what a mean is divided by.

    Constraints:
    - there is a buffer, and all are in the program's workspace
    - a temp of the program or a slot of the tensor is named
  }];
  let arguments = (ins StrArrayAttr:$exchanges, Step_CombinerAttr:$combiner,
                       Step_SpaceAttr:$space, Step_LevelAttr:$level,
                       UnitAttr:$mean, OptionalAttr<StrAttr>:$temp,
                       OptionalAttr<I64Attr>:$slot,
                       DefaultValuedAttr<I64Attr, "0">:$segment);
  let assemblyFormat = [{
    custom<Names>($exchanges) $combiner `of` $space `to` $level (`mean` $mean^)?
    (`in` $temp^)? (`slot` $slot^)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The names of the buffers.
    ::llvm::SmallVector<::llvm::StringRef> getSources();
  }];
}

def Step_TensorScalarsOp : Step_Op<"tensor_scalars", [
    HasParent<"ProgramOp">, IsolatedFromAbove, Symbol, SingleBlock]> {
  let summary = "computes scalars of one tensor";
  let description = [{
    The block's arguments are the slots of the scalar row and those of the
    tensor (f64); it yields an f64 for each slot of the tensor in `writes`.

    Constraints:
    - arguments and yielded values are f64 and agree with the slots
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$num_slots,
                       I64Attr:$tensor_slots, DenseI64ArrayAttr:$writes,
                       DefaultValuedAttr<I64Attr, "0">:$segment);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `slots` $num_slots `,` $tensor_slots `writes` $writes
    attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
}

} // opDocGroup

//===----------------------------------------------------------------------===//
// Memory by address: what lowered kernels use until the LLVM conversion
//===----------------------------------------------------------------------===//

def Step_MemoryGroup : OpDocGroup {
  let summary = "Memory by address";
  let description = "What lowered kernels use until the LLVM conversion.";
}
let opDocGroup = Step_MemoryGroup in {

def Step_ViewOp : Step_Op<"view", [Pure]> {
  let summary = "memory at an address";
  let description = [{
    A memref whose first element is at the address, an integer read from a
    kernel's table. Nothing is known of its extent.

    Constraints:
    - the memref is one-dimensional, contiguous and of dynamic extent
  }];
  let arguments = (ins I64:$address);
  let results = (outs MemRefRankOf<[AnyType], [1]>:$result);
  let assemblyFormat = "$address attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Step_PrefetchOp : Step_Op<"prefetch", []> {
  let summary = "asks for the cache line at an address";
  let description = [{
    A hint; the address need not be of the tensor, or mapped at all. `write`
    asks for the line in a state that can be written without asking again.
  }];
  let arguments = (ins I64:$address, UnitAttr:$write);
  let assemblyFormat = "$address (`write` $write^)? attr-dict";
}
} // opDocGroup

#endif // STEP_PROGRAM_OPS
