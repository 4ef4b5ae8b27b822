//===- WriteFile.cpp - files that are whole, or an error ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/WriteFile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <system_error>

llvm::Error mlir::step::writeFile(llvm::StringRef path, llvm::StringRef bytes) {
  bool isStandardOutput = path == "-";
  std::error_code code;
  llvm::raw_fd_ostream stream(path, code);
  if (!code) {
    stream << bytes;
    // Closing reports what the system noticed late; standard output stays open.
    if (isStandardOutput)
      stream.flush();
    else
      stream.close();
    code = stream.error();
    // An error that nobody clears ends the process.
    stream.clear_error();
    // The first error is the one to tell.
    if (code && !isStandardOutput && llvm::sys::fs::is_regular_file(path))
      llvm::consumeError(llvm::errorCodeToError(llvm::sys::fs::remove(path)));
  }
  if (!code)
    return llvm::Error::success();
  std::string name =
      isStandardOutput ? "standard output" : "'" + path.str() + "'";
  return llvm::createStringError(code, "cannot write " + name + ": " +
                                           code.message());
}
