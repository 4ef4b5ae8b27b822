//===- Explain.cpp - the schedule of an optimizer, in words ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/Explain.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;

/// The words, of what is called so in the document: an object, or each item of
/// a list. Lists of lines follow each other, others have commas between items.
///
///     {name}       the member, `a.b` that of a member; {name+} with "+"
///     between
///                  its items, {name;} with ";", {name&} with " + "
///     {name#round} so many: "1 round", "2 rounds"
///     {name~}      a number of three digits behind the point at most
///     [one|other]  `one` where all of its members are there, else `other`, or
///                  nothing. What is false or empty is not there
///     {?name}      says nothing, and is not there where it is 0 either
static StringRef getPattern(StringRef name) {
  return llvm::StringSwitch<StringRef>(name)
      .Case("explanation",
            "{statistics}{scalars}{reports}{programs}[{ranks}]{layouts}")
      .Case("statistics", "statistic {name}: {kind} over {scope}\n")
      .Case("scalars", "scalar {name}: kept over {scope}, {init} at first\n")
      .Case("reports", "report {name}: over {scope}\n")
      // Programs.
      .Case("programs",
            "{name}: rule {rule}[, {options}], computed in {compute}"
            "[, {layout}]\n"
            "  scalar row: {row} values, computed once for each group and step "
            "count\n"
            "{entries}"
            "  in all: {kernels#kernel}, {bytes.moved} bytes per parameter"
            "[, {bytes.needed} where what may be left out is]"
            "; least possible {bytes.least}\n"
            "[{?work_of_all}  products and decompositions of a tensor:\n]"
            "{work_of_all}"
            "{owners}"
            "[{?layout}  across ranks: [{exchanged.bytes} bytes|nothing]"
            " of a tensor, in {exchanged.rounds#round}\n]"
            "[{?tiled}  partial sums beside them: {bytes.partial~} bytes per "
            "parameter written, and as many read\n"
            "  read again: [{read_again;}|nothing]\n"
            "  read back: [{read_back;}|nothing]\n"
            "  recomputed: [{recomputed;}|nothing]\n]")
      .Cases({"read_again", "read_back", "recomputed"}, "{value} in {entries}")
      .Case("owners",
            "  with {layout} one rank steps the whole tensor: of an element "
            "that another has {there} bytes go to it, and {back} back"
            "[; {vectors} both ways][ ({place})]\n")
      .Cases({"layout", "param", "gradient", "states"},
             "[{dim}|a range of elements] over {axes+}")
      // Entries.
      .Case("begins", "  segment {segment}: {values#value} of the scalar row\n")
      .Case("kernel",
            "{begins}"
            "  kernel {name}: {operations} operations fused ({computes})\n"
            "[    left out where {unless} is not 0\n]"
            "[{?trails}    trails the kernel before it, by 16 rows or more, on "
            "a processor\n]"
            "    reads  {bytes.reads} bytes per parameter: "
            "[{full_reads}|nothing]\n"
            "    writes {bytes.writes} bytes per parameter: "
            "[{full_writes}|nothing]\n"
            "[    reads vectors: {vector_reads}\n]"
            "[    writes vectors: {vector_writes}\n]"
            "[    leaves partial sums, {bytes.partial~} bytes per parameter "
            "where dims are long: {partial_accumulates}\n]")
      .Case("finish", "{begins}  finish {name}, once for a tensor"
                      "[{?operations}: {operations#operation} on vectors and "
                      "scalars ({computes})]\n"
                      "[    receives from ranks {receives}\n]"
                      "[    combines {combines}\n]"
                      "[    sends to ranks {sends}\n]"
                      "{work}"
                      "[    reads vectors: {vector_reads}\n]"
                      "[    writes vectors: {vector_writes}\n]"
                      "[    contributes to {contributes}\n]")
      .Case("work", "    {op}, {count#time}: {flops} FLOPs each, reads "
                    "{reads} bytes, writes {writes}[, {steps}]\n")
      .Case("work_of_all",
            "    [{steps}|in every step]: {flops} FLOPs, reads {reads} bytes, "
            "writes {writes}\n")
      .Case("computes", "{count} {op}")
      .Cases({"receives", "combines"}, "{from&} ({kind}) into {to}")
      .Case("sends", "{from&} ({kind}) as {to}")
      .Case("contributes", "{statistic}[ a rank's part of {part}]")
      .Case("round", "{begins}  {name}, once for all tensors"
                     "[{?calls}|[{?exchanges}|: nothing]]\n{exchanges}{calls}")
      .Case("exchanges",
            "    reduces over {axes+} by {op} {words#word} of a tensor\n{of}")
      .Case("of", "      {name}, {words#word}: {value}\n")
      .Case("exchange",
            "  {name} of the {of} over {axes+}: [{wire} bytes of an element "
            "cross|nothing crosses][{?overlaps}, while other buckets are "
            "stepped]\n")
      .Case("calls",
            "    {function} over {scope}: reads "
            "[{statistics}[{?scalars}, ]]{scalars}"
            "[{?statistics}|[{?scalars}|nothing]], yields {results#value}"
            "[, updates {updates}][, reports {reports}]"
            "[{?may_skip}, may skip the step]\n")
      .Case("updates", "{scalar}[{?always} always]")
      // What the ranks of a mesh do together, for all programs.
      .Case("ranks",
            "across ranks: {rounds#round}[, at most {reductions#call} in a "
            "step, whatever the number of tensors|"
            "[{?elementwise}, whatever the layout| in these layouts]]\n"
            "{reductions}")
      .Case("reductions",
            "  round {round}: {op} over [{axes+}|all axes] of {of}\n")
      // Files of layouts.
      .Case("layouts", "{file}: mesh [{mesh}, |of ]{ranks#rank}\n{tensors}"
                       "  around the step: {calls#call} where buckets hold all"
                       "[{?sent}, a rank sends {sent} bytes"
                       "[{?partial} of the tensors whose shape is known]]\n")
      .Case("mesh", "{axis} {ranks}")
      .Case("tensors",
            "  {name}[, {count} tensors][, shape ({shape})]\n"
            "    param on entry and on exit: [{param}|whole]\n"
            "    gradient: [{gradient}|whole][, to be summed over {partial+}]"
            "[, divided by {divisor} {divided} the sum]\n"
            "    states on entry and on exit, and the step: "
            "[{states}|whole]\n{crossings}")
      .Case("crossings",
            "    {when}: {operation} of {what} over {axes+}, {bytes} bytes of "
            "an element[, a rank sends {sent} bytes]\n")
      .Default("");
}

