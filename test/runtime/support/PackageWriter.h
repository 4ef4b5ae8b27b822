//===- PackageWriter.h - packages made by hand ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_PACKAGEWRITER_H
#define STEPC_TEST_SUPPORT_PACKAGEWRITER_H

#include "nlohmann/json.hpp"

#include <string>
#include <utility>
#include <vector>

namespace stepc_test {

using Members = std::vector<std::pair<std::string, std::string>>;

/// SHA-256 in hex, written apart from the runtime's.
std::string sha256(const std::string &bytes);

/// A zip file of stored members with a comment of 64 zeros.
std::string makeZip(const Members &members);

/// Puts the hash of all bytes before the comment into the comment.
std::string sign(std::string zip);

std::string readFile(const std::string &path);

/// The manifest of the toy optimizer: variants for f32, f64 and bf16
/// parameters, with and without momentum, maximizing or not.
nlohmann::json makeToyManifest();

/// A manifest with one f32 variant without states or scalars.
nlohmann::json makePlainManifest(const std::string &name);

/// Sets the schedule: entries of each segment in their order, exchanges behind
/// the others, each waiting for the one before it.
void setSchedule(nlohmann::json &variant, std::vector<nlohmann::json> entries);

/// Parts of manifests: what stands before the variants, and an operand.
nlohmann::json makeHead(const std::string &optimizer);
nlohmann::json makeOperand(const char *role, const char *name,
                           const char *storage, bool reads, bool writes,
                           nlohmann::json dims = {"*"});
/// Sets what a variant of the elements space has beside its operands.
void addKernel(nlohmann::json &variant, const std::string &kernel,
               const std::string &strided);

/// The optimizers of support/statistics.c and support/clip.c.
nlohmann::json makeLambManifest();
nlohmann::json makeFactorManifest();
nlohmann::json makeClipManifest();
/// With variants of sharded tensors.
nlohmann::json makeShardedClipManifest();
/// The optimizer of support/share.c, for each set of sharded dims.
nlohmann::json makeShareManifest();

/// A variant with what brings its gradient, of type `entry`, and gives away its
/// parameter: all_slice, reduce_scatter, all_reduce, to_owner, all_gather,
/// from_owner; to_owner_whole, where the owner has all of it. `dim` is what
/// they cut.
nlohmann::json addTransfers(nlohmann::json variant,
                            std::vector<const char *> kinds, const char *entry,
                            const char *wire, const char *dim,
                            int lastSegment = 0);
/// All lists of kinds that there are.
const std::vector<std::vector<const char *>> &getTransferForms();
nlohmann::json makeToyTransferManifest();
nlohmann::json addAllTransfers(nlohmann::json manifest);

/// A signed package of a manifest and a shared object.
std::string makePackage(const nlohmann::json &manifest,
                        const std::string &sharedObject);

/// The toy optimizer's package.
const std::string &getToyPackage();

} // namespace stepc_test

#endif // STEPC_TEST_SUPPORT_PACKAGEWRITER_H
