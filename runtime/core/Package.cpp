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

  const CodeEntry &entry = chooseCode();
  codeName = "member '" + entry.file + "' of package '" + name + "'";
  code.open(zip.getMember(entry.file), codeName.c_str());
  for (const Variant &variant : manifest.variants) {
    auto get = [&](const std::string &symbol) {
      return code.getSymbol(symbol.c_str());
    };
    entries.push_back(
        {reinterpret_cast<StepcScalarFunction>(get(variant.scalarFunction)),
         reinterpret_cast<StepcKernel>(get(variant.kernel)),
         reinterpret_cast<StepcKernel>(get(variant.stridedKernel))});
    maxScalarSlots = std::max(maxScalarSlots, variant.scalarSlots);
  }
}

/// The entry that asks for most of what this processor has. Decided before any
/// code is opened: its mere loading could run instructions that do not exist.
const CodeEntry &Package::chooseCode() const {
  const CodeEntry *best = nullptr;
  std::string refused;
  for (const CodeEntry &entry : manifest.code) {
    std::string missing = getMissingCpuFeatures(entry.cpuFeatures);
    if (!missing.empty())
      refused +=
          (refused.empty() ? "" : "; ") + entry.target + " needs " + missing;
    else if (!best || entry.cpuFeatures.size() > best->cpuFeatures.size())
      best = &entry;
  }
  if (!best)
    fail(STEPC_UNSUPPORTED_TARGET,
         "package '%s' has no code for this processor: %s", name.c_str(),
         refused.c_str());
  return *best;
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
