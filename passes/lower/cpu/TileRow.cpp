//===- TileRow.cpp - a row of the table in the tiles space ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cpu/TileRow.h"

#include "stepc/kernel_abi.h"

#include <cstddef>

using namespace mlir;
using namespace mlir::step;

static_assert(offsetof(StepcCall, workspace) == 24 && sizeof(StepcCall) == 32,
              "the kernels read these structures as 64-bit words");

TileRow::TileRow(const Words &w, ProgramOp program, Value call, Value index)
    : w(w), program(program) {
  Value callWords = w.words(call);
  Value rowBytes = w.mul(w.load(callWords, 1), w.constantWord(8));
  workspace = w.load(callWords, 3);
  rowAddress = w.add(w.load(callWords, int64_t(0)), w.mul(index, rowBytes));
  row = w.words(rowAddress);
  scalars = w.load(row, STEPC_ROW_SCALARS);
  tensorSlots = w.load(row, STEPC_TILE_SLOTS);
  B = w.load(row, STEPC_TILE_B);
  N = w.load(row, STEPC_TILE_N);
  M = w.load(row, STEPC_TILE_M);
  rowBlocks = w.ceilDiv(N, STEPC_ROW_LEAF);
  tileColumns = w.ceilDiv(M, STEPC_TILE_COLUMNS);
  leaves = w.ceilDiv(M, STEPC_LEAF);
}

int64_t TileRow::getIndex(OperandAttr operand) const {
  ProgramOp op = program;
  for (auto [k, own] :
       llvm::enumerate(op.getOperands().getAsRange<OperandAttr>()))
    if (own.getKind() == operand.getKind() &&
        own.getName() == operand.getName())
      return k;
  llvm_unreachable("a phase's operands are the program's");
}

Value TileRow::getAddress(OperandAttr operand) const {
  if (operand.getKind() == RoleKind::Temp)
    return getBuffer(operand.getName());
  return w.load(row, STEPC_TILE_OPERANDS + getIndex(operand));
}

Value TileRow::getBuffer(StringRef name) const {
  ProgramOp op = program;
  int64_t index = op.findBuffer(name);
  auto buffer = cast<BufferAttr>(op.getWorkspace()[index]);
  Value word = w.load(row, STEPC_TILE_OPERANDS +
                               int64_t(op.getOperands().size()) + index);
  return buffer.getLive() ? word : w.add(workspace, word);
}

Value TileRow::getRank() const { return w.load(row, STEPC_ROW_RANK); }

Value TileRow::getExtents() const {
  ProgramOp op = program;
  int64_t words =
      STEPC_TILE_OPERANDS + op.getOperands().size() + op.getWorkspace().size();
  return w.add(rowAddress, w.constantWord(8 * words));
}

Value TileRow::getStrides(OperandAttr operand) const {
  Value words = w.mul(getRank(), w.constantWord(8 * (1 + getIndex(operand))));
  return w.add(getExtents(), words);
}
