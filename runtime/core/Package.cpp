//===- Package.cpp - a loaded package -------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Package.h"

#include "core/Status.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace stepc;

Package::Package(std::string packageName, const ZipReader &zip)
    : name(std::move(packageName)),
      manifestText(zip.getMember("manifest.json")),
      manifest(readManifest(name.c_str(), manifestText)) {
  for (const CodeEntry &entry : manifest.code)
    if (entry.device == "cuda")
      deviceCode.push_back({entry, std::string(zip.getMember(entry.file))});
  for (const Variant &variant : manifest.variants) {
    maxScalarSlots = std::max(maxScalarSlots, variant.scalarSlots);
    carriesScalars |= !variant.carried.empty();
    transfers |= !variant.getTransfers().empty();
  }
}

namespace {

/// Closes a file descriptor at the end of the scope.
struct FileCloser {
  int descriptor;
  ~FileCloser() { close(descriptor); }
};

} // namespace

std::string stepc::readFile(const char *path) {
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
