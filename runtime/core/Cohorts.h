//===- Cohorts.h - tensors that share a scalar row ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cohort is a set of tensors of one variant and group that have taken the
// same number of steps: one row of scalars serves them all. As long as steps
// take whole cohorts, a step costs one scalar function call for each and no
// work per tensor beyond its count.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_COHORTS_H
#define STEPC_CORE_COHORTS_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stepc {

/// What the tensors of a cohort have in common.
struct CohortKey {
  int32_t variant = 0;
  int32_t group = 0;
  int64_t count = 0;
  /// A bit for each of the variant's fresh flags.
  uint64_t fresh = 0;
  /// Whether the tensors have gradients.
  bool active = false;

  bool operator==(const CohortKey &other) const {
    return variant == other.variant && group == other.group &&
           count == other.count && fresh == other.fresh &&
           active == other.active;
  }
};

struct Cohort {
  CohortKey key;
  int64_t members = 0;
  /// How many of them the step under way has stepped.
  int64_t stepped = 0;
};

class Cohorts {
public:
  /// `slots`: doubles in a scalar row.
  explicit Cohorts(size_t slots);

  /// Takes the memory for `tensors` cohorts, the most there can be. Scalar
  /// rows move.
  void reserve(size_t tensors);

  /// Begins to form cohorts anew.
  void clear() noexcept;
  /// Adds a tensor; returns its cohort. Allocates nothing.
  int32_t add(const CohortKey &key) noexcept;

  std::vector<Cohort> &getList() { return list; }
  Cohort &operator[](int32_t index) { return list[index]; }
  double *getScalars(int32_t index) { return scalars + index * slots; }
  size_t getSlots() const { return slots; }

  size_t getBytes() const;

private:
  size_t slots;
  std::vector<Cohort> list;
  std::vector<double> scalarMemory;
  /// The first 64-byte boundary in it.
  double *scalars = nullptr;
  /// Open addressing: the index of a cohort, or -1. A power of two in size,
  /// and at most half full.
  std::vector<int32_t> buckets;
  int32_t lastAdded = -1;
};

} // namespace stepc

#endif // STEPC_CORE_COHORTS_H
