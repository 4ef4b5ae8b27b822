//===- CodeEmitter.h - codes of states on a device --------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels of codes: what they load and store (CodeKernels.cpp), and what the
// formats make of it (CodeFormats.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CUDA_CODEEMITTER_H
#define STEPC_PASSES_LOWER_CUDA_CODEEMITTER_H

#include "passes/lower/Words.h"

#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <array>
#include <functional>

namespace mlir::step {

inline constexpr int64_t kCodeBlock = STEPC_CODES_BLOCK;
/// Elements of a thread, and threads of a block of codes.
inline constexpr int64_t kCodeLanes = 4, kCodeThreads = kCodeBlock / kCodeLanes;
inline constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

/// Of a block of codes that half a warp has: addresses of what the thread has
/// of it. `size` of an idle half is 0.
struct CodeBlock {
  Value values, codes, scale;
  /// Elements of the block, as a word.
  Value size;
  /// Whether all there are can be accessed at once.
  Value whole;
};

/// How codes lie (CodeWords of numerics/Codes.h).
struct CodeWidth {
  int64_t bits;
  /// Codes in an integer, with which each row begins.
  int64_t perWord;
};
inline constexpr CodeWidth kByte = {8, 1}, kFourBits = {4, 8};

class CodeEmitter {
public:
  using Numbers = std::array<Value, kCodeLanes>;

  CodeEmitter(const Words &w, CodeWidth width)
      : w(w), width(width), i32(w.b.getI32Type()), f32(w.b.getF32Type()) {}

  void emitKernel(StringRef name,
                  function_ref<void(const CodeBlock &)> emitBlock) const;
  /// What a number of 32 bits becomes, of those of one block.
  using Each = std::function<Value(Value)>;
  /// The bits of the scale, and of each number's code the lowest ones.
  struct Encoding {
    Value scale;
    Each encodeOne;
  };
  void decode(const CodeBlock &block,
              Each (CodeEmitter::*begin)(Value) const) const;
  void encode(const CodeBlock &block,
              Encoding (CodeEmitter::*begin)(const Numbers &, Value)
                  const) const;
  // The formats.
  Each decodeRoot4(Value scale) const;
  Encoding encodeRoot4(const Numbers &values, Value top) const;
  Each decodeFloat8(Value scale) const;
  Encoding encodeFloat8(const Numbers &values, Value top) const;
  Each decodeFourBits(Value scale) const;
  Encoding encodeFourBits(const Numbers &values, Value top) const;

private:
  Value integer(int32_t value) const {
    return arith::ConstantOp::create(w.b, w.loc, w.b.getI32IntegerAttr(value));
  }
  Value number(float value) const {
    return arith::ConstantOp::create(w.b, w.loc, w.b.getF32FloatAttr(value));
  }
  Value toBits(Value value) const {
    return arith::BitcastOp::create(w.b, w.loc, i32, value);
  }
  Value toFloat(Value bits) const {
    return arith::BitcastOp::create(w.b, w.loc, f32, bits);
  }
  Value product(Value x, Value y) const {
    return arith::MulFOp::create(w.b, w.loc, x, y);
  }
  Value shiftLeft(Value bits, int64_t count) const {
    return arith::ShLIOp::create(w.b, w.loc, bits, integer(int32_t(count)));
  }
  Value shiftRight(Value bits, int64_t count) const {
    return arith::ShRUIOp::create(w.b, w.loc, bits, integer(int32_t(count)));
  }
  Value sum(Value x, Value y) const {
    return arith::AddFOp::create(w.b, w.loc, x, y);
  }
  Value root(Value x) const { return math::SqrtOp::create(w.b, w.loc, x); }
  Value thread() const;
  /// Whether the thread has element `k` of its four.
  Value has(const CodeBlock &block, int64_t k) const;
  /// All numbers are of 32 bits; those of floats are their bits.
  Numbers load(const CodeBlock &block, Type type, Value address,
               function_ref<Numbers()> emitWhole) const;
  void store(const CodeBlock &block, Value address, Numbers elements,
             function_ref<void()> emitWhole) const;
  Numbers loadCodes(const CodeBlock &block) const;
  void storeCodes(const CodeBlock &block, const Numbers &codes) const;
  /// The bytes of so many elements of a row, from the begin of a block on.
  Value getCodeBytes(Value elements) const;
  CodeBlock locate(ArrayRef<Value> entry, Value number) const;
  Each beginRoots(Value rate) const;
  Value reduce(Value value,
               function_ref<Value(Value, Value)> emitCombined) const;

  Words w;
  CodeWidth width;
  Type i32, f32;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CUDA_CODEEMITTER_H
