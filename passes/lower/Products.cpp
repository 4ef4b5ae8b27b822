//===- Products.cpp - matrices in a finish --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/Products.h"

#include "passes/lower/Finish.h"
#include "passes/lower/Normals.h"

#include "stepc/kernel_abi.h"

#include "mlir/Support/DebugStringHelper.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cstddef>

using namespace mlir;
using namespace mlir::step;

Value mlir::step::loadElement(const Words &w, const Matrix &matrix,
                              Type compute, Value index, int64_t lanes) {
  return convertElements(
      w, emitLoad(w, matrix.storage, lanes, matrix.address, index), compute);
}

Value mlir::step::convertElements(const Words &w, Value elements,
                                  Type compute) {
  auto convert = [&](Type to) {
    Type type = elements.getType(), from = getElementTypeOrSelf(type);
    if (from == to)
      return;
    auto vector = dyn_cast<VectorType>(type);
    Type result = vector ? Type(vector.clone(to)) : to;
    if (getBytes(from) < getBytes(to))
      elements = arith::ExtFOp::create(w.b, w.loc, result, elements);
    else
      elements = arith::TruncFOp::create(w.b, w.loc, result, elements);
  };
  // To f64 only from f32 is there an instruction.
  if (getElementTypeOrSelf(elements).getIntOrFloatBitWidth() == 16)
    convert(w.b.getF32Type());
  convert(compute);
  return elements;
}

namespace {
/// The buffer of some matrices, and the extents of each.
struct Matrices {
  Matrices(const Words &w, const TileRow &row, Value buffer) : w(w) {
    type = cast<BufferType>(buffer.getType());
    address = row.getAddress(buffer);
    ArrayRef<StringAttr> dims = type.getDims();
    Extents extents = row.getExtents(dims);
    rows = extents[dims.size() - 2];
    columns = extents[dims.size() - 1];
    items = w.constantWord(1);
    for (unsigned position = 0; position + 2 < dims.size(); ++position)
      items = w.mul(items, extents[position]);
  }

  Value getAddress(Value item) const {
    Value elements = w.mul(item, w.mul(rows, columns));
    return w.add(address,
                 w.mul(elements, w.constantWord(type.getElementBytes())));
  }
  /// Those of one matrix, in their order.
  Places getElements() const {
    return Places(w.mul(rows, columns), w.constantWord(1));
  }
  Matrix get(Value item, bool transposed) const {
    Matrix matrix{getAddress(item), type.getElement(), columns,
                  w.constantWord(1)};
    matrix.isTransposed = transposed;
    if (transposed)
      std::swap(matrix.rowStride, matrix.columnStride);
    return matrix;
  }

  const Words &w;
  BufferType type;
  Value address, items, rows, columns;
};
} // namespace

/// The result's elements in their order, shared out: `places` says where each
/// is in the operand.
static void copyPlaces(const Words &w, const FinishPolicy &policy,
                       const Matrices &from, const Places &places,
                       const Matrices &to) {
  Type compute = to.type.getElement();
  Matrix source{from.address, from.type.getElement(), Value(), Value()};
  policy.forEach(places, [&](Value number, Value offset) {
    emitStore(w, compute, 0, loadElement(w, source, compute, w.toIndex(offset)),
              to.address, w.toIndex(number));
  });
}

static void emitTransposed(const Words &w, const TileRow &row,
                           const FinishPolicy &policy, TransposedOp op) {
  Matrices from(w, row, op.getOperand()), to(w, row, op.getResult());
  Value one = w.constantWord(1);
  // From the innermost dim outwards.
  Places places(from.rows, from.columns);
  places.addOuter({from.columns, one});
  places.addOuter({from.items, w.mul(from.rows, from.columns)});
  copyPlaces(w, policy, from, places, to);
}

