//===- CodeLoader.cpp - machine code from memory into the process ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/CodeLoader.h"

#include "core/Status.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <immintrin.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

using namespace stepc;
using namespace stepc::cpu;

// Since Linux 6.3; refused as an unknown flag before.
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

LoadedCode::~LoadedCode() {
  if (handle)
    dlclose(handle);
  if (descriptor >= 0)
    close(descriptor);
}

void LoadedCode::writeSealed(std::string_view bytes) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  descriptor = memfd_create("stepc-package", flags | MFD_EXEC);
  if (descriptor < 0 && errno == EINVAL)
    descriptor = memfd_create("stepc-package", flags);
  if (descriptor < 0)
    fail(STEPC_FILE_ERROR, "cannot take memory for %s: memfd_create: %s", what,
         std::strerror(errno));

  size_t written = 0;
  while (written < bytes.size()) {
    ssize_t n =
        write(descriptor, bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      fail(STEPC_FILE_ERROR, "cannot write %s to memory: %s", what,
           std::strerror(errno));
    written += size_t(n);
  }
  if (fcntl(descriptor, F_ADD_SEALS,
            F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    fail(STEPC_FILE_ERROR, "cannot seal the memory of %s: %s", what,
         std::strerror(errno));
}

void LoadedCode::open(std::string_view bytes, const char *whatItIs) {
  what = whatItIs;
  writeSealed(bytes);
  std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  // An object linked with -ffast-math would switch the caller to
  // flush-to-zero. The compiler makes none; a package may be anybody's.
  unsigned mode = _mm_getcsr();
  handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  _mm_setcsr(mode);
  if (!handle)
    fail(STEPC_CORRUPT_PACKAGE, "cannot load %s: %s", what, dlerror());
}

void *LoadedCode::getSymbol(const char *name) const {
  void *symbol = dlsym(handle, name);
  if (!symbol)
    fail(STEPC_CORRUPT_PACKAGE, "%s has no symbol '%s'", what, name);
  return symbol;
}
