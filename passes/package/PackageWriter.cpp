//===- PackageWriter.cpp - the package file -------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The zip format: PKWARE, APPNOTE.TXT 6.3.9, sections 4.3.7, 4.3.12, 4.3.16.

#include "passes/package/PackageWriter.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CRC.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Appends little-endian fields.
class Fields {
public:
  explicit Fields(std::string &out) : out(out) {}
  Fields &u16(uint16_t value) { return put(value); }
  Fields &u32(uint32_t value) { return put(value); }
  Fields &text(StringRef value) {
    out += value;
    return *this;
  }

private:
  template <typename T>
  Fields &put(T value) {
    char bytes[sizeof(T)];
    llvm::support::endian::write<T>(bytes, value, llvm::endianness::little);
    out.append(bytes, sizeof(T));
    return *this;
  }
  std::string &out;
};
} // namespace

static constexpr uint16_t kVersion = 10;    // 1.0: stored members
static constexpr uint16_t kMidnight = 0;    // 00:00:00
static constexpr uint16_t kFirstDay = 0x21; // 1980-01-01, the format's first
static constexpr uint16_t kHashDigits = 64;

/// The fields that local and central headers share, from the version on.
static void writeCommonHeader(Fields &fields, const PackageMember &member) {
  uint32_t crc = llvm::crc32(llvm::arrayRefFromStringRef(member.bytes));
  fields.u16(kVersion).u16(0).u16(0).u16(kMidnight).u16(kFirstDay).u32(crc);
  fields.u32(member.bytes.size()).u32(member.bytes.size());
  fields.u16(member.name.size()).u16(0);
}

std::string mlir::step::writePackage(ArrayRef<PackageMember> members) {
  std::string out, directory;
  Fields local(out), central(directory);
  for (const PackageMember &member : members) {
    uint32_t offset = out.size();
    local.u32(0x04034b50);
    writeCommonHeader(local, member);
    local.text(member.name).text(member.bytes);

    central.u32(0x02014b50).u16(kVersion);
    writeCommonHeader(central, member);
    central.u16(0).u16(0).u16(0).u32(0).u32(offset).text(member.name);
  }
  uint32_t start = out.size();
  local.text(directory);
  local.u32(0x06054b50).u16(0).u16(0);
  local.u16(members.size()).u16(members.size());
  local.u32(directory.size()).u32(start).u16(kHashDigits);
  auto hash = llvm::SHA256::hash(llvm::arrayRefFromStringRef(out));
  local.text(llvm::toHex(hash, /*LowerCase=*/true));
  return out;
}
