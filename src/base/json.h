// Strict JSON in, typed fields out, errors that name the place.
//
// JSON text here comes from the bucket, a peer or a file: everything is bounded and nothing is
// guessed. To build JSON, use Boost.JSON directly (boost::json::object keeps its order).
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace celld {

struct JsonLimits {
  size_t bytes_max = 1 << 20;
  size_t depth_max = 16;
};

// The typed fields of one JSON object, read one by one.
//
// The first field that is missing or wrong is remembered and makes done() fail; from then on the
// readers give zeros and empty strings, so a decoder reads all fields and asks once. Unknown
// fields are ignored. Names in errors are paths: "own.json cells/x: manifest.txid is missing".
// Refers to its JsonDocument, which must outlive it. One thread at a time.
class JsonFields {
 public:
  bool has(std::string_view name) const;  // present and not null

  std::string text(std::string_view name, size_t bytes_max);
  std::string text_or(std::string_view name, std::string fallback, size_t bytes_max);
  uint64_t number(std::string_view name, uint64_t min, uint64_t max);
  uint64_t number_or(std::string_view name, uint64_t fallback, uint64_t min, uint64_t max);
  int64_t integer(std::string_view name, int64_t min, int64_t max);
  int64_t integer_or(std::string_view name, int64_t fallback, int64_t min, int64_t max);
  bool flag_or(std::string_view name, bool fallback);

  // A member that is an object. When it is absent: object() records that, object_or_empty() gives
  // fields that has() says nothing of.
  JsonFields object(std::string_view name);
  JsonFields object_or_empty(std::string_view name);
  // Calls `element` for each object in an array of at most `count_max`. Absent: no call.
  void each(std::string_view name, size_t count_max,
            const std::function<void(JsonFields&)>& element);
  // The strings, of at most `bytes_max` each, in an array of at most `count_max`. Absent: none.
  std::vector<std::string> texts_or_empty(std::string_view name, size_t count_max, size_t bytes_max);

  // Records an error about a field whose text has the right type and a wrong value.
  void reject(std::string_view name, std::string_view reason);
  // The first error, if any.
  Result<void> done() const;

 private:
  friend class JsonDocument;
  struct Verdict {
    std::string where;
    ErrorCode code;
    std::optional<Error> error;
  };
  JsonFields(const boost::json::object* object, std::string path, std::shared_ptr<Verdict> verdict);
  const boost::json::value* find(std::string_view name) const;
  const boost::json::value* require(std::string_view name);
  std::string path_of(std::string_view name) const;

  const boost::json::object* object_;  // null: empty
  std::string path_;
  std::shared_ptr<Verdict> verdict_;
};

// A parsed text whose root is an object.
class JsonDocument {
 public:
  // `where` begins every error: a key of the bucket, a path. `code` is what errors carry.
  static Result<JsonDocument> parse(std::string_view text, std::string_view where, ErrorCode code,
                                    JsonLimits limits = {});
  JsonFields fields() const;

 private:
  JsonDocument() = default;
  std::shared_ptr<const boost::json::value> root_;
  std::string where_;
  ErrorCode code_ = ErrorCode::kInvalid;
};

}  // namespace celld
