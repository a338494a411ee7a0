#include "base/result.h"

namespace celld {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNotFound: return "not-found";
    case ErrorCode::kExists: return "exists";
    case ErrorCode::kInvalid: return "invalid";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kForbidden: return "forbidden";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kDeadline: return "deadline";
    case ErrorCode::kOverloaded: return "overloaded";
    case ErrorCode::kFenced: return "fenced";
    case ErrorCode::kNotOwner: return "not-owner";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kInternal: return "internal";
  }
  return "internal";
}

namespace {

Retry default_retry(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnavailable:
    case ErrorCode::kOverloaded:
    case ErrorCode::kDeadline:
    case ErrorCode::kFenced: return Retry::kLater;
    case ErrorCode::kNotOwner: return Retry::kNow;
    case ErrorCode::kInternal:
    case ErrorCode::kCancelled: return Retry::kUnknown;
    default: return Retry::kNever;
  }
}

}  // namespace

Error Error::make(ErrorCode code, std::string message) {
  return Error{code, default_retry(code), std::move(message), 0};
}

Error Error::at(std::string_view where) const {
  Error e = *this;
  e.message = std::string(where) + ": " + message;
  return e;
}

}  // namespace celld
