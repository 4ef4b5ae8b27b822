//===- ZipReader.cpp - the members of a package file ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ZipReader.h"

#include "core/Sha256.h"
#include "core/Status.h"

#include <cstring>

using namespace stepc;

namespace {

constexpr size_t kHashDigits = 64;
constexpr size_t kEndSize = 22;
constexpr size_t kEntrySize = 46;
constexpr size_t kHeaderSize = 30;
constexpr uint32_t kEndMagic = 0x06054b50;
constexpr uint32_t kEntryMagic = 0x02014b50;
constexpr uint32_t kHeaderMagic = 0x04034b50;

/// The one general purpose flag that may be set: names are UTF-8.
constexpr uint32_t kUtf8Flag = 0x0800;

bool isValidName(std::string_view name) {
  if (name.empty() || name.front() == '/' ||
      name.find("..") != std::string_view::npos)
    return false;
  for (char c : name) {
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    bool digit = c >= '0' && c <= '9';
    if (!letter && !digit && c != '.' && c != '_' && c != '-' && c != '/')
      return false;
  }
  return true;
}

} // namespace

ZipReader::ZipReader(const char *file, const char *bytes, size_t size)
    : file(file), bytes(bytes, size) {
  checkHash();
  readDirectory();
}

void ZipReader::corrupt(const char *what) const {
  fail(STEPC_CORRUPT_PACKAGE, "package '%s' is corrupt: %s", file, what);
}

void ZipReader::checkHash() const {
  if (bytes.size() < kEndSize + kHashDigits)
    fail(STEPC_CORRUPT_PACKAGE,
         "package '%s' is corrupt: it has %zu bytes, the least is %zu", file,
         bytes.size(), kEndSize + kHashDigits);
  size_t hashed = bytes.size() - kHashDigits;
  std::string hash = sha256Hex(bytes.data(), hashed);
  if (bytes.substr(hashed) != hash)
    fail(STEPC_CORRUPT_PACKAGE,
         "package '%s' is corrupt: the sha-256 of its first %zu bytes is %s, "
         "which its comment does not say",
         file, hashed, hash.c_str());
}

uint32_t ZipReader::read16(size_t offset) const {
  if (offset > bytes.size() || bytes.size() - offset < 2)
    corrupt("a field lies beyond its end");
  uint8_t b[2];
  std::memcpy(b, bytes.data() + offset, 2);
  return b[0] | uint32_t(b[1]) << 8;
}

uint32_t ZipReader::read32(size_t offset) const {
  return read16(offset) | read16(offset + 2) << 16;
}

void ZipReader::readDirectory() {
  size_t end = bytes.size() - kHashDigits - kEndSize;
  if (read32(end) != kEndMagic || read16(end + 20) != kHashDigits)
    corrupt("no end record before the hash");
  uint32_t count = read16(end + 10);
  if (read16(end + 4) != 0 || read16(end + 6) != 0 || read16(end + 8) != count)
    corrupt("an archive of several parts");
  size_t directorySize = read32(end + 12);
  directoryBegin = read32(end + 16);
  directoryEnd = end;
  if (directoryBegin > end || directorySize != end - directoryBegin)
    corrupt("the central directory does not end at the end record");
  if (count > directorySize / kEntrySize)
    corrupt("more members than the central directory has room for");

  size_t entry = directoryBegin;
  size_t localOffset = 0;
  members.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    localOffset = readMember(entry, localOffset);
    entry += kEntrySize + members.back().name.size();
  }
  if (entry != directoryEnd || localOffset != directoryBegin)
    corrupt("bytes between its members and its directory");
}

/// Reads the member whose central entry begins at `entry` and whose local
/// header must begin at `local`; returns the offset after its data.
size_t ZipReader::readMember(size_t entry, size_t local) {
  if (directoryEnd - entry < kEntrySize || read32(entry) != kEntryMagic)
    corrupt("a bad entry in the central directory");
  uint32_t flags = read16(entry + 8);
  uint32_t size = read32(entry + 24);
  uint32_t nameSize = read16(entry + 28);
  if ((flags & ~kUtf8Flag) != 0 || read16(entry + 10) != 0 ||
      read32(entry + 20) != size)
    corrupt("a member is not stored plainly");
  if (read16(entry + 30) != 0 || read16(entry + 32) != 0 ||
      read16(entry + 34) != 0)
    corrupt("a member has an extra field or a comment");
  if (nameSize > directoryEnd - entry - kEntrySize)
    corrupt("a member's name lies beyond the central directory");
  std::string_view name = bytes.substr(entry + kEntrySize, nameSize);
  if (!isValidName(name))
    corrupt("a member has a name that is not allowed");
  for (const Member &other : members)
    if (other.name == name)
      corrupt("two members have one name");

  if (read32(entry + 42) != local)
    corrupt("a member does not begin where the one before ends");
  if (directoryBegin - local < kHeaderSize + nameSize ||
      directoryBegin - local - kHeaderSize - nameSize < size)
    corrupt("a member reaches into the central directory");
  // Version, flags, method, time, date, checksum, sizes and length of the name
  // stand in both places, in the same order.
  if (read32(local) != kHeaderMagic ||
      bytes.substr(local + 4, 24) != bytes.substr(entry + 6, 24) ||
      read16(local + 28) != 0 ||
      bytes.substr(local + kHeaderSize, nameSize) != name)
    corrupt("a member's header differs from its entry in the directory");

  size_t data = local + kHeaderSize + nameSize;
  members.push_back({name, bytes.substr(data, size)});
  return data + size;
}

std::string_view ZipReader::getMember(std::string_view name) const {
  for (const Member &member : members)
    if (member.name == name)
      return member.data;
  fail(STEPC_CORRUPT_PACKAGE,
       "package '%s' is corrupt: it has no member '%.*s'", file,
       int(name.size()), name.data());
}
