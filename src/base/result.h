// Expected failures as values.
//
// Every fallible function of the project returns Result<T>. An Error says what the caller
// should do about it; its message names what failed and where, for a person.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace celld {

// What went wrong, in the terms of the caller.
enum class ErrorCode : uint8_t {
  kNotFound,      // the thing named does not exist; definite
  kExists,        // the thing named exists already; definite
  kInvalid,       // the input is malformed: configuration, bundle, frame, argument
  kCorrupt,       // stored data contradicts itself (checksum, magic, missing part)
  kForbidden,     // credentials or policy refuse
  kUnavailable,   // transport, timeout, throttling, 5xx: the other side may have acted
  kDeadline,      // the caller's deadline passed
  kOverloaded,    // a bound (queue, memory, concurrency) is reached
  kFenced,        // this node has lost its authority
  kNotOwner,      // another node owns the cell
  kCancelled,     // the caller went away
  kUnsupported,   // a part that does not exist yet, named in the message
  kInternal,      // a fault of ours
};

std::string_view to_string(ErrorCode code);

// What the caller may do about it.
enum class Retry : uint8_t { kNow, kLater, kNever, kUnknown };

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  Retry retry = Retry::kUnknown;
  std::string message;
  uint32_t retry_after_ms = 0;  // the other side asked for that pause; 0 = it did not say

  static Error make(ErrorCode code, std::string message);
  static Error not_found(std::string m) { return make(ErrorCode::kNotFound, std::move(m)); }
  static Error invalid(std::string m) { return make(ErrorCode::kInvalid, std::move(m)); }
  static Error corrupt(std::string m) { return make(ErrorCode::kCorrupt, std::move(m)); }
  static Error unavailable(std::string m) { return make(ErrorCode::kUnavailable, std::move(m)); }
  static Error deadline(std::string m) { return make(ErrorCode::kDeadline, std::move(m)); }
  static Error fenced(std::string m) { return make(ErrorCode::kFenced, std::move(m)); }
  static Error cancelled(std::string m) { return make(ErrorCode::kCancelled, std::move(m)); }
  static Error overloaded(std::string m) { return make(ErrorCode::kOverloaded, std::move(m)); }
  static Error unsupported(std::string m) { return make(ErrorCode::kUnsupported, std::move(m)); }
  static Error internal(std::string m) { return make(ErrorCode::kInternal, std::move(m)); }

  // The same error with "<where>: " put before the message.
  Error at(std::string_view where) const;
};

template <class T = void>
using Result = std::expected<T, Error>;

using Unexpected = std::unexpected<Error>;

// return fail(Error::invalid("..."));
inline Unexpected fail(Error e) { return Unexpected(std::move(e)); }

}  // namespace celld

#define CELLD_CAT_(a, b) a##b
#define CELLD_CAT(a, b) CELLD_CAT_(a, b)

// TRY(expr): returns the error of a Result<void> expression. TRY_ASSIGN(x, expr): the value or return.
// The CO_ variants are for coroutines.
#define TRY(expr)                                                        \
  do {                                                                   \
    if (auto try_result_ = (expr); !try_result_)                         \
      return ::celld::fail(std::move(try_result_).error());              \
  } while (0)
#define TRY_ASSIGN(lhs, expr) TRY_ASSIGN_IMPL_(CELLD_CAT(try_value_, __LINE__), lhs, expr, return)
#define CO_TRY(expr)                                                     \
  do {                                                                   \
    auto try_result_ = (expr);                                           \
    if (!try_result_) co_return ::celld::fail(std::move(try_result_).error()); \
  } while (0)
#define CO_TRY_ASSIGN(lhs, expr) TRY_ASSIGN_IMPL_(CELLD_CAT(try_value_, __LINE__), lhs, expr, co_return)
#define TRY_ASSIGN_IMPL_(tmp, lhs, expr, ret)                \
  auto tmp = (expr);                                         \
  if (!tmp) ret ::celld::fail(std::move(tmp).error());       \
  lhs = std::move(*tmp)
