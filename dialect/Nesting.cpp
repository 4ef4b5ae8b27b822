//===- Nesting.cpp - how deep a source may nest ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "dialect/Nesting.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"

using namespace mlir;
using namespace mlir::step;

/// The text behind a string that begins it, or a comment.
static StringRef skipQuoted(StringRef text) {
  if (text.front() == '/')
    return text.drop_while([](char c) { return c != '\n'; });
  text = text.drop_front();
  while (!text.empty() && text.front() != '"' && text.front() != '\n')
    text = text.drop_front(text.front() == '\\' ? 2 : 1);
  return text.drop_front(!text.empty());
}

/// The place of the first bracket that is too deep; null where none is.
static const char *findTooDeep(StringRef text) {
  int64_t depth = 0;
  while (!text.empty()) {
    char c = text.front();
    if (c == '"' || text.starts_with("//")) {
      text = skipQuoted(text);
      continue;
    }
    if (text.starts_with("->") || text.starts_with(">=") ||
        text.starts_with("<=")) {
      text = text.drop_front(2);
      continue;
    }
    if (StringRef("{([<").contains(c) && ++depth > kMostNested)
      return text.data();
    if (StringRef("})]>").contains(c))
      depth = std::max<int64_t>(depth - 1, 0);
    text = text.drop_front();
  }
  return nullptr;
}

LogicalResult mlir::step::checkNesting(const llvm::SourceMgr &sources,
                                       unsigned id, MLIRContext *context) {
  const llvm::MemoryBuffer *buffer = sources.getMemoryBuffer(id);
  const char *place = findTooDeep(buffer->getBuffer());
  if (!place)
    return success();
  auto [line, column] =
      sources.getLineAndColumn(llvm::SMLoc::getFromPointer(place), id);
  return emitError(FileLineColLoc::get(context, buffer->getBufferIdentifier(),
                                       line, column))
         << "nests deeper than " << kMostNested << " brackets";
}
