//===- Zip.cpp - members of a zip file ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Zip.h"

#include "llvm/Support/Endian.h"
#include "llvm/Support/EndianStream.h"
#include "llvm/Support/raw_ostream.h"

#include <zlib.h>

using namespace llvm;
using namespace llvm::support;

static constexpr StringLiteral localMagic("PK\3\4");
static constexpr StringLiteral entryMagic("PK\1\2");
static constexpr StringLiteral endMagic("PK\5\6");
static constexpr size_t localSize = 30, entrySize = 46, endSize = 22;

Error stepc::run::makeError(const Twine &message) {
  return createStringError(inconvertibleErrorCode(), message.str());
}
using stepc::run::makeError;

Expected<std::unique_ptr<MemoryBuffer>> stepc::run::readFile(StringRef path) {
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
  if (!buffer)
    return makeError("cannot read '" + path +
                     "': " + buffer.getError().message());
  return std::move(*buffer);
}

static uint32_t checksum(StringRef bytes) {
  return crc32_z(0, bytes.bytes_begin(), bytes.size());
}

namespace {
/// What the central directory says of one member.
struct Entry {
  std::string name;
  uint16_t flags, method;
  uint32_t checksum, packedSize, size, offset;
};
} // namespace

static Expected<Entry> readEntry(StringRef &directory) {
  if (directory.size() < entrySize || !directory.starts_with(entryMagic))
    return makeError("not a zip file: the directory is damaged");
  const char *bytes = directory.data();
  size_t nameSize = endian::read16le(bytes + 28);
  size_t rest = endian::read16le(bytes + 30) + endian::read16le(bytes + 32);
  if (directory.size() < entrySize + nameSize + rest)
    return makeError("not a zip file: the directory is damaged");
  Entry entry{directory.substr(entrySize, nameSize).str(),
              endian::read16le(bytes + 8),
              endian::read16le(bytes + 10),
              endian::read32le(bytes + 16),
              endian::read32le(bytes + 20),
              endian::read32le(bytes + 24),
              endian::read32le(bytes + 42)};
  directory = directory.drop_front(entrySize + nameSize + rest);
  return entry;
}

/// Inflates a raw deflate stream to exactly `size` bytes; false if it does not.
static bool inflateTo(StringRef packed, size_t size, std::string &out) {
  out.resize(size);
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    return false;
  stream.next_in = const_cast<Bytef *>(packed.bytes_begin());
  stream.avail_in = packed.size();
  stream.next_out = reinterpret_cast<Bytef *>(out.data());
  stream.avail_out = size;
  int status = inflate(&stream, Z_FINISH);
  bool complete = status == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return complete;
}

static Expected<std::string> readMember(StringRef bytes, const Entry &entry) {
  auto refuse = [&](const Twine &why) {
    return makeError("member '" + entry.name + "' " + why);
  };
  if (entry.flags & 1)
    return refuse("is encrypted");
  if (entry.size == UINT32_MAX || entry.packedSize == UINT32_MAX ||
      entry.offset == UINT32_MAX)
    return refuse("is too large: zip64 is not supported");
  if (entry.offset > bytes.size() || bytes.size() - entry.offset < localSize ||
      !bytes.substr(entry.offset).starts_with(localMagic))
    return refuse("is not where the directory says");
  // Sizes come from the directory; the local header may lack them, and its
  // extra field differs from the directory's.
  const char *local = bytes.data() + entry.offset;
  size_t start = entry.offset + localSize + endian::read16le(local + 26) +
                 endian::read16le(local + 28);
  if (start > bytes.size() || bytes.size() - start < entry.packedSize)
    return refuse("is cut off");
  StringRef packed = bytes.substr(start, entry.packedSize);
  std::string data;
  if (entry.method == 0)
    data = packed.str();
  else if (entry.method != 8)
    return refuse("uses compression method " + Twine(entry.method));
  else if (!inflateTo(packed, entry.size, data))
    return refuse("does not inflate");
  if (data.size() != entry.size || checksum(data) != entry.checksum)
    return refuse("is damaged: its checksum differs");
  return data;
}

