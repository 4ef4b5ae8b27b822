//===- ExplainSvg.cpp - what a compiled step does, as a picture -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/Explain.h"
#include "passes/package/ExplainStyle.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::step;

using EntryKind = ExplainedEntry::Kind;
using MemoryKind = ExplainedMemory::Kind;

/// All text is in a fixed width, so that its extent is known: these are the
/// widest of common fonts, for 12 and 11 pixels.
static constexpr double kChar = 7.4, kSmallChar = 6.8;
static constexpr int64_t kMargin = 20, kLine = 17, kLane = 26, kGap = 16;
/// Wide enough for a label beside each of a column's two lines.
static constexpr int64_t kLeastColumn = 180;
/// Of the bars: pixels for a byte.
static constexpr int64_t kPerByte = 8;

static std::string escape(StringRef text) {
  std::string escaped;
  llvm::raw_string_ostream stream(escaped);
  llvm::printHTMLEscaped(text, stream);
  return escaped;
}

static int64_t getWidth(StringRef text, double perChar = kChar) {
  return int64_t(double(text.size()) * perChar) + 1;
}

namespace {
/// A picture that grows downwards. State: `width`, of what was drawn so far,
/// and `y`, below it.
class Picture {
public:
  explicit Picture(const ExplainModel &model) : model(model) {}
  std::string draw();

private:
  struct Column {
    const ExplainedEntry *entry;
    std::vector<std::string> lines;
    int64_t x = 0, width = 0;

    int64_t getReadX() const { return x + 14; }
    int64_t getWriteX() const { return x + width / 2 + 4; }
  };
  struct Lane {
    std::string label;
    int64_t y = 0;
  };

  void write(int64_t x, int64_t y, StringRef text, StringRef style = "");
  void writeLine(StringRef text, StringRef style = "");
  void drawProgram(const ExplainedProgram &program);
  void layOut(const ExplainedProgram &program);
  void drawSegments(const ExplainedProgram &program, int64_t top,
                    int64_t bottom);
  void drawBox(const Column &column, int64_t top, int64_t height);
  void drawAccesses(const ExplainedProgram &program, const Column &column,
                    int64_t top);
  void drawTotals(const ExplainedProgram &program);
  void drawRanks();
  void drawBar(StringRef style, int64_t bytes, StringRef text);
  void listAgain(const ExplainedProgram &program, StringRef what,
                 ArrayRef<ExplainedAgain> values);

  const ExplainModel &model;
  std::string body;
  llvm::raw_string_ostream out{body};
  int64_t width = 0, y = kMargin;
  std::vector<Column> columns;
  std::vector<Lane> lanes;
  /// Lanes behind those of memory: statistics, then kept scalars.
  std::vector<std::string> others;
  void addOther(std::string label) {
    if (!llvm::is_contained(others, label))
      others.push_back(std::move(label));
  }
};
} // namespace

void Picture::write(int64_t x, int64_t y, StringRef text, StringRef style) {
  out << "  <text x=\"" << x << "\" y=\"" << y << "\"";
  if (!style.empty())
    out << " class=\"" << style << "\"";
  out << ">" << escape(text) << "</text>\n";
  width = std::max(width, x + getWidth(text));
}

void Picture::writeLine(StringRef text, StringRef style) {
  y += kLine;
  write(kMargin, y, text, style);
}

static std::vector<std::string> describe(const ExplainedEntry &entry) {
  std::vector<std::string> lines = {entry.name};
  switch (entry.kind) {
  case EntryKind::Kernel:
    lines.push_back((entry.isTrailing ? "trailing kernel, " : "kernel, ") +
                    formatCount(entry.numOperations, "operation"));
    lines.push_back(("reads " + Twine(entry.traffic.reads) + " B, writes " +
                     Twine(entry.traffic.writes) + " B")
                        .str());
    break;
  case EntryKind::Finish:
    lines.push_back("finish, once for a tensor");
    lines.push_back(formatCount(entry.numOperations, "operation") +
                    " on vectors, scalars");
    break;
  case EntryKind::Round:
    if (!entry.exchanges.empty())
      lines.push_back("reduces " + formatExchangedBytes(entry.exchanges) +
                      " B over ranks");
    for (const ExplainedCall &call : entry.calls)
      lines.push_back(call.function + " over " + call.scope +
                      (call.maySkip ? ", may skip" : ""));
    break;
  }
  return lines;
}

static std::string describe(const ExplainedMemory &memory) {
  return memory.name + " " + memory.storage +
         (memory.kind == MemoryKind::Partial    ? " "
          : memory.kind == MemoryKind::Exchange ? ", "
                                                : "") +
         memory.extent;
}

