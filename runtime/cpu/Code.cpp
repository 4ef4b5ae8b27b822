//===- Code.cpp - the code of a package for the processor -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/Code.h"

#include "core/Status.h"
#include "cpu/CpuFeatures.h"

using namespace stepc;
using namespace stepc::cpu;

Code::Code(std::shared_ptr<const Package> ofPackage, const ZipReader &zip)
    : package(std::move(ofPackage)) {
  if (const CodeEntry *entry = choose())
    open(zip.getMember(entry->file), entry->file);
  else if (package->getDeviceCode().empty())
    requireThere();
}

void Code::open(std::string_view bytes, const std::string &file) {
  name = "member '" + file + "' of package '" + package->getName() + "'";
  loaded.open(bytes, name.c_str());
  for (const Variant &variant : package->getManifest().variants)
    variants.push_back(resolve(variant));
  for (const Round &round : package->getManifest().rounds) {
    rounds.emplace_back();
    for (const RoundCall &call : round.calls)
      rounds.back().push_back(reinterpret_cast<StepcRoundFunction>(
          loaded.getSymbol(call.function.c_str())));
  }
}

VariantCode Code::resolve(const Variant &variant) const {
  VariantCode resolved;
  for (const std::string &function : variant.scalarFunctions)
    resolved.scalars.push_back(function.empty()
                                   ? nullptr
                                   : reinterpret_cast<StepcScalarFunction>(
                                         loaded.getSymbol(function.c_str())));
  for (const ScheduleEntry &entry : variant.schedule) {
    bool strided = entry.kind == EntryKind::Kernel;
    resolved.entries[0].push_back(resolve(variant, entry, entry.function));
    resolved.entries[1].push_back(resolve(
        variant, entry, strided ? entry.stridedFunction : entry.function));
  }
  return resolved;
}

EntryCode Code::resolve(const Variant &variant, const ScheduleEntry &entry,
                        const std::string &function) const {
  EntryCode resolved;
  if (!entry.isCalled())
    return resolved;
  void *symbol = loaded.getSymbol(function.c_str());
  if (entry.kind == EntryKind::Finish)
    resolved.finish = reinterpret_cast<StepcFinish>(symbol);
  else
    resolved.kernel = reinterpret_cast<StepcKernel>(symbol);
  resolved.unlessSlot = entry.unlessSlot;
  resolved.trailing = entry.trailing;
  resolved.columnsWord = STEPC_TILE_EXTENTS + variant.roles.lane;
  resolved.waits = variant.waitsForRow(entry);
  resolved.name = function.c_str();
  return resolved;
}

/// The entry that asks for most of what this processor has. Decided before any
/// code is opened: its mere loading could run instructions that do not exist.
/// Null, with `refusal` set, where there is none.
const CodeEntry *Code::choose() {
  const CodeEntry *best = nullptr;
  for (const CodeEntry &entry : package->getManifest().code) {
    std::string missing = entry.device == "cpu"
                              ? getMissingCpuFeatures(entry.cpuFeatures)
                              : "a device, " + entry.device;
    if (!missing.empty())
      refusal +=
          (refusal.empty() ? "" : "; ") + entry.target + " needs " + missing;
    else if (!best || entry.cpuFeatures.size() > best->cpuFeatures.size())
      best = &entry;
  }
  if (best)
    refusal.clear();
  return best;
}

void Code::requireThere() const {
  if (!refusal.empty())
    fail(STEPC_UNSUPPORTED_TARGET,
         "package '%s' has no code for this processor: %s",
         package->getName().c_str(), refusal.c_str());
}