void mlir::step::callProduct(
    const Words &w, const Product &product,
    function_ref<void(const Words &, const Product &)> emitBody) {
  std::string name = kProductPrefix.str();
  for (Type type : {product.lhs.storage, product.rhs.storage, product.compute})
    name += debugString(type) + "_";
  if (product.stored != product.compute)
    name += debugString(product.stored) + "_";
  if (product.inPairs)
    name += "pairs_";
  if (product.isSymmetric)
    name += "symmetric";
  // What is spread over a grid is made for the order of elements, too.
  bool isSpread = bool(product.firstTile);
  if (isSpread)
    name += (Twine("_spread") + (product.lhs.isTransposed ? "_t" : "_n") +
             (product.rhs.isTransposed ? "t" : "n"))
                .str();
  SmallVector<Value> arguments;
  for (const Matrix &matrix : {product.lhs, product.rhs})
    arguments.append({matrix.address, matrix.rowStride, matrix.columnStride});
  arguments.append(
      {product.result, product.rows, product.depth, product.columns});
  if (isSpread)
    arguments.append({product.firstTile, product.scratch});
  else
    arguments.append({product.panels, product.packed});
  if (product.inPairs)
    arguments.push_back(product.routines);
  func::FuncOp function =
      getSharedFunction(w, name, int64_t(arguments.size()), 0,
                        [&](const Words &inner, ValueRange in) {
                          Product own = product;
                          own.lhs = {in[0], product.lhs.storage, in[1], in[2],
                                     product.lhs.isTransposed};
                          own.rhs = {in[3], product.rhs.storage, in[4], in[5],
                                     product.rhs.isTransposed};
                          own.result = in[6];
                          own.rows = in[7];
                          own.depth = in[8];
                          own.columns = in[9];
                          (isSpread ? own.firstTile : own.panels) = in[10];
                          (isSpread ? own.scratch : own.packed) = in[11];
                          if (product.inPairs)
                            own.routines = in[12];
                          emitBody(inner, own);
                        });
  func::CallOp::create(w.b, w.loc, function, arguments);
}

Type mlir::step::getComputeType(ProductOp product) {
  MLIRContext *context = product.getContext();
  return product.getRounded() ? Type(Float32Type::get(context))
         : product.getWide()  ? Type(Float64Type::get(context))
                              : product.getType().getElement();
}

static void emitProduct(const Words &w, const TileRow &row,
                        const FinishPolicy &policy, ProductOp product) {
  Matrices lhs(w, row, product.getLhs()), rhs(w, row, product.getRhs());
  Matrices to(w, row, product.getResult());
  ProductMemory memory = row.storage.getProductMemory(product);
  Type stored = to.type.getElement();
  Type compute = getComputeType(product);
  w.loop(w.constant(0), w.toIndex(to.items), 1, [&](Value index) {
    Value item = w.toWord(index);
    Product one{lhs.get(item, product.getLhsTransposed()),
                rhs.get(item, product.getRhsTransposed()),
                to.getAddress(item),
                to.rows,
                product.getLhsTransposed() ? lhs.rows : lhs.columns,
                to.columns,
                compute,
                stored,
                product.getSymmetric(),
                product.getRounded(),
                row.routines ? row.routines : w.constantWord(0),
                row.getWorkspaceAddress(memory.panels),
                row.getWorkspaceAddress(memory.packed),
                item};
    policy.multiply(one);
  });
}

ProductSize mlir::step::getProductSize(const Words &w, const TileRow &row,
                                       ProductOp product) {
  Matrices to(w, row, product.getResult());
  return {to.items, to.rows, to.columns};
}

static void emitDiagonals(const Words &w, const TileRow &row,
                          const FinishPolicy &policy, DiagonalsOp op) {
  Matrices from(w, row, op.getOperand()), to(w, row, op.getResult());
  Places places(from.columns, w.add(from.columns, w.constantWord(1)));
  places.addOuter({from.items, w.mul(from.rows, from.columns)});
  copyPlaces(w, policy, from, places, to);
}

static void emitIndices(const Words &w, const TileRow &row,
                        const FinishPolicy &policy, IndicesOp op) {
  Matrices to(w, row, op.getResult());
  Type stored = to.type.getElement(), f64 = w.b.getF64Type();
  // One of both extents is 1.
  Places places(w.mul(to.rows, to.columns), w.constantWord(1));
  places.addOuter({to.items, w.constantWord(0)});
  policy.forEach(places, [&](Value number, Value place) {
    Value element = arith::SIToFPOp::create(w.b, w.loc, f64, place);
    emitStore(w, stored, 0, w.narrow(element, stored), to.address,
              w.toIndex(number));
  });
}

