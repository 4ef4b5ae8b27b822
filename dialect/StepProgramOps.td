//===- StepProgramOps.td - operations that passes make --------*- tablegen -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEP_PROGRAM_OPS
#define STEP_PROGRAM_OPS

include "StepMatrixOps.td"
include "StepTransferOps.td"
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

def Step_CarriedOp : Step_ValueOp<"carried", [
    Step_InsertedByPasses, ParentOneOf<["RuleOp", "ProgramOp"]>]> {
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

def Step_CarryOp : Step_InsertedOp<"carry", [ParentOneOf<["RuleOp", "ProgramOp"]>]> {
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
// Programs
//===----------------------------------------------------------------------===//

def Step_ProgramGroup : OpDocGroup {
  let summary = "Programs";
  let description = [{
    What the schedule stage makes of a bound rule: what a rank does for one tensor in one
    step. Memory, partial results and scalars are values, each defined before it is used;
    bodies are scalar code in `arith`. Scalars of the tensor are computed by operations of
    `arith` and `math` that stand in the program itself.

    ```
    step.program @x_matrix_0(%param: param[n, m] as f32, %grad: grad[n, m] as f32,
                             %r: state "r"[n, 1] as f32) variant <"matrix", {}, f32> {
      %lr = step.cohort_scalars @x_matrix_0_scalars {   // once for each group and count
        step.yield %lr : f64
      } : f64
      %rows = step.traverse @x_matrix_0_phase0 over [n, m]  // once over memory
          reads (%g = %grad : <[n, m], f32>) partials (sum to [n, 1]) {
        %gg = arith.mulf %g, %g : f32
        step.yield %gg : f32
      }
      %mean = step.combine mean %rows
          : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
      ...
    ```
  }];
}
let opDocGroup = Step_ProgramGroup in {

def Step_ProgramOp : Step_Op<"program", [
    HasParent<"OptimizerOp">, Symbol, SymbolTable, SingleBlock, NoTerminator,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "what a rank does for one tensor of a variant in one step";
  let description = [{
    The block's arguments are the rule's: memory of the param, the grad and the states
    as buffers, the count (i64) and the fresh flags (i1), of which each says for which
    states it is set in the step that creates one of them (of a list without states: in
    one before which the tensor has none). Operations run in their order; what stands
    before the first `step.exchange` is segment 0 of the step, and so on.

    An `elementwise` program is a single traversal of elements in whatever order they lie
    in memory, the same in any layout. `kernels_of` names a program that does the same but
    for exchanges around it: its kernels are this one's.

    Constraints:
    - it begins with scalars of the cohort, and has a traversal
    - there is a param; a fresh speaks of states that the program has
    - rounds of exchanges are numbered in their order
    - of a cohort's scalars, results of a round are used after it
    - a buffer is not used after it was written, nor written twice
    - nothing is written before a round that may skip the step
    - a partial result is combined once
    - what is contributed, and what a traversal is left out by, is a scalar of the tensor
    - operations are those of programs, of arith and math without side effects, or expanded later
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Step_RoleArrayAttr:$roles,
                       Step_VariantAttr:$variant, UnitAttr:$elementwise,
                       OptionalAttr<StrArrayAttr>:$bound_dims,
                       OptionalAttr<StrAttr>:$kernels_of);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    RoleAttr getRole(unsigned argument) {
      return ::llvm::cast<RoleAttr>(getRoles()[argument]);
    }
    /// Arguments that are tensors, in their order, which is that of addresses in a row
    /// of the kernels' table.
    SmallVector<BlockArgument> getOperandArguments();
    /// The place of such an argument among them.
    int64_t getOperandIndex(BlockArgument argument);
    /// The name that its functions begin with.
    StringRef getKernelPrefix() { return getKernelsOf().value_or(getSymName()); }
    /// The param.
    BlockArgument getParam();
    /// The count; null where the rule has none.
    BlockArgument getCount();
    SmallVector<BlockArgument> getFreshes();
    /// The states that each fresh flag of the scalar functions speaks of: one list without
    /// states where the rule has no fresh.
    SmallVector<ArrayAttr> getFreshLists();
    /// The names of dims whose extents follow from the param's, in the order of a row of the
    /// kernels' table, where they stand behind these.
    SmallVector<StringAttr> getBoundDimNames();
    /// Whether it is a dim of the param, or one of those.
    bool hasDim(StringAttr dim);
    /// Whether a rank has a range of the row-major order, whose rows are not whole.
    bool isFlatRange();
  }];
}

def Step_CohortScalarsOp : Step_Op<"cohort_scalars", [
    HasParent<"ProgramOp">, SingleBlock, Step_EndsInYield,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "scalars that tensors of one group and count have in common";
  let description = [{
    Computed once for each distinct row, never for an element. The body sees the
    hyper-parameters of the optimizer, its persistent scalars and the results of its
    `step.scalars`, the program's count and fresh flags, and scalars of the cohort before it
    are computed again rather than read.

    Constraints:
    - it yields what it results in: f64, i1 and i64
    - the body uses of the outside what a scalar function is given
    - the body holds only operations of arith and math, step.powi, and those that are expanded
      later: step.lerp, step.exp, step.log and step.pow
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let results = (outs Variadic<AnyTypeOf<[F64, I1, I64]>>:$scalars);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name attr-dict-with-keyword custom<Code>($body) (`:` type($scalars)^)?
  }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The name of a result that is a hyper-parameter or a kept scalar as it is; empty for
    /// others.
    StringRef getScalarName(OpResult scalar);
  }];
}

def Step_TraverseOp : Step_Op<"traverse", [
    HasParent<"ProgramOp">, IsolatedFromAbove, SingleBlock, Step_EndsInYield,
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one pass over the elements of some dims";
  let description = [{
    The body is run for every element of the dims `over`. Its arguments are the elements
    of the buffers that are read, in their type in memory, and the scalars of the program
    that it uses: an f64 is rounded to the compute type, as which it meets elements. It
    yields, in this order, the new element of each buffer that is written, the element of
    each new buffer, and a value for each partial result.
    Results are the contents of the written buffers, the new buffers, and the partial
    results. A buffer with 1 in place of a dim has the same element all along it. Dims may be
    of another order than the param's, and stand twice: `[n, n]`.

    Over all dims of the param it is a kernel. Where `unless` holds it is left out for
    the tensor. One that is `trailing` needs nothing of the kernels before it, back to the
    last that is not trailing, but what they reduce along rows: what stands between them is
    rows' own. So a strip of rows may be run by all of them before the next strip is.

    Constraints:
    - each dim of `over` is one of the param, or 1
    - buffers have dims of `over`, or 1; those that are written have them all
    - arguments and yielded values agree with the buffers, and are of the compute type where
      they are scalars or reduced
    - only a kernel that writes nothing is left out, and only one that is never left out
      is trailing
    - the body holds only operations of arith and math without side effects, and those that are
      expanded later: step.lerp, step.exp, step.log and step.pow
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$over,
                       Variadic<Step_BufferType>:$reads,
                       Variadic<AnyTypeOf<[F64, I1, I64]>>:$scalars,
                       Variadic<Step_BufferType>:$writes,
                       Optional<I1>:$unless, UnitAttr:$trailing);
  let results = (outs Variadic<AnyTypeOf<[Step_BufferType, Step_PartialType]>>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The contents of the buffers that are written, in their order.
    ResultRange getWritten() { return getResults().take_front(getWrites().size()); }
    /// The body's arguments that are scalars, in their order.
    Block::BlockArgListType getScalarArguments() {
      return getBody().getArguments().drop_front(getReads().size());
    }
    /// New buffers.
    SmallVector<Value> getMade();
    SmallVector<Value> getPartials();
    /// Whether it goes over all dims of the param.
    bool isKernel();
  }];
}

def Step_CombineOp : Step_Op<"combine", [HasParent<"ProgramOp">]> {
  let summary = "combines partial results";
  let description = [{
    To one for each element of the dims that are kept, or to one for the tensor, in the
    order of the tree (docs/statistics.md); `mean` divides by the number of elements of the
    whole tensor. The result is a buffer, rounded to its type, or an f64. What is only a
    part, of the rank or of one of several tensors that are reduced together, is a share:
    unrounded and undivided, for `step.receive` to take. The partial result's memory is used
    up. Where `unless` holds the result is +0.0: the traversal was left out.

    Constraints:
    - the result is a share of the same reduction, or has the dims that are kept; only
      then it may be a mean
    - what may be left out is one result for the tensor
  }];
  let arguments = (ins Step_PartialType:$partial, UnitAttr:$mean,
                       Optional<I1>:$unless);
  let results = (outs AnyTypeOf<[F64, Step_BufferType, Step_ShareType]>:$result);
  let assemblyFormat = [{
    (`mean` $mean^)? $partial (`unless` $unless^)? attr-dict `:`
    qualified(type($partial)) `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

/// What a finish does with whole matrices.
class Step_ProgramMatrixOp<string mnemonic, list<Trait> traits = []>
    : Step_Op<mnemonic, [Pure, HasParent<"ProgramOp">, Step_ProgramMatrixOpInterface] # traits> {
  let results = (outs Step_BufferType:$result);
  let hasVerifier = 1;
}
/// Of one operand.
class Step_OneMatrixOp<string mnemonic, list<Trait> traits = []>
    : Step_ProgramMatrixOp<mnemonic, traits> {
  let arguments = (ins Step_BufferType:$operand, Optional<I1>:$unless);
  let assemblyFormat = [{
    $operand (`unless` $unless^)? attr-dict `:` type($operand) `->` type($result)
  }];
}
defvar Step_CallsRoutine = DeclareOpInterfaceMethods<Step_RoutineOpInterface>;
/// One of many operations for each element; `period` as in `step.product`.
class Step_DecompositionOp<string mnemonic>
    : Step_OneMatrixOp<mnemonic, [Step_CallsRoutine]> {
  let arguments = (ins Step_BufferType:$operand, Optional<I1>:$unless,
                       OptionalAttr<I64Attr>:$period);
  let extraClassDeclaration = "static bool isMostWork() { return true; }";
}

def Step_ProductOp : Step_ProgramMatrixOp<"product"> {
  let summary = "the product of two matrices";
  let description = [{
    Of buffers as `step.matmul` is of tensors, once for the tensor. An operand that is
    `transposed` is read with rows for columns. Where the result is `symmetric`, the lower half
    is computed and is the upper half too. One that is `wide` accumulates in f64; one that is
    `rounded` has factors of bf16. Where `unless`
    holds it is left out, and what is in the result is not defined: so it is made in one of
    `period` steps, where hyper-parameters have their defaults, with 0 in those alone that create
    a state. That is for explanations.

    Constraints:
    - rows, columns and what the operands have in common agree, by their names
    - what is symmetric has rows and columns of one name
    - none is wide and rounded
    - the result is of the compute type, operands are of floats
  }];
  let arguments = (ins Step_BufferType:$lhs, Step_BufferType:$rhs, Optional<I1>:$unless,
                       UnitAttr:$lhs_transposed, UnitAttr:$rhs_transposed, UnitAttr:$symmetric,
                       UnitAttr:$wide, UnitAttr:$rounded, OptionalAttr<I64Attr>:$period);
  let assemblyFormat = [{
    $lhs (`transposed` $lhs_transposed^)? `,` $rhs (`transposed` $rhs_transposed^)?
    (`symmetric` $symmetric^)? (`wide` $wide^)? (`rounded` $rounded^)?
    (`unless` $unless^)? attr-dict `:`
    type($lhs) `,` type($rhs) `->` type($result)
  }];
  let extraClassDeclaration = "static bool isMostWork() { return true; }";
}

def Step_TransposedOp : Step_OneMatrixOp<"transposed"> {
  let summary = "matrices with rows for columns";
  let description = [{
    A new buffer, of the compute type. `unless` as in `step.product`.

    Constraints:
    - the last two dims of the result are those of the operand, exchanged
    - the result is of the compute type, the operand of floats
  }];
}

def Step_LeadingOp : Step_OneMatrixOp<"leading"> {
  let summary = "the first columns of matrices";
  let description = [{
    A new buffer, of the compute type, with as many columns as its last dim has, which are no
    more than the operand's. `unless` as in `step.product`.

    Constraints:
    - the dims but the last are those of the operand
    - the result is of the compute type, the operand of floats
  }];
}

def Step_DiagonalsOp : Step_OneMatrixOp<"diagonals"> {
  let summary = "the diagonals of matrices";
  let description = [{
    A new buffer, of the compute type, with 1 for the rows of the operand. `unless` as in
    `step.product`.

    Constraints:
    - the operand's last two dims are one
    - the result is of the compute type, the operand of floats
  }];
}

def Step_EigenvectorsOp : Step_DecompositionOp<"eigenvectors"> {
  let summary = "the eigenvectors of symmetric matrices, and the eigenvalues";
  let description = [{
    A new buffer, of the compute type, as `step.eigh` says: by a routine of the runtime
    (`StepcRoutines` in `kernel_abi.h`). Where somebody asks for them, the eigenvalues too, as
    `step.eigenvalues` says. `unless` as in `step.product`.

    Constraints:
    - the vectors have the dims of the operand, of which the last two are one; the values have
      them with 1 for the rows
    - results are of the compute type, the operand of floats
  }];
  let results = (outs Step_BufferType:$result, Optional<Step_BufferType>:$values);
  let assemblyFormat = [{
    $operand (`unless` $unless^)? attr-dict `:` type($operand) `->` type($result)
    (`,` type($values)^)?
  }];
}

def Step_OrthonormalOp : Step_DecompositionOp<"orthonormal"> {
  let summary = "orthonormal bases of matrices' columns";
  let description = [{
    A new buffer, of the compute type, as `step.qr` says: by a routine of the runtime. `unless`
    as in `step.product`.

    Constraints:
    - the result has the dims of the operand, and is of the compute type
    - the operand is of floats; where it has more columns than rows the result is NaN
  }];
}

def Step_SortedOp : Step_ProgramMatrixOp<"sorted", [Step_CallsRoutine]> {
  let summary = "columns of matrices in the order of their keys";
  let description = [{
    A new buffer, of the compute type, as `step.sort` says. A routine of the runtime finds the
    order. `unless` as in `step.product`.

    Constraints:
    - the result has the dims of the operand, and is of the compute type; the keys have them
      with 1 for the rows
    - operands are of floats
  }];
  let arguments = (ins Step_BufferType:$operand, Step_BufferType:$keys, Optional<I1>:$unless);
  let assemblyFormat = [{
    $operand `by` $keys (`unless` $unless^)? attr-dict `:` type($operand) `,` type($keys) `->`
    type($result)
  }];
}

def Step_IndicesOp : Step_ProgramMatrixOp<"indices"> {
  let summary = "where in matrices their rows stand, or their columns";
  let description = [{
    A new buffer, of the compute type, as `step.index` says. `unless` as in `step.product`.

    Constraints:
    - the result is of the compute type, and one of its last two dims is 1
  }];
  let arguments = (ins Optional<I1>:$unless);
  let assemblyFormat = "(`unless` $unless^)? attr-dict `:` type($result)";
}

def Step_NormalsOp : Step_ProgramMatrixOp<"normals"> {
  let summary = "matrices of normal random numbers";
  let description = [{
    A new buffer, of the compute type, as `step.random_normal` says. The position is that of the
    param, whose first element says the tensor's number. `unless` as in `step.product`.

    Constraints:
    - the position is the program's
    - the result is of the compute type
  }];
  let arguments = (ins StrAttr:$name, F64:$seed, I64:$count, Step_BufferType:$position,
                       Optional<I1>:$unless);
  let assemblyFormat = [{
    $name $seed `,` $count `at` $position (`unless` $unless^)? attr-dict `:` type($position) `->`
    type($result)
  }];
}

def Step_ExchangeOp : Step_Op<"exchange", [HasParent<"ProgramOp">]> {
  let summary = "where the tensor waits for a round";
  let description = [{
    Round `round` of the step: the model's scalars of it are computed, and shares are
    combined over the ranks among which the named dims of the param are sharded. A sum
    crosses as f64, a maximum as the integer that orders as the f64 does, with NaN above all.

    Constraints:
    - results have the types of the shares, and there are dims for each
  }];
  let arguments = (ins I64Attr:$round, Variadic<Step_ShareType>:$shares,
                       TypedArrayAttrBase<StrArrayAttr, "sharded dims of each share">:$over);
  let results = (outs Variadic<Step_ShareType>:$results);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Step_ReceiveOp : Step_Op<"receive", [HasParent<"ProgramOp">]> {
  let summary = "makes a result of shares";
  let description = [{
    Of the shares of one reduction's tensors, after their exchange or without one: combined in
    their order, divided where it is a `mean`, and rounded to the type of the buffer.

    Constraints:
    - shares are of one reduction
    - the result has the dims that are kept
  }];
  let arguments = (ins Variadic<Step_ShareType>:$shares, UnitAttr:$mean);
  let results = (outs AnyTypeOf<[F64, Step_BufferType]>:$result);
  let assemblyFormat = [{
    (`mean` $mean^)? $shares attr-dict `:` qualified(type($shares)) `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def Step_OwnOp : Step_Op<"own", [HasParent<"ProgramOp">, AllTypesMatch<["scalar", "result"]>]> {
  let summary = "a scalar of the cohort as one of the tensor";
  let description = [{
    Where something asks for a scalar of the tensor: a contribution, or a flag by which
    a traversal is left out.
  }];
  let arguments = (ins AnyTypeOf<[F64, I1]>:$scalar);
  let results = (outs AnyTypeOf<[F64, I1]>:$result);
  let assemblyFormat = "$scalar attr-dict `:` type($result)";
}

def Step_KeepOp : Step_Op<"keep", [HasParent<"ProgramOp">, AllTypesMatch<["buffer", "result"]>]> {
  let summary = "memory of the tensor's own, kept over rounds";
  let description = [{
    What is not kept lies in memory that the next tensor uses again. `step-keep-over-rounds`
    inserts it.

    Constraints:
    - it is of a buffer that the program makes
  }];
  let arguments = (ins Step_BufferType:$buffer);
  let results = (outs Step_BufferType:$result);
  let assemblyFormat = "$buffer attr-dict `:` qualified(type($result))";
  let hasVerifier = 1;
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

def Step_InvokeOp : Step_Op<"invoke", []> {
  let summary = "calls a routine of the runtime";
  let description = [{
    At an address that the runtime tells kernels (`StepcRoutines` in `kernel_abi.h`), with
    words. Functions that do nothing else have it; devices have no routines.
  }];
  let arguments = (ins I64:$routine, Variadic<I64>:$words);
  let assemblyFormat = "$routine `(` $words `)` attr-dict";
}

def Step_DotPairsOp
    : Step_Op<"dot_pairs", [Pure, AllTypesMatch<["lhs", "rhs"]>,
                            TypesMatchWith<"sums are of one type", "result", "sum", "$_self">]> {
  let summary = "pairs of bf16 multiplied and added to sums in f32";
  let description = [{
    Each i32 is a pair of bf16, the first in its lower half. What is added, and how, is said at
    `step.matmul` with factors of bf16. Only processors with the instruction (AVX512_BF16) run
    functions that have it.
  }];
  let arguments = (ins VectorOfLengthAndType<[16], [F32]>:$sum,
                       VectorOfLengthAndType<[16], [I32]>:$lhs,
                       VectorOfLengthAndType<[16], [I32]>:$rhs);
  let results = (outs VectorOfLengthAndType<[16], [F32]>:$result);
  let assemblyFormat = "$sum `,` $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)";
}
} // opDocGroup

#endif // STEP_PROGRAM_OPS
