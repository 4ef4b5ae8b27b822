//===- FileMessages.cpp - what is said of a file that is parsed -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/FileMessages.h"

#include "dialect/StepParsers.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::step;

static bool isOfName(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '$' || c == '.' || c == '-';
}

/// A value's name with its '%' at the begin of the text; empty: there is none.
static StringRef takeValue(StringRef text) {
  if (!text.starts_with("%"))
    return {};
  size_t size = 1;
  while (size < text.size() && isOfName(text[size]))
    ++size;
  return text.take_front(size);
}

/// Whether a name that ends before the text is defined there: `%x = ...`, or
/// `%x: param[*]` of a rule's arguments. A use has a space before its colon.
static bool isDefinition(StringRef behind) {
  return behind.starts_with(":") || behind.ltrim(' ').starts_with("=");
}

/// The text from a place of the file on; empty where it has no such place.
static StringRef getTextAt(StringRef text, FileLineColLoc place) {
  for (unsigned line = 1; line < place.getLine(); ++line) {
    size_t end = text.find('\n');
    if (end == StringRef::npos)
      return {};
    text = text.substr(end + 1);
  }
  return text.substr(std::min<size_t>(place.getColumn() - 1, text.size()));
}

/// Of a name that no operation before it in its body defines.
static std::string describeUndefined(StringRef text, StringRef name) {
  std::string said = ("'" + name + "' is no value here").str(), nearest;
  unsigned least = std::max<unsigned>(1, (name.size() - 1) / 3) + 1;
  unsigned line = 1;
  for (size_t at = 0; at < text.size(); ++at) {
    line += text[at] == '\n';
    StringRef other = takeValue(text.substr(at));
    if (other.size() < 2 || !isDefinition(text.substr(at + other.size())))
      continue;
    if (other == name)
      return said + "; line " + std::to_string(line) +
             " defines one, of another body or behind its use";
    unsigned distance = name.edit_distance(other, true, least);
    if (distance < least) {
      least = distance;
      nearest = other.str();
    }
  }
  return nearest.empty() ? said : said + "; the nearest is '" + nearest + "'";
}

/// Of an outermost operation that nobody knows.
static std::string describeOutermost(MLIRContext *context, StringRef name) {
  context->getOrLoadDialect("step"); // nothing in the file may have been of it
  return name.consume_front("step.") ? describeUnknown(context, name)
                                     : describeOther(context, name);
}

/// What MLIR's message means; empty where it is as it should be.
static std::string reword(const Diagnostic &diagnostic, StringRef text,
                          MLIRContext *context) {
  std::string said = diagnostic.str();
  StringRef message = said;
  if (message == "use of undeclared SSA value name") {
    auto place = dyn_cast<FileLineColLoc>(diagnostic.getLocation());
    StringRef name = place ? takeValue(getTextAt(text, place)) : StringRef();
    return name.empty() ? std::string() : describeUndefined(text, name);
  }
  if (message.consume_front("custom op '") && message.contains("' is unknown"))
    return describeOutermost(
        context, message.take_until([](char c) { return c == '\''; }));
  return "";
}

FileMessages::FileMessages(const llvm::SourceMgr &sources, MLIRContext *context)
    : handler(context, [&sources, context](Diagnostic &diagnostic) {
        StringRef text =
            sources.getMemoryBuffer(sources.getMainFileID())->getBuffer();
        std::string words = reword(diagnostic, text, context);
        if (!words.empty()) {
          diagnostic =
              Diagnostic(diagnostic.getLocation(), diagnostic.getSeverity());
          diagnostic << words;
        }
        return failure(); // to the tool's own
      }) {}
