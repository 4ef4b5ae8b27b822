//===- EntryModel.h - tensors with an entry, on ranks and on one ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_ENTRYMODEL_H
#define STEPC_TEST_SUPPORT_ENTRYMODEL_H

#include "support/Fixture.h"
#include "support/ShardModel.h"

#include "stepc/simulated.h"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>

namespace stepc_test {

/// In which gradients cross ranks.
enum class Wire { Own, F64, F32, BF16, F16 };

/// A tensor, and its entry. Along axes of the mesh that neither has, all is the
/// same.
struct EntrySpec {
  std::vector<int64_t> shape;
  uint64_t whole = 0;
  uint64_t partial = 0;
  Type type = Type::F32;
  Wire wire = Wire::Own;
  double divisor = 1.0;
  bool before = false;
  bool owned = false;
  bool rows = false;
  int64_t group = 0;
  /// Where it is owned: 1 + the rank's place; 0: one that is chosen.
  int64_t owner = 0;
};

EntrySpec makeEntry(std::vector<int64_t> shape, uint64_t whole,
                    uint64_t partial, double divisor = 1.0);

/// Tensors of many shapes, empty ones among them.
std::vector<EntrySpec> makeEntries(uint64_t whole, uint64_t partial,
                                   double divisor = 1.0);

/// The type in which a sum of the tensor's gradients is there.
Type getSumType(const EntrySpec &spec);

/// A number as it crosses ranks.
double roundToWire(const EntrySpec &spec, double value);

/// What one rank has.
class EntryRank {
public:
  EntryRank(StepcPackage *package, const std::vector<EntrySpec> &specs,
            std::vector<StepcAxis> axes, const StepcCommunicator *communicator,
            StepcPlanConfig config, int64_t numGroups);

  /// Binds tensors [begin, end); `change` may spoil the last binding.
  StepcStatus bind(size_t begin, size_t end,
                   const std::function<void(StepcBinding &, StepcEntry &,
                                            StepcLayout &)> &change = {});
  StepcStatus setGrad(size_t i, bool present);
  /// The place of the rank among those that differ in these axes.
  int64_t getPlace(uint64_t axes) const;
  /// How many there are.
  int64_t getGroupSize(uint64_t axes) const;
  /// A step at once, or as gradients come, in an order of the seed, so many at
  /// a time; their memory is spoiled behind that.
  StepcStatus step();
  StepcStatus stepByEvents(uint32_t seed, size_t atATime);
  /// The same of a backward pass ahead of the step.
  StepcStatus pass(uint32_t seed, size_t atATime);

  std::vector<EntrySpec> specs;
  std::vector<StepcAxis> axes;
  int64_t gradientBytes = 0, parameterBytes = 0;
  /// Whether the states of the toy are this one's, and not the plan's.
  bool givesStates = false;
  std::vector<Array> params;
  std::vector<Array> grads;
  std::deque<Array> states;
  std::vector<bool> missing;
  std::vector<int64_t> ids;
  PlanPtr plan;
  /// Of the last call that was refused.
  std::string message;

private:
  StepcStatus nameAll(uint32_t seed, size_t atATime);
  std::map<size_t, int64_t> chooseOwners(size_t begin, size_t end);
  void addStates(std::vector<StepcBinding> &bindings, size_t begin,
                 std::vector<std::array<const DLTensor *, 2>> &lists);
  /// Of ranks along axes of entries, and beside them.
  std::map<std::pair<uint64_t, uint64_t>, std::vector<double>> loads;
};

/// All ranks of a grid, each a thread, and one process that steps the whole
/// with the sum in the order of the ranks.
class EntryWorld {
public:
  EntryWorld(StepcPackage *package, std::vector<int64_t> sizes,
             std::vector<EntrySpec> specs, StepcPlanConfig config = {},
             int64_t gradientBytes = 0, int64_t parameterBytes = 0,
             int64_t numGroups = 1, int64_t underWay = 0);
  ~EntryWorld();

  void bind(size_t begin, size_t end);
  void bindAll() { bind(0, specs.size()); }
  /// To the one process.
  void bindWhole(size_t begin, size_t end);
  /// New gradients: small integers, or any numbers.
  void fillGrads(uint32_t seed, bool integers = false);
  void setMissing(const std::vector<bool> &missing);
  void forEachRank(const std::function<void(EntryRank &)> &visit);
  /// All ranks step, and so does the one process.
  void step();
  void stepByEvents(uint32_t seed, size_t atATime);
  void stepWhole();
  /// A backward pass, in which some have no gradient; the first or another one
  /// behind the gradients that were forgotten.
  void pass(uint32_t seed, bool first);
  /// Steps at once and as gradients come, with new gradients each time, and
  /// checks.
  void run(std::vector<const char *> states, bool integers = false);
  /// Expects the bits of the one process on every rank: parameters, and these
  /// states of what each steps.
  void check(std::vector<const char *> states);
  StepcSimulatedCounters getCounters(int64_t rank) const;

  std::vector<EntrySpec> specs;
  std::vector<EntryRank> ranks;
  StepcSimulatedWorld *world = nullptr;

  std::vector<Array> params;
  std::vector<Array> grads;
  std::vector<int64_t> ids;
  PlanPtr plan;

private:
  double getSum(size_t i, int64_t element) const;
  /// How much a sum over ranks of the axes adds up.
  int64_t getSize(uint64_t axes) const;
  const EntryRank &getRank(size_t i, int64_t scatter, int64_t reduce) const;

  std::vector<int64_t> sizes;
  std::vector<bool> missing;
};

/// The package of the toy optimizer with every form.
StepcPackage *getToyTransfers();

/// The same with a variant that permits no parts, of a type that it is not to
/// be used with: it decides for all.
PackagePtr loadToyWithoutParts();

} // namespace stepc_test

#endif // STEPC_TEST_SUPPORT_ENTRYMODEL_H
