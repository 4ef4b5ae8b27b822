//===- UnusedTargets.cpp - code generators that are not linked ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// lld names every code generator and extension that LLVM was built with, for
// inputs that are LLVM's bitcode. Ours are objects, and of two kinds of
// machine. Here those names stand for nothing, so the archives behind them stay
// out: a compiler of 69 MB in place of 144.
//
//===----------------------------------------------------------------------===//
#include "llvm/Plugins/PassPlugin.h"

#define STEPC_UNUSED_TARGET(NAME)                                              \
  extern "C" void LLVMInitialize##NAME##TargetInfo() {}                        \
  extern "C" void LLVMInitialize##NAME##Target() {}                            \
  extern "C" void LLVMInitialize##NAME##TargetMC() {}                          \
  extern "C" void LLVMInitialize##NAME##AsmPrinter() {}                        \
  extern "C" void LLVMInitialize##NAME##AsmParser() {}
// A line for each of LLVM's targets but X86 and NVPTX, by
// passes/CMakeLists.txt.
#include "passes/package/UnusedTargets.def"

#define HANDLE_EXTENSION(NAME)                                                 \
  llvm::PassPluginLibraryInfo get##NAME##PluginInfo() {                        \
    return {LLVM_PLUGIN_API_VERSION, #NAME, "", [](llvm::PassBuilder &) {}};   \
  }
#include "llvm/Support/Extension.def"
