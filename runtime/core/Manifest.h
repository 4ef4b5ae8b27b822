//===- Manifest.h - what a package says about itself ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The manifest as plain structures, checked: every index is in range, every
// variant has a value of each option, one parameter and one gradient.
// docs/architecture.md shows the JSON text.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_MANIFEST_H
#define STEPC_CORE_MANIFEST_H

#include "core/Schedule.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepc {

struct Hyper {
  std::string name;
  double defaultValue = 0.0;
};

enum class Predicate : uint8_t { EQ, NE, LT, LE, GT, GE };

bool compare(double left, Predicate predicate, double right);
const char *getName(Predicate predicate);

/// A value known when a tensor is bound. A derived one compares a
/// hyper-parameter with a constant. One of integers is for guards only:
/// variants are the same for all of its values.
struct Option {
  std::string name;
  int64_t defaultValue = 0;
  bool integer = false;
  bool derived = false;
  size_t hyper = 0;
  Predicate predicate = Predicate::NE;
  double value = 0.0;

  /// The value of a derived option.
  int64_t derive(const std::vector<double> &hypers) const;
};

/// What there is once: for the whole model, or for each group.
enum class Scope : uint8_t { Model, Group };

/// A value that is kept from step to step.
struct Scalar {
  std::string name;
  double defaultValue = 0.0;
  Scope scope = Scope::Model;
};

/// Contributions of tensors, combined.
struct Statistic {
  std::string name;
  bool maximum = false;
  Scope scope = Scope::Model;
  /// The segment after which all contributions are there; -1: there are none.
  int64_t segment = -1;
};

/// A result of a round that can be read after the step.
struct Report {
  std::string name;
  Scope scope = Scope::Model;
  size_t result = 0;
};

/// One function of a round.
struct RoundCall {
  struct Update {
    size_t scalar = 0;
    bool always = false;
  };

  std::string function;
  Scope scope = Scope::Model;
  /// What a call for the model reads of groups, and so is equal in all.
  std::vector<size_t> hypers;
  std::vector<size_t> options;
  std::vector<size_t> results;
  bool maySkip = false;
  std::vector<Update> updates;
};

struct Round {
  std::vector<RoundCall> calls;
};

/// In a layout's place of a dim: ranks have ranges of elements. No dim is
/// called so: a name has no space in it.
inline constexpr char kFlatRange[] = "flat range";

/// Dims as a definition writes them: `*` alone, or names, where the first may
/// be `...b` and `1` is a number.
using Dims = std::vector<std::string>;

/// "[...b, n, 1]"
std::string describe(const Dims &dims);

/// One condition of a rule's guard.
struct GuardTerm {
  enum class Subject : uint8_t { Rank, Extent, Option };
  enum class Other : uint8_t { Value, Extent, Option };

  Subject subject = Subject::Rank;
  /// Which extent; below 0: from the end.
  int64_t extent = 0;
  size_t option = 0;
  Predicate predicate = Predicate::NE;
  /// What the subject is compared with.
  Other other = Other::Value;
  size_t otherOption = 0;
  int64_t otherExtent = 0;
  int64_t value = 0;
};

/// A dim that a rule makes of others: the least of their extents, of a number
/// and of an option, divided and rounded up.
struct BoundDim {
  std::string name;
  /// Indices of dims of the rule.
  std::vector<size_t> leastOf;
  std::optional<int64_t> most;
  std::optional<size_t> option;
  int64_t per = 1;
};

/// A state as a rule declares it. Variants may have more: what is kept of a
/// parameter in more bits.
struct DeclaredState {
  std::string name;
  Dims dims;
  double initialValue = 0.0;
  /// The option that it exists under.
  std::optional<size_t> guard;
};

/// A number of FLOPs or bytes for each element of these dims, done in one of
/// `period` steps.
struct CostTerm {
  int64_t number = 0;
  int64_t divisor = 1;
  int64_t period = 1;
  /// Indices of the rule's dims, and behind these of its bound ones; one may
  /// stand there twice.
  std::vector<size_t> dims;
  /// The option without which it is not.
  std::optional<size_t> guard;
};

