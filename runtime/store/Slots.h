//===- Slots.h - a file of states that outlives its process -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each piece of a durable store has two slots in the file. One has what was
// committed; what is written goes into the other, page by page, and is read
// there. A commit has the other be the first, for all pieces at once:
//
//   page 0      the head: what the file is, and in which format
//   page 1, 2   roots, of which the one with the higher generation counts:
//               generation g is written to page 1 + g % 2
//   then        piece by piece its two slots
//
// A root says where the record of its generation is: which pieces there are,
// the slot of each, and a note of the caller's. The record is a piece itself.
// It and all other pages are on the disk (fdatasync) before the root is
// written, and the root is before the next page of any piece is. So whatever
// moment a process or its machine ends at, the file has one generation whole;
// and the one before it, too, until the next page is written: its root goes
// ahead of that. What is found in
// an opened file need not be on the disk, as the process that wrote it may have
// been killed before: head and roots are written again, and brought there,
// ahead of all else.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_STORE_SLOTS_H
#define STEPC_STORE_SLOTS_H

#include "store/File.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace stepc::store {

class Slots {
public:
  /// Reads what the file has, or makes an empty one of it that has nothing. An
  /// Error where it is no such file, or not whole; it has not changed then.
  explicit Slots(File &file);
  Slots(const Slots &) = delete;
  Slots &operator=(const Slots &) = delete;

  /// How many commits there were, and what the last one noted.
  int64_t getGeneration() const { return generation; }
  const std::string &getNote() const { return note; }
  /// Offset and size of each piece that was committed.
  std::map<int64_t, int64_t> getCommitted() const;

  /// Where both slots of what a store has at an offset begin.
  static int64_t getPlace(int64_t offset) { return 2 * offset + kPage; }

  /// An Error where the file has fewer bytes: others have cut it.
  void requireBytes(int64_t bytes) const;

  /// A piece of zeros, `scratch`: which is written in place, and not committed;
  /// one that is given back. False: it is kept until the next
  /// commit, as the last one has it.
  void add(int64_t offset, int64_t bytes, bool scratch = false);
  bool remove(int64_t offset);

  /// Pages, from page to page.
  void read(void *to, int64_t bytes, int64_t offset);
  void write(const void *from, int64_t bytes, int64_t offset);

  /// 0: the piece for records has room for one with a note of so many bytes;
  /// else the bytes of one to be added for them.
  int64_t getMissingRoom(int64_t noteBytes) const;
  int64_t getRecord() const { return record; }
  void setRecord(int64_t offset) { record = offset; }

  struct Freed {
    int64_t offset;
    int64_t bytes;
  };
  /// What was written and added becomes what the file has; returns what the
  /// generation before the last one had, and no other has. Throws where the
  /// disk does not do its part: the file has what it had, or, where that is not
  /// known any more, nothing can be written from then on.
  std::vector<Freed> commit(const void *note, int64_t bytes);
  /// Undoes the last commit: opened anew the file has the one before. Nothing
  /// is written any more. An Error where something was written since the
  /// commit.
  void retreat();
  /// To be called before pages are changed that no generation's record has: the
  /// one before the last is not whole any more.
  void dropBefore();
  /// By commits beside what is written.
  int64_t getBytesWritten() const { return bytesWritten; }

private:
  struct Piece {
    int64_t bytes;
    /// Of what was committed.
    int32_t slot = 0;
    bool committed = false;
    bool given = false;
    bool scratch = false;
    /// By page, whether it is in the other slot.
    std::vector<bool> written;
    int64_t numWritten = 0;
  };
  struct Run {
    int64_t place;
    int64_t bytes;
  };

  void readHead(const char *head, int64_t size);
  void makeHead();
  void readRoots(const char *roots);
  void readRecord(int64_t place, int64_t bytes, const char *digest);
  void parseRecord(const char *record, int64_t bytes);
  std::string makeRecord(const void *note, int64_t bytes) const;
  void writeRoot(int64_t place, int64_t bytes, const std::string &digest);
  Run findRun(int64_t offset, int64_t bytes, bool isWrite) const;
  void mark(int64_t offset, int64_t bytes);
  void complete();
  std::vector<Freed> settle();
  int64_t getSlotPlace(int64_t offset, const Piece &piece, bool other) const;
  [[noreturn]] void failForeign() const;
  [[noreturn]] void failDamaged(const char *what) const;

  File &file;
  mutable std::mutex mutex;
  std::map<int64_t, Piece> pieces;
  int64_t record = 0; // offset of the piece for it; 0: none
  int64_t generation = 0;
  /// Whether the file has the generation before, too.
  bool hasBefore = false;
  std::string note;
  /// What went with the last commit, and the one before it had.
  std::vector<Freed> leaving;
  int64_t bytesWritten = 0;
  bool broken = false;
};

} // namespace stepc::store

#endif // STEPC_STORE_SLOTS_H
