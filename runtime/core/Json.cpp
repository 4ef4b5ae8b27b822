//===- Json.cpp - JSON text as values -------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Json.h"

#include <algorithm>
#include <charconv>
#include <numeric>

using namespace stepc;

namespace {

constexpr int kMaxDepth = 32;

/// Each function reads one thing at the front of `rest` and takes it away;
/// false when it is not there, `rest` meaning nothing then.
class Parser {
public:
  explicit Parser(std::string_view text) : rest(text) {}

  bool readAll(Json &out) {
    if (!readValue(out, 0))
      return false;
    skipSpace();
    return rest.empty();
  }

private:
  void skipSpace() {
    size_t at = rest.find_first_not_of(" \t\n\r");
    rest.remove_prefix(at == std::string_view::npos ? rest.size() : at);
  }

  bool take(char c) {
    skipSpace();
    if (rest.empty() || rest.front() != c)
      return false;
    rest.remove_prefix(1);
    return true;
  }

  bool takeWord(std::string_view word) {
    if (rest.substr(0, word.size()) != word)
      return false;
    rest.remove_prefix(word.size());
    return true;
  }

  bool readValue(Json &out, int depth);
  bool readArray(Json &out, int depth);
  bool readObject(Json &out, int depth);
  bool readNumber(Json &out);
  bool readString(std::string &out);
  bool readEscape(std::string &out);
  bool readHex(uint32_t &out);

  std::string_view rest;
};

/// False where a key comes twice.
bool sortKeys(Json &object) {
  object.sorted.resize(object.keys.size());
  std::iota(object.sorted.begin(), object.sorted.end(), size_t(0));
  auto keyOf = [&](size_t place) -> const std::string & {
    return object.keys[place];
  };
  std::sort(object.sorted.begin(), object.sorted.end(),
            [&](size_t a, size_t b) { return keyOf(a) < keyOf(b); });
  return std::adjacent_find(object.sorted.begin(), object.sorted.end(),
                            [&](size_t a, size_t b) {
                              return keyOf(a) == keyOf(b);
                            }) == object.sorted.end();
}

bool isDigit(char c) { return c >= '0' && c <= '9'; }

void appendUtf8(std::string &out, uint32_t code) {
  if (code < 0x80) {
    out.push_back(char(code));
    return;
  }
  int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  out.push_back(char((0xff00 >> (more + 1)) | (code >> (6 * more))));
  while (more-- > 0)
    out.push_back(char(0x80 | ((code >> (6 * more)) & 0x3f)));
}

} // namespace

bool Parser::readValue(Json &out, int depth) {
  skipSpace();
  if (rest.empty() || depth > kMaxDepth)
    return false;
  switch (rest.front()) {
  case '{':
    return readObject(out, depth);
  case '[':
    return readArray(out, depth);
  case '"':
    out.kind = Json::Kind::String;
    return readString(out.string);
  case 't':
  case 'f':
    out.kind = Json::Kind::Boolean;
    out.boolean = rest.front() == 't';
    return takeWord(out.boolean ? "true" : "false");
  case 'n':
    return takeWord("null");
  default:
    return readNumber(out);
  }
}

bool Parser::readArray(Json &out, int depth) {
  out.kind = Json::Kind::Array;
  take('[');
  if (take(']'))
    return true;
  do {
    out.elements.emplace_back();
    if (!readValue(out.elements.back(), depth + 1))
      return false;
  } while (take(','));
  return take(']');
}

bool Parser::readObject(Json &out, int depth) {
  out.kind = Json::Kind::Object;
  take('{');
  if (take('}'))
    return true;
  do {
    std::string key;
    skipSpace();
    if (!readString(key) || !take(':'))
      return false;
    out.keys.push_back(std::move(key));
    out.elements.emplace_back();
    if (!readValue(out.elements.back(), depth + 1))
      return false;
  } while (take(','));
  return take('}') && sortKeys(out);
}

bool Parser::readNumber(Json &out) {
  // The grammar is narrower than from_chars': no leading zeros, a digit on
  // both sides of a point.
  size_t at = rest.front() == '-';
  auto takeDigits = [&] {
    size_t begin = at;
    while (at < rest.size() && isDigit(rest[at]))
      ++at;
    return at > begin;
  };
  bool leadingZero = at < rest.size() && rest[at] == '0';
  size_t first = at;
  if (!takeDigits() || (leadingZero && at > first + 1))
    return false;
  bool integral = true;
  if (at < rest.size() && rest[at] == '.') {
    integral = false;
    ++at;
    if (!takeDigits())
      return false;
  }
  if (at < rest.size() && (rest[at] == 'e' || rest[at] == 'E')) {
    integral = false;
    ++at;
    if (at < rest.size() && (rest[at] == '+' || rest[at] == '-'))
      ++at;
    if (!takeDigits())
      return false;
  }
  const char *begin = rest.data(), *end = begin + at;
  out.kind = Json::Kind::Number;
  if (std::from_chars(begin, end, out.number).ec != std::errc())
    return false;
  if (integral && std::from_chars(begin, end, out.integer).ec == std::errc())
    out.kind = Json::Kind::Integer;
  rest.remove_prefix(at);
  return true;
}

bool Parser::readString(std::string &out) {
  if (rest.empty() || rest.front() != '"')
    return false;
  rest.remove_prefix(1);
  while (!rest.empty()) {
    char c = rest.front();
    rest.remove_prefix(1);
    if (c == '"')
      return true;
    if (uint8_t(c) < 0x20)
      return false;
    if (c != '\\')
      out.push_back(c);
    else if (!readEscape(out))
      return false;
  }
  return false;
}

bool Parser::readEscape(std::string &out) {
  if (rest.empty())
    return false;
  char c = rest.front();
  rest.remove_prefix(1);
  if (c == 'u') {
    uint32_t code, low;
    if (!readHex(code))
      return false;
    // Two halves make one character above 0xffff.
    if (code >= 0xd800 && code < 0xdc00) {
      if (!takeWord("\\u") || !readHex(low) || low < 0xdc00 || low > 0xdfff)
        return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      return false;
    }
    appendUtf8(out, code);
    return true;
  }
  static constexpr std::string_view names = "\"\\/bfnrt";
  static constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
  size_t at = names.find(c);
  if (at == std::string_view::npos)
    return false;
  out.push_back(meanings[at]);
  return true;
}

bool Parser::readHex(uint32_t &out) {
  if (rest.size() < 4)
    return false;
  const char *begin = rest.data();
  bool good = std::from_chars(begin, begin + 4, out, 16).ptr == begin + 4;
  rest.remove_prefix(4);
  return good;
}

const Json *Json::find(std::string_view key) const {
  auto found = std::lower_bound(
      sorted.begin(), sorted.end(), key,
      [&](size_t place, std::string_view name) { return keys[place] < name; });
  bool isThere = found != sorted.end() && keys[*found] == key;
  return isThere ? &elements[*found] : nullptr;
}

bool stepc::parseJson(std::string_view text, Json &out) {
  return Parser(text).readAll(out);
}
