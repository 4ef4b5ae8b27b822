//===- TransferUnits.cpp - parameters that are gathered together ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Transfers.h"

#include <algorithm>
#include <map>
#include <utility>

using namespace stepc;

namespace {

/// Makes units of the buckets of one call.
class UnitMaker {
public:
  UnitMaker(const Mesh &mesh, const NewTransfers &made, size_t firstTensor,
            size_t firstBucket, int64_t most)
      : mesh(mesh), made(made), firstTensor(firstTensor),
        firstBucket(firstBucket), most(most) {}

  std::vector<GatherUnit> run();

private:
  void add(size_t bucket);
  GatherUnit makeUnit(const std::vector<size_t> &buckets, int64_t from,
                      int64_t to) const;
  void addPieces(size_t bucket);
  void append(GatherUnit &unit, size_t rank, size_t bucket, int64_t from,
              int64_t to) const;
  bool join(size_t bucket, int64_t bytes);
  bool isInPlace(const GatherUnit &unit) const;

  const Mesh &mesh;
  const NewTransfers &made;
  size_t firstTensor, firstBucket;
  int64_t most;
  std::vector<GatherUnit> units;
  /// Units to which others may be added, with their buckets. One for each axes
  /// and type, as of tensors of other axes this rank has some that those who
  /// gather with it do not have.
  struct Open {
    size_t unit;
    std::vector<size_t> buckets;
  };
  std::map<std::pair<uint64_t, Storage>, Open> open;
};

constexpr int64_t kAll = INT64_MAX / 2;

} // namespace

/// Adds elements [from, to) of the line that the rank has of the bucket.
void UnitMaker::append(GatherUnit &unit, size_t rank, size_t bucket,
                       int64_t from, int64_t to) const {
  const TransferBucket &own = made.buckets[bucket];
  int64_t item = getByteSize(own.terms.param), start = 0;
  for (size_t member : own.members) {
    const Cuts &cuts = made.tensors[member].cuts;
    int64_t length = cuts[rank + 1] - cuts[rank];
    int64_t first = std::max<int64_t>(from - start, 0);
    int64_t last = std::min(to - start, length);
    start += length;
    if (first >= last)
      continue;
    Piece piece = {cuts[rank] + first, cuts[rank] + last, unit.bytes};
    (rank == unit.rank ? unit.own : unit.others)
        .push_back({firstTensor + member, piece});
    unit.bytes += (last - first) * item;
  }
}

GatherUnit UnitMaker::makeUnit(const std::vector<size_t> &buckets, int64_t from,
                               int64_t to) const {
  GatherUnit unit;
  uint64_t axes = made.buckets[buckets[0]].terms.wholeAxes;
  unit.axes = axes & mesh.getWideAxes();
  unit.rank = size_t(mesh.getGroupRank(axes));
  for (size_t r = 0; r < size_t(mesh.getGroupSize(axes)); ++r) {
    int64_t begin = unit.bytes;
    if (r == unit.rank)
      unit.ownAt = begin;
    for (size_t bucket : buckets)
      append(unit, r, bucket, from, to);
    unit.received.push_back(unit.bytes - begin);
  }
  for (size_t bucket : buckets)
    unit.buckets.push_back(firstBucket + bucket);
  return unit;
}

/// Whether the bucket is gathered with others before it; adds it to them.
bool UnitMaker::join(size_t bucket, int64_t bytes) {
  const EntryTerms &terms = made.buckets[bucket].terms;
  auto found = open.find({terms.wholeAxes, terms.param});
  if (found == open.end())
    return false;
  Open &own = found->second;
  if (units[own.unit].bytes + bytes > most) {
    open.erase(found);
    return false;
  }
  own.buckets.push_back(bucket);
  units[own.unit] = makeUnit(own.buckets, 0, kAll);
  return true;
}

void UnitMaker::add(size_t bucket) {
  const TransferBucket &own = made.buckets[bucket];
  if (!(own.terms.wholeAxes & mesh.getWideAxes()))
    return;
  int64_t bytes =
      own.countElements(made.tensors) * getByteSize(own.terms.param);
  if (bytes == 0)
    return;
  if (join(bucket, bytes))
    return;
  if (own.members.size() > 1 && bytes > most)
    return addPieces(bucket);
  open[{own.terms.wholeAxes, own.terms.param}] = {units.size(), {bucket}};
  units.push_back(makeUnit({bucket}, 0, kAll));
}

/// As many elements of each rank at a time as come to so many bytes.
void UnitMaker::addPieces(size_t bucket) {
  const TransferBucket &own = made.buckets[bucket];
  int64_t size = mesh.getGroupSize(own.terms.wholeAxes), longest = 0;
  for (size_t r = 0; r < size_t(size); ++r) {
    int64_t length = 0;
    for (size_t member : own.members)
      length += made.tensors[member].cuts[r + 1] - made.tensors[member].cuts[r];
    longest = std::max(longest, length);
  }
  int64_t step =
      std::max<int64_t>(most / (size * getByteSize(own.terms.param)), 1);
  for (int64_t from = 0; from < longest; from += step)
    units.push_back(makeUnit({bucket}, from, from + step));
}

/// Whether the parameters lie as they are gathered, so that no memory is
/// needed: those of one bucket do where they lie side by side, as its parts are
/// in the order of the ranks.
bool UnitMaker::isInPlace(const GatherUnit &unit) const {
  auto getBase = [&](const GatherSegment &segment) {
    const EntryTensor &tensor = made.tensors[segment.tensor - firstTensor];
    return getGatherBase(tensor, segment,
                         made.buckets[tensor.bucket - firstBucket].terms.param);
  };
  uintptr_t base = 0;
  for (const auto *list : {&unit.own, &unit.others})
    for (const GatherSegment &segment : *list) {
      if (base && getBase(segment) != base)
        return false;
      base = getBase(segment);
    }
  return base != 0;
}

std::vector<GatherUnit> UnitMaker::run() {
  for (size_t bucket = 0; bucket < made.buckets.size(); ++bucket)
    add(bucket);
  for (GatherUnit &unit : units)
    unit.inPlace = isInPlace(unit);
  return std::move(units);
}

std::vector<GatherUnit>
stepc::makeGatherUnits(const Mesh &mesh, const NewTransfers &made,
                       size_t firstTensor, size_t firstBucket, int64_t most) {
  return UnitMaker(mesh, made, firstTensor, firstBucket, most).run();
}
