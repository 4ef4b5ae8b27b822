//===- Package.cpp - a loaded package -------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Package.h"

#include "core/Status.h"
#include "core/ZipReader.h"
#include "cpu/CpuFeatures.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace stepc;

Package::Package(std::string packageName, std::string_view bytes)
    : name(std::move(packageName)) {
  ZipReader zip(name.c_str(), bytes.data(), bytes.size());
  manifestText = zip.getMember("manifest.json");
  manifest = readManifest(name.c_str(), manifestText);

  for (const CodeEntry &entry : manifest.code)
    if (entry.device == "cuda")
      deviceCode.push_back({entry, std::string(zip.getMember(entry.file))});
  for (const Variant &variant : manifest.variants) {
    maxScalarSlots = std::max(maxScalarSlots, variant.scalarSlots);
    carriesScalars |= !variant.carried.empty();
  }
  if (const CodeEntry *entry = chooseCode())
    openCode(zip.getMember(entry->file), entry->file);
  else if (deviceCode.empty())
    requireCpuCode();
}

void Package::openCode(std::string_view bytes, const std::string &file) {
  codeName = "member '" + file + "' of package '" + name + "'";
  code.open(bytes, codeName.c_str());
  for (const Variant &variant : manifest.variants)
    variants.push_back(resolve(variant));
  for (const Round &round : manifest.rounds) {
    rounds.emplace_back();
    for (const RoundCall &call : round.calls)
      rounds.back().push_back(reinterpret_cast<StepcRoundFunction>(
          code.getSymbol(call.function.c_str())));
  }
}

VariantCode Package::resolve(const Variant &variant) const {
  VariantCode resolved;
  for (const std::string &function : variant.scalarFunctions)
    resolved.scalars.push_back(function.empty()
                                   ? nullptr
                                   : reinterpret_cast<StepcScalarFunction>(
                                         code.getSymbol(function.c_str())));
  for (const ScheduleEntry &entry : variant.schedule) {
    void *function = code.getSymbol(entry.function.c_str());
    if (entry.finish) {
      auto finish = reinterpret_cast<StepcFinish>(function);
      for (std::vector<EntryCode> &entries : resolved.entries)
        entries.push_back(
            {nullptr, finish, -1, entry.trailing, entry.function.c_str()});
      continue;
    }
    void *strided = code.getSymbol(entry.stridedFunction.c_str());
    resolved.entries[0].push_back({reinterpret_cast<StepcKernel>(function),
                                   nullptr, entry.unlessSlot, entry.trailing,
                                   entry.function.c_str()});
    resolved.entries[1].push_back({reinterpret_cast<StepcKernel>(strided),
                                   nullptr, entry.unlessSlot, entry.trailing,
                                   entry.stridedFunction.c_str()});
  }
  return resolved;
}

/// The entry that asks for most of what this processor has. Decided before any
/// code is opened: its mere loading could run instructions that do not exist.
/// Null, with `refusal` set, where there is none.
const CodeEntry *Package::chooseCode() {
  const CodeEntry *best = nullptr;
  for (const CodeEntry &entry : manifest.code) {
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

void Package::requireCpuCode() const {
  if (!refusal.empty())
    fail(STEPC_UNSUPPORTED_TARGET,
         "package '%s' has no code for this processor: %s", name.c_str(),
         refusal.c_str());
}

namespace {

/// Closes a file descriptor at the end of the scope.
struct FileCloser {
  int descriptor;
  ~FileCloser() { close(descriptor); }
};

std::string readFile(const char *path) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    fail(STEPC_FILE_ERROR, "cannot open '%s': %s", path, std::strerror(errno));
  FileCloser closer{descriptor};
  struct stat info;
  if (fstat(descriptor, &info) != 0)
    fail(STEPC_FILE_ERROR, "cannot read '%s': %s", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    fail(STEPC_FILE_ERROR, "cannot read '%s': not a regular file", path);

  std::string bytes(size_t(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t n = read(descriptor, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      fail(STEPC_FILE_ERROR, "cannot read '%s': %s", path,
           std::strerror(errno));
    if (n == 0)
      break;
    done += size_t(n);
  }
  bytes.resize(done);
  return bytes;
}

} // namespace

std::shared_ptr<const Package> stepc::loadPackageFile(const char *path) {
  return std::make_shared<const Package>(path, readFile(path));
}