static std::string fill(StringRef &pattern, const json::Object &object,
                        bool &isWhole);

static std::string fill(StringRef name, const json::Object &object) {
  bool isWhole = true;
  StringRef pattern = getPattern(name);
  return fill(pattern, object, isWhole);
}

/// A member, or an item of a list, that is called `name`.
static std::string toText(const json::Value &value, StringRef name,
                          char form = 0) {
  if (std::optional<StringRef> text = value.getAsString())
    return text->str();
  if (std::optional<bool> is = value.getAsBoolean())
    return *is ? "true" : "false";
  if (std::optional<int64_t> number = value.getAsInteger())
    return std::to_string(*number);
  if (std::optional<double> number = value.getAsNumber()) {
    std::string digits;
    llvm::raw_string_ostream(digits) << llvm::format("%g", *number);
    return form != '~' ? digits
                       : StringRef(llvm::formatv("{0:f3}", *number).str())
                             .rtrim('0')
                             .rtrim('.')
                             .str();
  }
  SmallVector<std::string> parts;
  if (const json::Object *object = value.getAsObject()) {
    if (!getPattern(name).empty())
      return fill(name, *object);
    for (auto &[key, member] : *object)
      parts.push_back(key.str() + "=" + toText(member, key));
    llvm::sort(parts); // a map has no order
  } else if (const json::Array *items = value.getAsArray()) {
    for (const json::Value &item : *items) {
      const json::Object *entry = item.getAsObject();
      parts.push_back(toText(
          item, name == "entries" && entry ? *entry->getString("kind") : name));
    }
  }
  bool isLines = !parts.empty() && StringRef(parts.front()).ends_with("\n");
  return llvm::join(parts, isLines       ? ""
                           : form == '+' ? "+"
                           : form == ';' ? "; "
                           : form == '&' ? " + "
                                         : ", ");
}

