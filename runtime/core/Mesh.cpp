//===- Mesh.cpp - ranks with coordinates ---------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Mesh.h"

#include "core/GiveCommunicator.h"
#include "core/Status.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

using namespace stepc;

static constexpr int64_t kMaxAxes = 64;

static void requireAxis(const StepcAxis &axis, int64_t index,
                        const std::vector<std::string> &names) {
  if (!axis.name || !*axis.name)
    fail(STEPC_INVALID_ARGUMENT, "axis %lld of the mesh has no name",
         static_cast<long long>(index));
  if (std::find(names.begin(), names.end(), axis.name) != names.end())
    fail(STEPC_INVALID_ARGUMENT, "axis '%s' comes twice", axis.name);
  if (axis.size < 1)
    fail(STEPC_INVALID_ARGUMENT, "axis '%s' has size %lld, the least is 1",
         axis.name, static_cast<long long>(axis.size));
  if (axis.coordinate < 0 || axis.coordinate >= axis.size)
    fail(STEPC_INVALID_ARGUMENT,
         "axis '%s': coordinate %lld is outside 0 to %lld", axis.name,
         static_cast<long long>(axis.coordinate),
         static_cast<long long>(axis.size - 1));
}

Mesh::Mesh(const StepcAxis *axes, int64_t numAxes) {
  if (numAxes < 0 || (numAxes > 0 && !axes))
    fail(STEPC_INVALID_ARGUMENT, "%lld axes were given, without values",
         static_cast<long long>(numAxes));
  if (numAxes > kMaxAxes)
    fail(STEPC_INVALID_ARGUMENT, "the mesh has %lld axes, the most are %lld",
         static_cast<long long>(numAxes), static_cast<long long>(kMaxAxes));
  for (int64_t i = 0; i < numAxes; ++i) {
    requireAxis(axes[i], i, names);
    names.push_back(axes[i].name);
    sizes.push_back(axes[i].size);
    coordinates.push_back(axes[i].coordinate);
    uint64_t bit = uint64_t(1) << i;
    wideAxes |= axes[i].size > 1 ? bit : 0;
    otherAxes |= axes[i].coordinate > 0 ? bit : 0;
  }
}

Mesh::Mesh(const StepcAxis *axes, int64_t numAxes,
           const StepcCommunicator *given)
    : Mesh(axes, numAxes) {
  for (int64_t i = 0; i < numAxes; ++i)
    if (axes[i].size > 1 && !given)
      fail(STEPC_INVALID_ARGUMENT,
           "axis '%s' has size %lld, but there is no communicator",
           axes[i].name, static_cast<long long>(axes[i].size));
  if (!given)
    return;
  requireStructSize(given, kLeastCommunicator, sizeof(StepcCommunicator),
                    "StepcCommunicator");
  if (!given->reduce)
    fail(STEPC_INVALID_ARGUMENT, "the communicator's reduce is NULL");
  std::memcpy(&communicator, given,
              std::min(given->structSize, sizeof(communicator)));
  communicator.structSize = sizeof(communicator);
  if (communicator.reserved != 0)
    fail(STEPC_INVALID_ARGUMENT,
         "a reserved field of the communicator is %d, not 0",
         int(communicator.reserved));
}

int64_t Mesh::getGroupSize(uint64_t axes) const {
  int64_t size = 1;
  for (size_t i = 0; i < sizes.size(); ++i)
    size *= axes >> i & 1 ? sizes[i] : 1;
  return size;
}

int64_t Mesh::getGroupRank(uint64_t axes) const {
  int64_t rank = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (axes >> i & 1)
      rank = rank * sizes[i] + coordinates[i];
  return rank;
}

std::string Mesh::describe(uint64_t axes) const {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    if (axes >> i & 1)
      text += (text.empty() ? "'" : ", '") + names[i] + "'";
  return text;
}