Expected<std::map<std::string, std::string>>
stepc::run::readZip(StringRef bytes) {
  size_t end = bytes.rfind(endMagic);
  if (end == StringRef::npos || bytes.size() - end < endSize)
    return makeError("not a zip file");
  size_t count = endian::read16le(bytes.data() + end + 10);
  size_t directorySize = endian::read32le(bytes.data() + end + 12);
  size_t directoryOffset = endian::read32le(bytes.data() + end + 16);
  if (directoryOffset > end || end - directoryOffset < directorySize)
    return makeError("not a zip file: the directory is damaged");
  StringRef directory = bytes.substr(directoryOffset, directorySize);
  // More than 65535 members: their number is in the zip64 part, and the
  // directory's size says as much.
  std::map<std::string, std::string> members;
  size_t seen = 0;
  for (; !directory.empty(); ++seen) {
    Expected<Entry> entry = readEntry(directory);
    if (!entry)
      return entry.takeError();
    Expected<std::string> data = readMember(bytes, *entry);
    if (!data)
      return data.takeError();
    if (!members.try_emplace(entry->name, std::move(*data)).second)
      return makeError("member '" + entry->name + "' is there twice");
  }
  if (count != UINT16_MAX && count != seen)
    return makeError("not a zip file: the directory has " + Twine(seen) +
                     " members, expected " + Twine(count));
  return members;
}

/// What local header and directory entry have in common, from "version needed"
/// to the length of the extra field.
static void writeCommon(endian::Writer &writer, StringRef name,
                        StringRef data) {
  writer.write<uint16_t>(20);     // version needed: 2.0
  writer.write<uint16_t>(0);      // flags
  writer.write<uint16_t>(0);      // stored
  writer.write<uint16_t>(0);      // time
  writer.write<uint16_t>(0x0021); // date: 1980-01-01
  writer.write<uint32_t>(checksum(data));
  writer.write<uint32_t>(data.size());
  writer.write<uint32_t>(data.size());
  writer.write<uint16_t>(name.size());
  writer.write<uint16_t>(0); // extra field
}

Error stepc::run::writeZip(StringRef path,
                           const std::map<std::string, std::string> &members) {
  std::string bytes, directory;
  raw_string_ostream out(bytes), list(directory);
  endian::Writer local(out, endianness::little);
  endian::Writer entries(list, endianness::little);
  for (const auto &[name, data] : members) {
    uint32_t offset = bytes.size();
    out << localMagic;
    writeCommon(local, name, data);
    out << name << data;
    list << entryMagic;
    entries.write<uint16_t>(20); // version made by
    writeCommon(entries, name, data);
    entries.write<uint16_t>(0); // comment
    entries.write<uint16_t>(0); // disk
    entries.write<uint16_t>(0); // internal attributes
    entries.write<uint32_t>(0); // external attributes
    entries.write<uint32_t>(offset);
    list << name;
  }
  if (bytes.size() + directory.size() > UINT32_MAX - endSize ||
      members.size() >= UINT16_MAX)
    return makeError("too much for a zip file: " + Twine(members.size()) +
                     " members, " + Twine(bytes.size()) + " bytes");
  uint32_t offset = bytes.size();
  out << directory << endMagic;
  local.write<uint16_t>(0); // this disk
  local.write<uint16_t>(0); // the directory's disk
  local.write<uint16_t>(members.size());
  local.write<uint16_t>(members.size());
  local.write<uint32_t>(directory.size());
  local.write<uint32_t>(offset);
  local.write<uint16_t>(0); // comment

  std::error_code code;
  raw_fd_ostream file(path, code);
  if (!code) {
    file << bytes;
    file.close();
    code = file.error();
  }
  if (code) {
    file.clear_error();
    return makeError("cannot write '" + path + "': " + code.message());
  }
  return Error::success();
}
