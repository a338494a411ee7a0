#include "base/json.h"

#include <boost/json.hpp>

namespace celld {

namespace json = boost::json;

JsonFields::JsonFields(const json::object* object, std::string path,
                       std::shared_ptr<Verdict> verdict)
    : object_(object), path_(std::move(path)), verdict_(std::move(verdict)) {}

std::string JsonFields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

void JsonFields::reject(std::string_view name, std::string_view reason) {
  if (verdict_->error) return;
  verdict_->error = Error::make(verdict_->code,
                                verdict_->where + ": " + path_of(name) + " " + std::string(reason));
}

Result<void> JsonFields::done() const {
  if (verdict_->error) return fail(*verdict_->error);
  return {};
}

const json::value* JsonFields::find(std::string_view name) const {
  const json::value* value = object_ ? object_->if_contains(name) : nullptr;
  return value && !value->is_null() ? value : nullptr;
}

const json::value* JsonFields::require(std::string_view name) {
  const json::value* value = find(name);
  if (!value) reject(name, "is missing");
  return value;
}

bool JsonFields::has(std::string_view name) const { return find(name) != nullptr; }

std::string JsonFields::text(std::string_view name, size_t bytes_max) {
  const json::value* value = require(name);
  if (!value) return {};
  const json::string* text = value->if_string();
  if (!text) {
    reject(name, "is not a string");
    return {};
  }
  if (text->size() > bytes_max) {
    reject(name, "is longer than " + std::to_string(bytes_max) + " bytes");
    return {};
  }
  return std::string(text->data(), text->size());
}

std::string JsonFields::text_or(std::string_view name, std::string fallback, size_t bytes_max) {
  return has(name) ? text(name, bytes_max) : std::move(fallback);
}

uint64_t JsonFields::number(std::string_view name, uint64_t min, uint64_t max) {
  const json::value* value = require(name);
  if (!value) return 0;
  std::optional<uint64_t> number;
  if (value->is_uint64()) number = value->get_uint64();
  if (value->is_int64() && value->get_int64() >= 0) {
    number = static_cast<uint64_t>(value->get_int64());
  }
  if (!number || *number < min || *number > max) {
    reject(name,
           "is not a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    return 0;
  }
  return *number;
}

uint64_t JsonFields::number_or(std::string_view name, uint64_t fallback, uint64_t min,
                               uint64_t max) {
  return has(name) ? number(name, min, max) : fallback;
}

int64_t JsonFields::integer(std::string_view name, int64_t min, int64_t max) {
  const json::value* value = require(name);
  if (!value) return 0;
  if (!value->is_int64() || value->get_int64() < min || value->get_int64() > max) {
    reject(name,
           "is not a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    return 0;
  }
  return value->get_int64();
}

int64_t JsonFields::integer_or(std::string_view name, int64_t fallback, int64_t min, int64_t max) {
  return has(name) ? integer(name, min, max) : fallback;
}

bool JsonFields::flag_or(std::string_view name, bool fallback) {
  const json::value* value = find(name);
  if (!value) return fallback;
  if (!value->is_bool()) {
    reject(name, "is not true or false");
    return fallback;
  }
  return value->get_bool();
}

JsonFields JsonFields::object_or_empty(std::string_view name) {
  const json::value* value = find(name);
  if (value && !value->is_object()) reject(name, "is not an object");
  return JsonFields(value ? value->if_object() : nullptr, path_of(name), verdict_);
}

JsonFields JsonFields::object(std::string_view name) {
  require(name);
  return object_or_empty(name);
}

void JsonFields::each(std::string_view name, size_t count_max,
                      const std::function<void(JsonFields&)>& element) {
  const json::value* value = find(name);
  if (!value) return;
  const json::array* array = value->if_array();
  if (!array) return reject(name, "is not an array");
  if (array->size() > count_max) {
    return reject(name, "has more than " + std::to_string(count_max) + " elements");
  }
  for (size_t i = 0; i < array->size() && !verdict_->error; ++i) {
    std::string member = std::string(name) + "[" + std::to_string(i) + "]";
    if (!(*array)[i].is_object()) return reject(member, "is not an object");
    JsonFields fields(&(*array)[i].get_object(), path_of(member), verdict_);
    element(fields);
  }
}

std::vector<std::string> JsonFields::texts_or_empty(std::string_view name, size_t count_max,
                                                    size_t bytes_max) {
  std::vector<std::string> out;
  const json::value* value = find(name);
  if (!value) return out;
  const json::array* array = value->if_array();
  if (!array || array->size() > count_max) {
    reject(name, "is not an array of at most " + std::to_string(count_max) + " strings");
    return out;
  }
  for (const json::value& element : *array) {
    const json::string* text = element.if_string();
    if (!text || text->size() > bytes_max) {
      reject(name, "has an element that is not a string of at most " + std::to_string(bytes_max) +
                       " bytes");
      return {};
    }
    out.emplace_back(text->data(), text->size());
  }
  return out;
}

Result<JsonDocument> JsonDocument::parse(std::string_view text, std::string_view where,
                                         ErrorCode code, JsonLimits limits) {
  auto wrong = [&](const std::string& reason) {
    return fail(Error::make(code, std::string(where) + ": " + reason));
  };
  if (text.size() > limits.bytes_max) {
    return wrong("JSON of " + std::to_string(text.size()) + " bytes, at most " +
                 std::to_string(limits.bytes_max) + " are allowed");
  }
  json::parse_options options;
  options.max_depth = limits.depth_max;
  json::parser parser({}, options);
  json::error_code error;
  size_t read = parser.write(text.data(), text.size(), error);
  if (error) {
    return wrong("not valid JSON near offset " + std::to_string(read) + ": " + error.message());
  }
  JsonDocument document;
  document.root_ = std::make_shared<const json::value>(parser.release());
  if (!document.root_->is_object()) return wrong("the JSON is not an object");
  document.where_ = where;
  document.code_ = code;
  return document;
}

JsonFields JsonDocument::fields() const {
  auto verdict = std::make_shared<JsonFields::Verdict>(
      JsonFields::Verdict{.where = where_, .code = code_, .error = std::nullopt});
  return JsonFields(&root_->get_object(), "", std::move(verdict));
}

}  // namespace celld
