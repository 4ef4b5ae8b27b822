//===- CodeLoader.h - machine code from memory into the process -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_CODELOADER_H
#define STEPC_CPU_CODELOADER_H

#include <string_view>

namespace stepc::cpu {

/// A shared object that lives in memory only: no temporary file that could be
/// left behind, or changed between the check of its hash and its use.
class LoadedCode {
public:
  LoadedCode() = default;
  ~LoadedCode();
  LoadedCode(const LoadedCode &) = delete;
  LoadedCode &operator=(const LoadedCode &) = delete;

  /// Opens the shared object `bytes`; `what` names it in messages. May be
  /// called once.
  void open(std::string_view bytes, const char *what);

  /// Throws STEPC_CORRUPT_PACKAGE when there is no such symbol.
  void *getSymbol(const char *name) const;

private:
  void writeSealed(std::string_view bytes);

  const char *what = "";
  /// Stays open as long as `handle`: the loader knows objects by name, and
  /// the name is /proc/self/fd/<descriptor>. Were the number used again, the
  /// next package would get this one's code.
  int descriptor = -1;
  void *handle = nullptr;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_CODELOADER_H
