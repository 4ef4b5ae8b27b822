//===- ZipReader.h - the members of a package file ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads the zip files that the compiler's package stage writes, and no others:
//
//   - members are stored, one after the other from offset 0 without gaps;
//   - no extra fields, member comments, data descriptors, encryption or zip64;
//   - the archive comment is the SHA-256 of all bytes before it, in hex, and
//     the last 64 bytes of the file.
//
// The hash is compared before anything else is looked at. All offsets are
// checked all the same: whoever writes a file can hash it, too.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ZIPREADER_H
#define STEPC_CORE_ZIPREADER_H

#include <cstddef>
#include <string_view>
#include <vector>

namespace stepc {

class ZipReader {
public:
  /// Checks the `size` bytes, which must outlive the reader. `file` is what
  /// messages call them. Throws STEPC_CORRUPT_PACKAGE.
  ZipReader(const char *file, const char *bytes, size_t size);

  /// The member's bytes. Throws STEPC_CORRUPT_PACKAGE when there is none.
  std::string_view getMember(std::string_view name) const;

private:
  struct Member {
    std::string_view name;
    std::string_view data;
  };

  [[noreturn]] void corrupt(const char *what) const;
  void checkHash() const;
  void readDirectory();
  size_t readMember(size_t entry, size_t localOffset);
  uint32_t read16(size_t offset) const;
  uint32_t read32(size_t offset) const;

  const char *file;
  std::string_view bytes;
  std::vector<Member> members;
  /// Where the central directory begins: no member reaches beyond.
  size_t directoryBegin = 0;
  size_t directoryEnd = 0;
};

} // namespace stepc

#endif // STEPC_CORE_ZIPREADER_H