static void emitLeading(const Words &w, const TileRow &row,
                        const FinishPolicy &policy, LeadingOp op) {
  Matrices from(w, row, op.getOperand()), to(w, row, op.getResult());
  Places places(to.columns, w.constantWord(1));
  places.addOuter({w.mul(from.items, from.rows), from.columns});
  copyPlaces(w, policy, from, places, to);
}

/// Where the routine's address is in StepcRoutines, in words.
static int64_t getRoutineWord(StringRef name) {
  size_t bytes = 0;
  if (name == "eigenvectors")
    bytes = offsetof(StepcRoutines, eigenvectors);
  else if (name == "orthonormal")
    bytes = offsetof(StepcRoutines, orthonormal);
  else if (name == "order")
    bytes = offsetof(StepcRoutines, order);
  else if (name == "flush")
    bytes = offsetof(StepcRoutines, flush);
  else
    llvm_unreachable("the runtime has no such routine");
  return int64_t(bytes / sizeof(int64_t));
}

void mlir::step::callRoutine(const Words &w, const RoutineCall &call) {
  std::string name = (kRoutinePrefix + call.name).str();
  Value routine = w.load(w.words(call.routines), getRoutineWord(call.name));
  SmallVector<Value> words{routine};
  llvm::append_range(words, call.arguments);
  func::FuncOp function = getSharedFunction(
      w, name, int64_t(words.size()), 0,
      [](const Words &inner, ValueRange words) {
        InvokeOp::create(inner.b, inner.loc, words.front(), words.drop_front());
      });
  func::CallOp::create(w.b, w.loc, function, words);
}

namespace {
/// A routine's memory, and how elements come there and from there.
struct RoutineEmitter {
  RoutineEmitter(const Words &w, const TileRow &row, const FinishPolicy &policy,
                 RoutineOpInterface op)
      : w(w), policy(policy), from(w, row, op->getOperand(0)),
        to(w, row, op->getResult(0)), f64(w.b.getF64Type()),
        call{row.routines, op.getRoutine(), {}} {
    for (int64_t buffer : row.storage.getRoutineMemory(op))
      memory.push_back(row.getWorkspaceAddress(buffer));
  }

  /// Widens a matrix's elements into the routine's.
  void widen(const Matrices &matrices, Value item, Value address) const {
    Matrix source = matrices.get(item, /*transposed=*/false);
    policy.forEach(matrices.getElements(), [&](Value number, Value) {
      Value place = w.toIndex(number);
      emitStore(w, f64, 0, loadElement(w, source, f64, place), address, place);
    });
  }
  /// Rounds the routine's elements into a result.
  void round(Value address, Value item, const Matrices &into) const {
    Type stored = into.type.getElement();
    Matrix own{address, f64, Value(), Value()};
    policy.forEach(into.getElements(), [&](Value number, Value) {
      Value place = w.toIndex(number);
      Value element = w.narrow(loadElement(w, own, f64, place), stored);
      emitStore(w, stored, 0, element, into.getAddress(item), place);
    });
  }
  void forEachItem(function_ref<void(Value)> emitOne) const {
    w.loop(w.constant(0), w.toIndex(to.items), 1,
           [&](Value index) { emitOne(w.toWord(index)); });
  }
  /// Each matrix widened into the routine's first memory, decomposed there, and
  /// rounded from where the routine leaves it. `emitMore` takes what it leaves
  /// elsewhere.
  void decompose(
      Value result, function_ref<void(Value)> emitMore = [](Value) {}) const {
    forEachItem([&](Value item) {
      widen(from, item, memory[0]);
      policy.call(call);
      round(result, item, to);
      emitMore(item);
    });
  }

  const Words &w;
  const FinishPolicy &policy;
  Matrices from, to;
  Type f64;
  RoutineCall call;
  SmallVector<Value> memory;
};
} // namespace