struct Rule {
  std::string name;
  Dims dims;
  std::vector<BoundDim> boundDims;
  std::vector<DeclaredState> states;
  /// All of them hold for the parameters that the rule takes.
  std::vector<GuardTerm> guard;
  /// Dims that ranks cannot share out, and kFlatRange where none may have a
  /// range of the elements.
  Dims unshardable;
  /// What a step costs: what products and decompositions compute, and what is
  /// moved, in numbers of four bytes.
  std::vector<CostTerm> flops;
  std::vector<CostTerm> bytes;
  /// Where the definition says what makes them so; 0: not known.
  int64_t line = 0;
  int64_t column = 0;
};

/// The position is where each element stands among those of all tensors: its
/// word of a row is that of the first, in place of an address, and its strides
/// are those of the whole tensor.
enum class Role : uint8_t { Param, Grad, State, Position };

/// How the dims of an operand follow from the parameter's: the same; the same
/// but for some extents that are 1; or a single element, of rank 0 or 1.
enum class Reach : uint8_t { Full, Reduced, Single };

struct Operand {
  Role role = Role::Param;
  std::string name;
  Storage storage = Storage::F32;
  double initialValue = 0.0;
  bool reads = false;
  bool writes = false;
  Dims dims;
  Reach reach = Reach::Full;
};

/// What the dims of a rule are in the tiles space: elements lie side by side
/// along the lane, the innermost with a name; the row is the one with a name
/// before it, all others are outer dims. `*`, or nothing, is a lane.
struct TileRoles {
  /// Behind the dims stand `numBound` that follow from them.
  explicit TileRoles(const Dims &dims = {}, int64_t numBound = 0);

  int64_t numDims = 1;
  /// Of these, those of the parameter.
  int64_t numParamDims = 1;
  int64_t lane = 0;
  /// -1: none.
  int64_t row = -1;
};

/// What a size of the workspace is made of (docs/statistics.md): an extent, or
/// one for each so many elements along it; rows, or blocks of 64 rows, that a
/// flat range touches.
struct Factor {
  enum class Kind : uint8_t { Dim, RangeRows, RangeBlocks };

  Kind kind = Kind::Dim;
  /// Index of a dim of the rule.
  int64_t dim = 0;
  int64_t per = 1;
};

/// Who has a buffer of the workspace: every engine; one of a processor, for
/// operands that it packs or for what its routines work in; or one of a device,
/// the record of what it leaves to the host, and what it hands over
/// (kernel_abi.h), both in memory of the host.
enum class BufferUse : uint8_t { All, Packed, Routine, Record, Handed };

constexpr BufferUse kBufferUses[] = {BufferUse::All, BufferUse::Packed,
                                     BufferUse::Routine, BufferUse::Record,
                                     BufferUse::Handed};

const char *getName(BufferUse use);

struct WorkspaceBuffer {
  std::string name;
  BufferUse use = BufferUse::All;
  std::vector<Factor> size;
  int64_t bytes = 0;
  /// Kept from one segment to a later one.
  bool live = false;

  /// Whether ranks combine it: an entry of the schedule says when. It lies side
  /// by side with those of other tensors then.
  bool crosses = false;
};

/// A scalar that a tensor's last step left for the next one.
struct Carried {
  /// 0 where it is not known.
  size_t slot = 0;
  /// What is computed in its place then.
  size_t recomputed = 0;
};

/// A dim of a rule that ranks share out, with the axes' names for reports.
struct ShardedDim {
  std::string dim;
  std::vector<std::string> axes;
};

enum class Space : uint8_t { Elements, Tiles };

