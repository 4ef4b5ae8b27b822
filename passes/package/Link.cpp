//===- Link.cpp - shared objects ------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/CodeGen.h"
#include "passes/package/WriteFile.h"

#include "lld/Common/Driver.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

using namespace mlir;
using namespace mlir::step;

namespace {
/// A directory that is gone when it goes out of scope.
class TemporaryDirectory {
public:
  ~TemporaryDirectory() {
    if (!path.empty())
      llvm::consumeError(
          llvm::errorCodeToError(llvm::sys::fs::remove_directories(path)));
  }
  std::error_code create() {
    return llvm::sys::fs::createUniqueDirectory("stepc", path);
  }
  std::string file(StringRef name) const {
    llvm::SmallString<128> full(path);
    llvm::sys::path::append(full, name);
    return full.str().str();
  }

private:
  llvm::SmallString<128> path;
};
} // namespace

llvm::Expected<std::string>
mlir::step::linkSharedObject(const ObjectFiles &objects) {
  TemporaryDirectory directory;
  if (std::error_code code = directory.create())
    return llvm::createStringError(code,
                                   "cannot make a directory for temporary "
                                   "files: " +
                                       code.message());
  std::vector<std::string> inputs;
  for (const auto &object : objects) {
    inputs.push_back(
        directory.file("kernels" + std::to_string(inputs.size()) + ".o"));
    if (llvm::Error error =
            writeFile(inputs.back(), StringRef(object.data(), object.size())))
      return error;
  }
  std::string output = directory.file("kernels.so");
  std::vector<const char *> arguments = {
      "ld.lld",        "-shared",         "-o",
      output.c_str(),  "--no-undefined",  "--strip-all",
      "--gc-sections", "--build-id=none", "--hash-style=gnu",
      "-znoexecstack", "-ztext",          "-znow"};
  for (const std::string &input : inputs)
    arguments.push_back(input.c_str());
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  lld::Result result =
      lld::lldMain(arguments, stream, stream, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    return llvm::createStringError("the linker failed: " + messages);
  auto buffer = llvm::MemoryBuffer::getFile(output);
  if (!buffer)
    return llvm::createStringError(buffer.getError(),
                                   "cannot read '" + output +
                                       "': " + buffer.getError().message());
  return (*buffer)->getBuffer().str();
}