static void emitEigenvectors(const Words &w, const TileRow &row,
                             const FinishPolicy &policy, EigenvectorsOp op) {
  RoutineEmitter in(w, row, policy, op);
  in.call.arguments = {in.memory[0], in.from.rows, in.memory[1], in.memory[2]};
  Value vectors = in.memory[0], values = in.memory[2];
  if (!op.getValues())
    return in.decompose(vectors);
  Matrices rows(w, row, op.getValues());
  in.decompose(vectors, [&](Value item) { in.round(values, item, rows); });
}

static void emitOrthonormal(const Words &w, const TileRow &row,
                            const FinishPolicy &policy, OrthonormalOp op) {
  RoutineEmitter in(w, row, policy, op);
  in.call.arguments = {in.memory[0], in.from.rows, in.from.columns,
                       in.memory[1], in.memory[2]};
  in.decompose(/*result=*/in.memory[1]);
}

/// The routine says which column stands in each place.
static void emitSorted(const Words &w, const TileRow &row,
                       const FinishPolicy &policy, SortedOp op) {
  RoutineEmitter in(w, row, policy, op);
  Matrices keys(w, row, op.getKeys());
  in.call.arguments = {in.memory[0], in.from.columns, in.memory[1]};
  Type stored = in.to.type.getElement();
  // Of each element of a matrix its column.
  Places columns(in.to.columns, w.constantWord(1));
  columns.addOuter({in.to.rows, w.constantWord(0)});
  in.forEachItem([&](Value item) {
    in.widen(keys, item, in.memory[0]);
    policy.call(in.call);
    Matrix source = in.from.get(item, /*transposed=*/false);
    policy.forEach(columns, [&](Value number, Value column) {
      Value place = w.load(w.words(in.memory[1]), w.toIndex(column));
      Value from = w.add(w.sub(number, column), place);
      emitStore(w, stored, 0, loadElement(w, source, stored, w.toIndex(from)),
                in.to.getAddress(item), w.toIndex(number));
    });
  });
}

/// What an operation does, but where its `unless` holds.
static void emitUnless(const Words &w, const TileRow &row,
                       ProgramMatrixOpInterface op, function_ref<void()> emit) {
  if (Value unless = op.getUnless())
    w.branch(row.getScalar(unless), [] {}, emit);
  else
    emit();
}

namespace {
/// What a device hands over of a routine's operands, and takes of its results.
struct HandedEmitter {
  HandedEmitter(const Words &w, const TileRow &row, const FinishPolicy &policy,
                RoutineOpInterface op)
      : w(w), row(row), policy(policy), op(op),
        memory(row.storage.getHandedMemory(op)),
        record(row.getWorkspaceAddress(memory.record)),
        address(row.getWorkspaceAddress(memory.matrices)),
        type(getHandedType(op)),
        given(w, row, op->getOperand(isa<SortedOp>(op) ? 1 : 0)),
        from(w, row, op->getOperand(0)), to(w, row, op->getResult(0)) {}