static bool isThere(const json::Value &value, bool isTest) {
  if (const json::Array *items = value.getAsArray())
    return !items->empty();
  if (const json::Object *object = value.getAsObject())
    return !object->empty();
  return value.getAsString().value_or("") != "" ||
         (isTest ? value.getAsNumber().value_or(0) != 0
                 : value.getAsNumber().has_value()) ||
         value.getAsBoolean().value_or(false);
}

/// What stands in braces.
static std::string fillMember(StringRef text, const json::Object &object,
                              bool &isWhole) {
  bool isTest = text.consume_front("?");
  auto [path, word] = text.split('#');
  char form = StringRef("+;&~").contains(path.back()) ? path.back() : 0;
  path = form ? path.drop_back() : path;
  auto [outer, inner] = path.split('.');
  const json::Object *owner = inner.empty() ? &object : object.getObject(outer);
  StringRef name = inner.empty() ? outer : inner;
  const json::Value *value = owner ? owner->get(name) : nullptr;
  isWhole &= value && isThere(*value, isTest);
  if (!value || isTest)
    return "";
  const json::Array *items = value->getAsArray();
  if (word.empty())
    return toText(*value, name, form);
  std::string count =
      items ? std::to_string(items->size()) : toText(*value, name);
  return (count + " " + word + (count == "1" ? "" : "s")).str();
}

/// Fills a pattern up to its end, or to what ends the bracket that it is in.
/// Says whether all members were there.
static std::string fill(StringRef &pattern, const json::Object &object,
                        bool &isWhole) {
  std::string text;
  while (!pattern.empty() && pattern.front() != '|' && pattern.front() != ']') {
    if (pattern.consume_front("{")) {
      StringRef member = pattern.take_until([](char c) { return c == '}'; });
      text += fillMember(member, object, isWhole);
      pattern = pattern.drop_front(member.size() + 1);
    } else if (pattern.consume_front("[")) {
      bool hasAll = true, hasOther = true;
      std::string all = fill(pattern, object, hasAll), other;
      if (pattern.consume_front("|"))
        other = fill(pattern, object, hasOther);
      pattern.consume_front("]");
      text += hasAll ? all : other;
    } else {
      size_t size = pattern.find_first_of("{[|]");
      text += pattern.take_front(size);
      pattern = pattern.drop_front(std::min(size, pattern.size()));
    }
  }
  return text;
}

/// Puts memory in words into lists of the entry, such as `full_reads` and
/// `partial_accumulates`: "param f32", "temp0 f32[...b, n, 1]".
static void nameMemory(const json::Array &memory, json::Object &entry) {
  const json::Array none, *cached = entry.getArray("cached");
  for (StringRef list : {"reads", "writes", "accumulates"}) {
    const json::Array *indices = entry.getArray(list);
    for (const json::Value &index : indices ? *indices : none) {
      const json::Object &one = *memory[*index.getAsInteger()].getAsObject();
      StringRef kind = *one.getString("kind");
      StringRef extent = kind == "full" ? "" : *one.getString("extent");
      bool isCached =
          cached && list == "reads" && llvm::is_contained(*cached, index);
      json::Value &names =
          entry.try_emplace((kind + "_" + list).str(), json::Array())
              .first->second;
      names.getAsArray()->push_back((*one.getString("name") + " " +
                                     *one.getString("storage") +
                                     (kind == "partial" ? " " : "") + extent +
                                     (isCached ? " (in the cache)" : ""))
                                        .str());
    }
  }
}

/// Puts into the first entry of a segment what it `begins`. A segment is worth
/// a line where there is more than one.
static void nameSegments(const json::Array &rows, json::Array &entries) {
  int64_t segment = -1;
  for (json::Value &item : entries) {
    json::Object &entry = *item.getAsObject();
    json::Array begins;
    while (rows.size() > 1 && segment < *entry.getInteger("segment"))
      begins.push_back(json::Object{{"segment", ++segment},
                                    {"values", *rows[segment].getAsInteger()}});
    entry["begins"] = std::move(begins);
  }
}

std::string mlir::step::explainAsText(json::Object explanation) {
  for (json::Value &item : *explanation.getArray("programs")) {
    json::Object &program = *item.getAsObject();
    json::Array &entries = *program.getArray("entries");
    for (json::Value &entry : entries)
      nameMemory(*program.getArray("memory"), *entry.getAsObject());
    nameSegments(*program.getArray("rows"), entries);
  }
  return fill("explanation", explanation);
}
