//===- Zip.h - members of a zip file ----------------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TOOLS_STEPC_RUN_ZIP_H
#define STEPC_TOOLS_STEPC_RUN_ZIP_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <map>
#include <string>

namespace stepc::run {

/// An error with this message.
llvm::Error makeError(const llvm::Twine &message);

/// The file's bytes; errors name the file.
llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>>
readFile(llvm::StringRef path);

/// The members of a zip file by name, inflated and with their checksums
/// checked. Zip64 and encryption are refused. Errors name the member.
llvm::Expected<std::map<std::string, std::string>>
readZip(llvm::StringRef bytes);

/// Writes the members to a zip file, stored as they are.
llvm::Error writeZip(llvm::StringRef path,
                     const std::map<std::string, std::string> &members);

} // namespace stepc::run

#endif // STEPC_TOOLS_STEPC_RUN_ZIP_H
