//===- PermuteWords.cpp - bf16 widened by one instruction -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/PermuteWords.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PatternMatch.h"

using namespace llvm;
using namespace llvm::PatternMatch;

/// The words that the instruction makes the upper halves of 16 i32; else null.
static Value *matchWidened(Instruction &instruction) {
  Value *words;
  auto *type = dyn_cast<FixedVectorType>(instruction.getType());
  if (!type || type->getNumElements() != 16 ||
      !type->getElementType()->isIntegerTy(32) ||
      !match(&instruction, m_Shl(m_ZExt(m_Value(words)), m_SpecificInt(16))))
    return nullptr;
  return words->getType()->getScalarType()->isIntegerTy(16) ? words : nullptr;
}

void mlir::step::permuteWords(Module &module) {
  SmallVector<int> interleaved;
  for (int k = 0; k < 16; ++k)
    interleaved.append({k, 16 + k});
  for (Function &function : module)
    for (Instruction &shift : make_early_inc_range(instructions(function))) {
      Value *words = matchWidened(shift);
      if (!words)
        continue;
      IRBuilder<> builder(&shift);
      auto *zeros = Constant::getNullValue(words->getType());
      Value *pairs = builder.CreateShuffleVector(zeros, words, interleaved);
      shift.replaceAllUsesWith(builder.CreateBitCast(pairs, shift.getType()));
      shift.eraseFromParent();
    }
}
