//===- ManifestReader.h - the parts that read a manifest ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each reads one part of the JSON text into the manifest, in this order: a part
// is checked against those before it.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_MANIFESTREADER_H
#define STEPC_CORE_MANIFESTREADER_H

#include "core/FieldReader.h"

namespace stepc {

/// Scalars, statistics, rounds and reports.
void readRounds(const FieldReader &fields, const Json &root,
                Manifest &manifest);

void readRules(const FieldReader &fields, const Json &root, Manifest &manifest);

/// Of a variant, whose rule is known: the dims that are sharded, and buffers.
void readLayout(const FieldReader &fields, const Json &layout,
                const std::string &where, const Manifest &manifest,
                Variant &variant);
void readWorkspace(const FieldReader &fields, const Json &value,
                   const std::string &where, const Manifest &manifest,
                   Variant &variant);

/// And what is called for it, and exchanged.
void readSchedule(const FieldReader &fields, const Json &value,
                  const std::string &where, const Manifest &manifest,
                  Variant &variant);
/// Of the schedule: how the gradient comes, or the parameter leaves.
Transfer readTransfer(const FieldReader &fields, const Json &value,
                      const std::string &where, const Manifest &manifest,
                      const Variant &variant);
/// Refuses transfers that do not belong together: a parameter is put together
/// again where its gradient is cut, and comes from the owner that got it.
void requireTransfers(const FieldReader &fields, const std::string &where,
                      const Variant &variant);

/// What a round may skip must not have happened before it.
void requireNothingBeforeSkips(const FieldReader &fields,
                               const std::string &where,
                               const Manifest &manifest,
                               const Variant &variant);

void readVariants(const FieldReader &fields, const Json &root,
                  Manifest &manifest);

} // namespace stepc

#endif // STEPC_CORE_MANIFESTREADER_H
