//===- CheckSharedObject.cpp - what a shared object may not need ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/CodeGen.h"

#include "llvm/Object/ELFObjectFile.h"

using namespace mlir;
using namespace mlir::step;
using llvm::object::ELF64LE;

static llvm::Error refuse(const Twine &message) {
  return llvm::createStringError("the linked kernels " + message);
}

/// Everything that a kernel calls is inside.
static llvm::Error checkSymbols(const llvm::object::ELF64LEObjectFile &file) {
  for (const llvm::object::ELFSymbolRef symbol :
       file.getDynamicSymbolIterators()) {
    llvm::Expected<uint32_t> flags = symbol.getFlags();
    if (!flags)
      return flags.takeError();
    if (!(*flags & llvm::object::SymbolRef::SF_Undefined))
      continue;
    llvm::Expected<StringRef> name = symbol.getName();
    if (!name)
      return name.takeError();
    if (!name->empty())
      return refuse("need the undefined symbol '" + *name + "'");
  }
  return llvm::Error::success();
}

/// Loading runs nothing and loads nothing else.
static llvm::Error checkDynamic(const llvm::object::ELF64LEObjectFile &file) {
  auto entries = file.getELFFile().dynamicEntries();
  if (!entries)
    return entries.takeError();
  for (const auto &entry : *entries) {
    switch (entry.getTag()) {
    case llvm::ELF::DT_NEEDED:
      return refuse("need another library");
    case llvm::ELF::DT_INIT:
    case llvm::ELF::DT_FINI:
    case llvm::ELF::DT_INIT_ARRAY:
    case llvm::ELF::DT_FINI_ARRAY:
    case llvm::ELF::DT_PREINIT_ARRAY:
      return refuse("have code that runs when they are loaded or unloaded");
    case llvm::ELF::DT_TEXTREL:
      return refuse("have relocations in their code");
    default:
      break;
    }
  }
  return llvm::Error::success();
}

static llvm::Error checkSegments(const llvm::object::ELF64LEObjectFile &file) {
  auto headers = file.getELFFile().program_headers();
  if (!headers)
    return headers.takeError();
  for (const auto &header : *headers)
    if ((header.p_flags & llvm::ELF::PF_W) &&
        (header.p_flags & llvm::ELF::PF_X))
      return refuse("have memory that is writable and executable");
  return llvm::Error::success();
}

llvm::Error mlir::step::checkSharedObject(StringRef bytes) {
  auto file = llvm::object::ELF64LEObjectFile::create(
      llvm::MemoryBufferRef(bytes, "kernels"));
  if (!file)
    return file.takeError();
  if (llvm::Error error = checkSymbols(*file))
    return error;
  if (llvm::Error error = checkDynamic(*file))
    return error;
  return checkSegments(*file);
}