/// Places columns and lanes; a lane's y is relative to the first.
void Picture::layOut(const ExplainedProgram &program) {
  columns.clear();
  lanes.clear();
  others.clear();
  for (const ExplainedMemory &memory : program.memory)
    lanes.push_back({describe(memory)});
  for (const ExplainedEntry &entry : program.entries) {
    for (const ExplainedContribution &contribution : entry.contributes)
      addOther("statistic " + contribution.statistic);
    for (const ExplainedCall &call : entry.calls)
      for (const std::string &name : call.statistics)
        addOther("statistic " + name);
  }
  for (const ExplainedEntry &entry : program.entries)
    for (const ExplainedCall &call : entry.calls) {
      for (const std::string &name : call.scalars)
        addOther("scalar " + name);
      for (auto &[name, always] : call.updates)
        addOther("scalar " + name);
    }
  for (const std::string &label : others)
    lanes.push_back({label});
  int64_t x = 0;
  for (auto [index, lane] : llvm::enumerate(lanes)) {
    lane.y = int64_t(index) * kLane;
    x = std::max(x, kMargin + getWidth(lane.label));
  }
  x += kGap;
  for (const ExplainedEntry &entry : program.entries) {
    Column column{&entry, describe(entry), x, kLeastColumn};
    for (const std::string &line : column.lines)
      column.width = std::max(column.width, getWidth(line) + 20);
    x += column.width + kGap;
    columns.push_back(std::move(column));
  }
  width = std::max(width, x - kGap);
}

/// A line where a segment begins, and its name above the boxes.
void Picture::drawSegments(const ExplainedProgram &program, int64_t top,
                           int64_t bottom) {
  int64_t segment = -1;
  for (const Column &column : columns) {
    if (column.entry->segment == segment)
      continue;
    segment = column.entry->segment;
    int64_t x = column.x - kGap / 2;
    out << "  <line class=\"bound\" x1=\"" << x << "\" y1=\"" << top
        << "\" x2=\"" << x << "\" y2=\"" << bottom << "\"/>\n";
    write(x + 6, top + 11, ("segment " + Twine(segment)).str(), "small");
  }
}

void Picture::drawBox(const Column &column, int64_t top, int64_t height) {
  static constexpr StringRef styles[] = {"kernel", "finish", "round"};
  out << "  <rect class=\"" << styles[size_t(column.entry->kind)] << "\" x=\""
      << column.x << "\" y=\"" << top << "\" width=\"" << column.width
      << "\" height=\"" << height << "\" rx=\"5\"/>\n";
  for (auto [index, line] : llvm::enumerate(column.lines))
    write(column.x + 10, top + kLine * int64_t(index + 1) + 2, line,
          index == 0 ? "name" : "small");
}

/// Two lines hang from a box: what is read goes up the left one, and what is
/// written comes down the right one.
void Picture::drawAccesses(const ExplainedProgram &program,
                           const Column &column, int64_t top) {
  int64_t lowestRead = 0, lowestWrite = 0;
  auto mark = [&](const Lane &lane, bool writes, StringRef label) {
    int64_t x = writes ? column.getWriteX() : column.getReadX();
    if (writes)
      out << "  <path class=\"writes\" d=\"M" << x - 4 << " " << lane.y - 8
          << " h8 l-4 8 z\"/>\n";
    else
      out << "  <circle class=\"reads\" cx=\"" << x << "\" cy=\"" << lane.y
          << "\" r=\"3.5\"/>\n";
    write(x + 8, lane.y - 4, label, "small");
    int64_t &lowest = writes ? lowestWrite : lowestRead;
    lowest = std::max(lowest, lane.y);
  };
  for (const ExplainedAccess &access : column.entry->accesses) {
    const ExplainedMemory &memory = program.memory[access.memory];
    const Lane &lane = lanes[access.memory];
    std::string label = memory.kind == MemoryKind::Full
                            ? std::to_string(memory.bytes) + " B"
                        : memory.kind == MemoryKind::Partial
                            ? formatBytes(memory.share) + " B"
                            : std::to_string(memory.bytes) + " B each";
    if (access.reads)
      mark(lane, false, label);
    if (access.writes)
      mark(lane, true, label);
  }
  auto getLane = [&](const std::string &label) -> const Lane & {
    auto found = llvm::find(others, label);
    return lanes[program.memory.size() + (found - others.begin())];
  };
  for (const ExplainedContribution &contribution : column.entry->contributes)
    mark(getLane("statistic " + contribution.statistic), true,
         contribution.part.empty() ? "adds" : "adds a part");
  for (const ExplainedCall &call : column.entry->calls) {
    for (const std::string &name : call.statistics)
      mark(getLane("statistic " + name), false, "8 B");
    for (const std::string &name : call.scalars)
      mark(getLane("scalar " + name), false, "8 B");
    for (auto &[name, always] : call.updates)
      mark(getLane("scalar " + name), true, always ? "8 B always" : "8 B");
  }
  int64_t x = column.getReadX();
  if (lowestRead)
    out << "  <path class=\"read\" d=\"M" << x << " " << lowestRead << " V"
        << top + 2 << " m-4 7 l4 -7 l4 7\"/>\n";
  if (lowestWrite)
    out << "  <path class=\"write\" d=\"M" << column.getWriteX() << " " << top
        << " V" << lowestWrite - 8 << "\"/>\n";
}