/// A rule with a value of each option and a storage type of each role.
struct Variant {
  std::string name;
  /// Index of the rule.
  size_t rule = 0;
  /// One value for each of Manifest::options; of integers they mean nothing.
  std::vector<int64_t> options;
  /// The dims that tensors it serves are sharded in; kFlatRange alone: they are
  /// ranges of elements.
  std::vector<ShardedDim> layout;
  /// In the order of the addresses in a row of the kernel's table.
  std::vector<Operand> operands;
  size_t param = 0;
  size_t grad = 0;
  /// The operands that are states, in order.
  std::vector<size_t> states;
  /// For each fresh flag of the scalar functions the states that it speaks of,
  /// by their places in `states`.
  std::vector<std::vector<size_t>> fresh;
  /// One for each segment; empty where there is nothing to fill.
  std::vector<std::string> scalarFunctions;
  size_t scalarSlots = 0;
  size_t tensorSlots = 0;
  Space space = Space::Elements;
  /// Of the rule's dims.
  TileRoles roles;
  std::vector<WorkspaceBuffer> workspace;
  /// In ascending order of segments, exchanges behind what is called in theirs;
  /// what brings gradients comes before all else.
  std::vector<ScheduleEntry> schedule;
  std::vector<Carried> carried;
  /// Whether some tensors may be stepped before others have their gradients.
  bool subsets = false;
  /// Whether something that it stores is rounded by random bits.
  bool rounds = false;

  bool hasReducedOperands() const;
  /// Whether a step multiplies matrices.
  bool hasProducts() const;
  /// How many launches a device makes of the schedule, and whether it hands
  /// matrices over to the host.
  size_t countLaunches() const;
  bool handsOver() const;
  /// Whether a row needs all chunks of an entry that is called before this one.
  bool waitsForRow(const ScheduleEntry &entry) const;
  /// Whether rows are taken through the schedule one by one for this entry,
  /// and whether they are for any.
  bool takesRows(const ScheduleEntry &entry) const;
  bool takesRows() const;
  /// What brings its gradient and gives away its parameter, in their order.
  std::vector<const Transfer *> getTransfers() const;
  /// The names of `layout`.
  Dims getShardedDims() const;
  /// Whether it serves tensors that are sharded in these dims. Without
  /// reductions every part of a tensor is like any other.
  bool serves(const Dims &shardedDims) const;
  /// Bytes that the entry moves for one element of the parameter.
  int64_t getBytesPerElement(const ScheduleEntry &entry) const;
  /// Bytes of all operands for one element of the parameter.
  int64_t getFootprint() const;
};

/// Machine code for one kind of processor.
struct CodeEntry {
  std::string target;
  std::string file;
  /// What the code runs on: the processor ("cpu") or a kind of device.
  std::string device;
  std::vector<std::string> cpuFeatures;
  /// Of CUDA devices: 90 for 9.0. PTX, which the driver compiles, or a cubin.
  int64_t computeCapability = 0;
  bool isPTX = false;
};

struct Manifest {
  std::string optimizer;
  std::vector<Hyper> hypers;
  std::vector<Option> options;
  std::vector<Scalar> scalars;
  std::vector<Statistic> statistics;
  std::vector<Report> reports;
  std::vector<Round> rounds;
  /// How many results rounds have.
  size_t numResults = 0;
  /// In the order in which a parameter tries them.
  std::vector<Rule> rules;
  std::vector<Variant> variants;
  std::vector<CodeEntry> code;
  /// The hyper-parameter that random bits are seeded by, where there are some.
  std::optional<size_t> seed;

  /// Round r runs after segment r; one more segment follows the last.
  int64_t getNumSegments() const { return int64_t(rounds.size()) + 1; }
  /// Of the schedule for which a device makes most.
  size_t getMostLaunches() const;
  /// Whether the values select the same variants; integers do not select.
  bool selectSame(const std::vector<int64_t> &left,
                  const std::vector<int64_t> &right) const;
};

/// Whether the number can seed random bits.
bool isSeed(double value);

/// Reads and checks the JSON text of the package `file`. Throws
/// STEPC_CORRUPT_PACKAGE or STEPC_VERSION_MISMATCH.
Manifest readManifest(const char *file, std::string_view text);

/// Reads what the compiler prints of a definition, which has no variants; or a
/// manifest, as readManifest does. Throws STEPC_CORRUPT_PACKAGE or
/// STEPC_VERSION_MISMATCH.
Manifest readInterface(std::string_view text);

} // namespace stepc

#endif // STEPC_CORE_MANIFEST_H