  static Value countElements(const Words &w, const Matrices &matrices) {
    return w.mul(matrices.items, w.mul(matrices.rows, matrices.columns));
  }
  static Matrix getFlat(Value address, Type type) {
    return {address, type, Value(), Value()};
  }
  int64_t getNumber() const {
    return isa<EigenvectorsOp>(op)  ? STEPC_ROUTINE_EIGENVECTORS
           : isa<OrthonormalOp>(op) ? STEPC_ROUTINE_ORTHONORMAL
                                    : STEPC_ROUTINE_ORDER;
  }
  void emitRecord() const {
    Value words = w.words(record);
    auto store = [&](int64_t word, Value value) {
      w.store(value, words, w.constant(word));
    };
    store(STEPC_CALL_MATRICES, given.items);
    store(STEPC_CALL_ROUTINE, w.constantWord(getNumber()));
    store(STEPC_CALL_ROWS, given.rows);
    store(STEPC_CALL_COLUMNS, given.columns);
    store(STEPC_CALL_BYTES, w.constantWord(getBytes(type)));
    store(STEPC_CALL_ADDRESS, address);
    store(STEPC_CALL_VALUES, memory.values
                                 ? row.getWorkspaceAddress(*memory.values)
                                 : w.constantWord(0));
  }
  void give() const {
    Matrix source = getFlat(given.address, given.type.getElement());
    Places all(countElements(w, given), w.constantWord(1));
    policy.forEach(all, [&](Value number, Value) {
      Value place = w.toIndex(number);
      emitStore(w, type, 0, loadElement(w, source, type, place), address,
                place);
    });
    policy.byOne([&] { emitRecord(); });
  }
  /// Of each element the place of its column among those of its matrix.
  Value getPlace(Value number) const {
    if (!isa<SortedOp>(op))
      return number;
    Value column = w.rem(number, to.columns);
    Value item = w.div(number, w.mul(to.rows, to.columns));
    Value key = w.add(w.mul(item, to.columns), column);
    Value place = w.load(w.words(address), w.toIndex(key));
    return w.add(w.sub(number, column), place);
  }
  void take() const {
    Type stored = to.type.getElement();
    Matrix source = isa<SortedOp>(op)
                        ? getFlat(from.address, from.type.getElement())
                        : getFlat(address, type);
    Places all(countElements(w, to), w.constantWord(1));
    policy.forEach(all, [&](Value number, Value) {
      Value place = w.toIndex(getPlace(number));
      emitStore(w, stored, 0, loadElement(w, source, stored, place), to.address,
                w.toIndex(number));
    });
    if (memory.values)
      takeValues();
  }
  void takeValues() const {
    RoutineOpInterface own = op;
    auto eigen = cast<EigenvectorsOp>(own.getOperation());
    Matrices values(w, row, eigen.getValues());
    Type stored = values.type.getElement();
    Matrix source = getFlat(row.getWorkspaceAddress(*memory.values), type);
    Places all(countElements(w, values), w.constantWord(1));
    policy.forEach(all, [&](Value number, Value) {
      Value place = w.toIndex(number);
      emitStore(w, stored, 0, loadElement(w, source, stored, place),
                values.address, place);
    });
  }

  const Words &w;
  const TileRow &row;
  const FinishPolicy &policy;
  RoutineOpInterface op;
  HandedMemory memory;
  Value record, address;
  Type type;
  /// The operand that the routine gets, the one that it is about, the result.
  Matrices given, from, to;
};
} // namespace

void mlir::step::emitHanded(const Words &w, const TileRow &row,
                            const FinishPolicy &policy, RoutineOpInterface op) {
  emitUnless(w, row, cast<ProgramMatrixOpInterface>(op.getOperation()),
             [&] { HandedEmitter(w, row, policy, op).give(); });
}

void mlir::step::emitTaken(const Words &w, const TileRow &row,
                           const FinishPolicy &policy, RoutineOpInterface op) {
  emitUnless(w, row, cast<ProgramMatrixOpInterface>(op.getOperation()),
             [&] { HandedEmitter(w, row, policy, op).take(); });
}

void mlir::step::emitMatrices(const Words &w, const TileRow &row,
                              const FinishPolicy &policy,
                              ProgramMatrixOpInterface op) {
  emitUnless(w, row, op, [&] {
    TypeSwitch<Operation *>(op)
        .Case([&](ProductOp op) { emitProduct(w, row, policy, op); })
        .Case([&](TransposedOp op) { emitTransposed(w, row, policy, op); })
        .Case([&](LeadingOp op) { emitLeading(w, row, policy, op); })
        .Case([&](DiagonalsOp op) { emitDiagonals(w, row, policy, op); })
        .Case([&](EigenvectorsOp op) { emitEigenvectors(w, row, policy, op); })
        .Case([&](OrthonormalOp op) { emitOrthonormal(w, row, policy, op); })
        .Case([&](SortedOp op) { emitSorted(w, row, policy, op); })
        .Case([&](IndicesOp op) { emitIndices(w, row, policy, op); })
        .Case([&](NormalsOp op) { emitNormals(w, row, policy, op); });
  });
}