void Picture::drawBar(StringRef style, int64_t bytes, StringRef text) {
  y += kLine + 3;
  out << "  <rect class=\"" << style << "\" x=\"" << kMargin << "\" y=\""
      << y - 11 << "\" width=\"" << bytes * kPerByte
      << "\" height=\"13\" rx=\"2\"/>\n";
  write(kMargin + bytes * kPerByte + 8, y, text);
}

void Picture::listAgain(const ExplainedProgram &program, StringRef what,
                        ArrayRef<ExplainedAgain> values) {
  for (const ExplainedAgain &value : values) {
    SmallVector<StringRef> names;
    for (StringRef name : value.kernels) {
      if (name.consume_front(program.name))
        name.consume_front("_");
      names.push_back(name);
    }
    writeLine(
        (what + ": " + value.value + " in " + llvm::join(names, ", ")).str(),
        "small");
  }
}

void Picture::drawTotals(const ExplainedProgram &program) {
  drawBar("reads", program.moved.total(),
          (formatCount(program.moved.total(), "byte") + " per parameter in " +
           formatCount(program.countKernels(), "kernel")));
  drawBar("least", program.least.total(),
          (Twine(program.least.total()) + " least possible").str());
  y += 3;
  if (program.partialShare > 0)
    writeLine("partial sums beside them: " + formatBytes(program.partialShare) +
                  " bytes per parameter written, and as many read",
              "small");
  if (!program.layout.empty())
    writeLine("across ranks: " + describeExchanged(program), "small");
  for (const ExplainedExchange &exchange : program.exchanges)
    writeLine(exchange.name + ", over " + exchange.axes + ": " + exchange.value,
              "small");
  listAgain(program, "read again", program.readAgain);
  listAgain(program, "read back", program.readBack);
  listAgain(program, "recomputed", program.recomputed);
}

void Picture::drawProgram(const ExplainedProgram &program) {
  writeLine(program.name, "name");
  writeLine(program.variant, "small");
  layOut(program);
  y += kGap;
  int64_t top = y;
  if (program.slots.size() > 1)
    y += kLine;
  size_t lines = 0;
  for (const Column &column : columns)
    lines = std::max(lines, column.lines.size());
  int64_t height = int64_t(lines) * kLine + 10, boxes = y;
  y += height + kLane + 4;
  for (Lane &lane : lanes)
    lane.y += y;
  int64_t right = columns.back().x + columns.back().width;
  for (const Lane &lane : lanes) {
    write(kMargin, lane.y + 4, lane.label);
    out << "  <line class=\"lane\" x1=\"" << columns.front().x << "\" y1=\""
        << lane.y << "\" x2=\"" << right << "\" y2=\"" << lane.y << "\"/>\n";
  }
  y = lanes.back().y + kGap;
  if (program.slots.size() > 1)
    drawSegments(program, top, y);
  for (const Column &column : columns) {
    drawBox(column, boxes, height);
    drawAccesses(program, column, boxes + height);
  }
  drawTotals(program);
  y += 2 * kGap;
}

void Picture::drawRanks() {
  if (!model.isOfRanks())
    return;
  writeLine("across ranks: " + model.summarizeRanks(), "name");
  for (const ExplainedReduction &reduction : model.reductions)
    writeLine(describeReduction(reduction), "small");
  y += kGap;
}

std::string Picture::draw() {
  writeLine("optimizer " + model.name, "name");
  for (const std::string &line : model.statistics)
    writeLine("statistic " + line, "small");
  for (const std::string &line : model.scalars)
    writeLine("scalar " + line, "small");
  for (const std::string &line : model.reports)
    writeLine("report " + line, "small");
  writeLine("B: bytes for each element of the parameter; of vectors, for each "
            "of their own. What is read goes up, what is written comes down.",
            "small");
  y += kGap;
  for (const ExplainedProgram &program : model.programs)
    drawProgram(program);
  drawRanks();
  width += kMargin;
  std::string picture;
  llvm::raw_string_ostream whole(picture);
  whole << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width
        << "\" height=\"" << y << "\" viewBox=\"0 0 " << width << " " << y
        << "\">\n  <title>The step of " << escape(model.name) << "</title>\n"
        << kStyle << "  <rect class=\"ground\" width=\"" << width
        << "\" height=\"" << y << "\"/>\n"
        << body << "</svg>\n";
  return picture;
}

std::string mlir::step::explainAsSvg(const ExplainModel &model) {
  return Picture(model).draw();
}
