//===- AssemblePTX.cpp - cubins -------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/CodeGen.h"
#include "passes/package/WriteFile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// A temporary file that is removed at the end of the scope.
struct TemporaryFile {
  llvm::SmallString<128> path;
  std::error_code code;
  llvm::FileRemover remover;

  explicit TemporaryFile(StringRef extension)
      : code(llvm::sys::fs::createTemporaryFile("stepc", extension, path)) {
    if (!code)
      remover.setFile(path);
  }
};
} // namespace

static llvm::Expected<std::string> readFile(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return llvm::createStringError(buffer.getError(),
                                   "cannot read '" + path +
                                       "': " + buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

llvm::Expected<std::string> mlir::step::assemblePTX(StringRef ptx,
                                                    const Target &target,
                                                    StringRef assembler) {
  TemporaryFile in("ptx"), out("cubin"), messages("log");
  for (const TemporaryFile *file : {&in, &out, &messages})
    if (file->code)
      return llvm::createStringError(
          file->code, "cannot make a temporary file: " + file->code.message());
  if (llvm::Error error = writeFile(in.path, ptx))
    return error;
  std::string arch = ("-arch=" + target.cpu).str();
  // Nothing may be fused; the text says so of each instruction already.
  StringRef arguments[] = {assembler, arch,     "--fmad=false",
                           "-o",      out.path, in.path};
  std::optional<StringRef> streams[] = {StringRef(), StringRef(messages.path),
                                        StringRef(messages.path)};
  std::string failure;
  int status = llvm::sys::ExecuteAndWait(assembler, arguments, std::nullopt,
                                         streams, /*SecondsToWait=*/300,
                                         /*MemoryLimit=*/0, &failure);
  if (status == 0)
    return readFile(out.path);
  if (failure.empty())
    if (auto text = readFile(messages.path))
      failure = StringRef(*text).trim().str();
  return llvm::createStringError("'" + assembler + "' assembles no code for " +
                                 target.name + ": " + failure);
}
