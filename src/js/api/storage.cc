// Natives of storage: key-value, alarm, SQL and transactions of a cell.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "js/native.h"
#include "sqlite/cell_storage.h"

namespace celld::js {
namespace {

using Args = const v8::FunctionCallbackInfo<v8::Value>&;

// Rows that one call hands over; whichever comes first. The first batch is small: many queries are
// read no further.
struct Batch {
  size_t rows_max;
  size_t bytes_max;
};
constexpr Batch kFirstBatch = {64, 64u << 10};
constexpr Batch kNextBatch = {1024, 1u << 20};

// What an open cursor holds outside of V8's heap, as a hint for the collector.
constexpr size_t kCursorBytes = 8192;

constexpr uint32_t kFlagRetryable = 1;
constexpr uint32_t kFlagObjectReset = 8;

void throw_sql(v8::Isolate* isolate, const SqlError& error) {
  std::string_view name = "Error";
  uint32_t flags = 0;
  switch (error.kind) {
    case SqlErrorKind::kError:
      break;
    case SqlErrorKind::kTypeError:
      name = "TypeError";
      break;
    case SqlErrorKind::kRangeError:
      name = "RangeError";
      break;
    case SqlErrorKind::kFenced:
      flags = kFlagRetryable | kFlagObjectReset;
      break;
  }
  isolate->ThrowException(native_host(isolate).make_error(name, error.message, flags));
}

// The storage of the cell that is the first argument; null: an exception is pending.
CellStorage* storage_of(Args args) {
  int32_t cell = args[0]->IsInt32() ? args[0].As<v8::Int32>()->Value() : -1;
  return native_host(args.GetIsolate()).storage(cell);
}

v8::Local<v8::String> key_name(v8::Isolate* isolate, std::string_view name) {
  return v8::String::NewFromUtf8(isolate, name.data(), v8::NewStringType::kInternalized,
                                 static_cast<int>(name.size()))
      .ToLocalChecked();
}

v8::Local<v8::ArrayBuffer> array_buffer(v8::Isolate* isolate, std::span<const uint8_t> bytes) {
  return to_array_buffer(
      isolate, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// --- key-value ---

// cell, key
void kv_get(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  auto found = storage->get(to_utf8(isolate, args[1]));
  if (!found) return throw_sql(isolate, found.error());
  if (!*found) return;
  v8::Local<v8::Value> value;
  if (deserialize_value(isolate, isolate->GetCurrentContext(), **found).ToLocal(&value)) {
    args.GetReturnValue().Set(value);
  }
}

// cell, key, value
void kv_put(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  std::string bytes;
  // Serialised first: it may run JavaScript (getters), and it may fail.
  if (!serialize_value(isolate, isolate->GetCurrentContext(), args[2], &bytes)) return;
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  auto done = storage->put(to_utf8(isolate, args[1]), bytes);
  if (!done) throw_sql(isolate, done.error());
}

// cell, key
void kv_delete(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  auto removed = storage->remove(to_utf8(isolate, args[1]));
  if (!removed) return throw_sql(isolate, removed.error());
  args.GetReturnValue().Set(*removed);
}

// cell, start, startAfter, end, prefix, reverse, limit
void kv_list(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  auto text = [&](int i) -> std::optional<std::string> {
    if (args[i]->IsUndefined()) return std::nullopt;
    return to_utf8(isolate, args[i]);
  };
  KvListOptions options;
  options.start = text(1);
  options.start_after = text(2);
  options.end = text(3);
  options.prefix = text(4);
  options.reverse = args[5]->IsTrue();
  if (args[6]->IsNumber()) options.limit = static_cast<int64_t>(args[6].As<v8::Number>()->Value());

  v8::Local<v8::Context> context = isolate->GetCurrentContext();
  std::vector<v8::Local<v8::Value>> out;
  bool thrown = false;
  auto done = storage->list(options, [&](std::string_view key, std::string_view bytes) {
    v8::Local<v8::Value> value;
    if (!deserialize_value(isolate, context, bytes).ToLocal(&value)) {
      thrown = true;
      return false;
    }
    out.push_back(to_v8(isolate, key));
    out.push_back(value);
    return true;
  });
  if (thrown) return;
  if (!done) return throw_sql(isolate, done.error());
  args.GetReturnValue().Set(v8::Array::New(isolate, out.data(), out.size()));
}

// cell, alsoAlarm
void delete_all(Args args) {
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  auto done = storage->delete_all(args[1]->IsTrue());
  if (!done) throw_sql(args.GetIsolate(), done.error());
}

// --- the alarm ---

// cell
void alarm_get(Args args) {
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  auto at = storage->alarm();
  if (!at) return throw_sql(args.GetIsolate(), at.error());
  if (*at && !native_host(args.GetIsolate()).hides_alarm(args[0].As<v8::Int32>()->Value())) {
    args.GetReturnValue().Set(static_cast<double>(**at));
  } else {
    args.GetReturnValue().SetNull();
  }
}

// cell, time in ms or null
void alarm_set(Args args) {
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  std::optional<int64_t> at;
  if (args[1]->IsNumber()) at = static_cast<int64_t>(args[1].As<v8::Number>()->Value());
  auto done = storage->set_alarm(at);
  if (!done) return throw_sql(args.GetIsolate(), done.error());
  native_host(args.GetIsolate()).alarm_was_set(args[0].As<v8::Int32>()->Value());
}

// --- SQL ---

// An integer becomes a number as on workerd: beyond 2^53 it loses digits.
v8::Local<v8::Value> to_js(v8::Isolate* isolate, const SqlValueView& value, size_t* bytes) {
  struct Visitor {
    v8::Isolate* isolate;
    size_t* bytes;
    v8::Local<v8::Value> operator()(std::nullptr_t) const { return v8::Null(isolate); }
    v8::Local<v8::Value> operator()(int64_t v) const {
      return v8::Number::New(isolate, static_cast<double>(v));
    }
    v8::Local<v8::Value> operator()(double v) const { return v8::Number::New(isolate, v); }
    v8::Local<v8::Value> operator()(std::string_view v) const {
      *bytes += v.size();
      return to_v8(isolate, v);
    }
    v8::Local<v8::Value> operator()(std::span<const uint8_t> v) const {
      *bytes += v.size();
      return array_buffer(isolate, v);
    }
  };
  *bytes += 16;
  return std::visit(Visitor{isolate, bytes}, value);
}

// Reads up to a batch of rows. false: an exception is pending.
bool read_rows(v8::Isolate* isolate, SqlCursor& cursor, Batch batch,
               std::vector<v8::Local<v8::Value>>* rows) {
  size_t columns = cursor.columns().size();
  std::vector<v8::Local<v8::Value>> row(columns);
  size_t bytes = 0;
  while (cursor.has_row() && rows->size() < batch.rows_max && bytes < batch.bytes_max) {
    v8::EscapableHandleScope scope(isolate);
    for (size_t i = 0; i < columns; ++i) {
      row[i] = to_js(isolate, cursor.value(static_cast<int>(i)), &bytes);
    }
    rows->push_back(scope.Escape(v8::Array::New(isolate, row.data(), columns)));
    if (auto moved = cursor.next(); !moved) {
      throw_sql(isolate, moved.error());
      return false;
    }
  }
  return true;
}

// Writes what a batch changes into an SqlResult.
void fill_result(v8::Isolate* isolate, v8::Local<v8::Object> result, const SqlCursor& cursor,
                 uint32_t number, std::vector<v8::Local<v8::Value>>& rows) {
  v8::Local<v8::Context> context = isolate->GetCurrentContext();
  auto set = [&](std::string_view name, v8::Local<v8::Value> value) {
    result->CreateDataProperty(context, key_name(isolate, name), value).Check();
  };
  set("rows", v8::Array::New(isolate, rows.data(), rows.size()));
  set("cursor", v8::Integer::NewFromUnsigned(isolate, number));
  set("rowsRead", v8::Number::New(isolate, static_cast<double>(cursor.rows_read())));
  set("rowsWritten", v8::Number::New(isolate, static_cast<double>(cursor.rows_written())));
}

// Closes the cursor of a result that JavaScript has forgotten.
void close_when_forgotten(v8::Isolate* isolate, v8::Local<v8::Object> result,
                          const std::shared_ptr<SqlCursorTable>& table, uint32_t number) {
  native_host(isolate).when_forgotten(result, kCursorBytes, [weak = std::weak_ptr(table), number] {
    if (auto open = weak.lock()) open->remove(number);
  });
}

// The bindings of one exec; views into `texts` and into JavaScript's buffers.
struct Bindings {
  std::vector<SqlValueView> values;
  std::vector<std::string> texts;
};

// false: an exception is pending.
bool read_bindings(v8::Isolate* isolate, v8::Local<v8::Value> list, Bindings* out) {
  if (!list->IsArray()) return true;
  v8::Local<v8::Context> context = isolate->GetCurrentContext();
  v8::Local<v8::Array> array = list.As<v8::Array>();
  uint32_t count = array->Length();
  out->values.reserve(count);
  out->texts.reserve(count);  // no reallocation: the views point into it
  for (uint32_t i = 0; i < count; ++i) {
    v8::Local<v8::Value> value;
    if (!array->Get(context, i).ToLocal(&value)) return false;
    if (value->IsNullOrUndefined()) {
      out->values.emplace_back(nullptr);
    } else if (value->IsNumber()) {
      // Always a floating-point number, as on workerd; column affinity makes integers of them.
      out->values.emplace_back(value.As<v8::Number>()->Value());
    } else if (value->IsString()) {
      out->texts.push_back(to_utf8(isolate, value));
      out->values.emplace_back(std::string_view(out->texts.back()));
    } else if (value->IsArrayBuffer() || value->IsArrayBufferView()) {
      std::span<uint8_t> bytes = bytes_of(value);
      out->values.emplace_back(std::span<const uint8_t>(bytes.data(), bytes.size()));
    } else {
      throw_error(isolate, "TypeError",
                  "Failed to execute 'exec' on 'SqlStorage': parameter " + std::to_string(i + 2) +
                      " is not of type 'ArrayBuffer or ArrayBufferView or string or Number or "
                      "null'.");
      return false;
    }
  }
  return true;
}

// cell, query, bindings
void sql_exec(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  Bindings bindings;
  if (!read_bindings(isolate, args[2], &bindings)) return;
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  auto opened = storage->exec(to_utf8(isolate, args[1]), bindings.values);
  if (!opened) return throw_sql(isolate, opened.error());
  std::unique_ptr<SqlCursor> cursor = std::move(*opened);

  std::vector<v8::Local<v8::Value>> names;
  names.reserve(cursor->columns().size());
  for (const auto& name : cursor->columns()) names.push_back(key_name(isolate, name));
  std::vector<v8::Local<v8::Value>> rows;
  if (!read_rows(isolate, *cursor, kFirstBatch, &rows)) return;

  v8::Local<v8::Object> result = v8::Object::New(isolate);
  result
      ->CreateDataProperty(isolate->GetCurrentContext(), key_name(isolate, "columns"),
                           v8::Array::New(isolate, names.data(), names.size()))
      .Check();
  if (!cursor->has_row()) {
    fill_result(isolate, result, *cursor, 0, rows);
  } else {
    SqlCursor& open = *cursor;
    // Forgotten cursors are closed when the collector finds them: make it look.
    if (storage->open_cursors()->is_full()) {
      isolate->LowMemoryNotification();
      native_host(isolate).run_forgotten();
    }
    uint32_t number = storage->open_cursors()->add(std::move(cursor));
    if (number == 0) {
      return throw_error(isolate, "Error",
                         "Too many SQL cursors are open that have not been read to their end.");
    }
    close_when_forgotten(isolate, result, storage->open_cursors(), number);
    fill_result(isolate, result, open, number, rows);
  }
  args.GetReturnValue().Set(result);
}

// cell, cursor, result
void sql_more(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  CellStorage* storage = storage_of(args);
  if (!storage || !args[2]->IsObject()) return;
  uint32_t number = args[1]->IsUint32() ? args[1].As<v8::Uint32>()->Value() : 0;
  SqlCursor* cursor = storage->open_cursors()->find(number);
  std::vector<v8::Local<v8::Value>> rows;
  bool good = true;
  if (!cursor) {
    throw_error(isolate, "Error", "SQL cursor was closed because the Durable Object was reset.");
    return;
  }
  if (const SqlError* failure = cursor->failure()) {
    throw_sql(isolate, *failure);
    good = false;
  } else {
    good = read_rows(isolate, *cursor, kNextBatch, &rows);
  }
  if (good) {
    fill_result(isolate, args[2].As<v8::Object>(), *cursor, cursor->has_row() ? number : 0, rows);
  }
  if (!good || !cursor->has_row()) storage->open_cursors()->remove(number);
}

// cell
void sql_database_size(Args args) {
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  auto bytes = storage->database_size();
  if (!bytes) return throw_sql(args.GetIsolate(), bytes.error());
  args.GetReturnValue().Set(static_cast<double>(*bytes));
}

// --- transactions ---

using TransactionStep = SqlResult<> (CellStorage::*)();

void transaction(Args args, TransactionStep step) {
  CellStorage* storage = storage_of(args);
  if (!storage) return;
  auto done = (storage->*step)();
  if (!done) throw_sql(args.GetIsolate(), done.error());
}

bool in_transaction(Args args) {
  CellStorage* storage = storage_of(args);
  if (!storage) return false;
  if (storage->transaction_depth() > 0) return true;
  throw_error(args.GetIsolate(), "Error", "No transaction is open.");
  return false;
}

void txn_begin(Args args) { transaction(args, &CellStorage::begin_transaction); }
void txn_commit(Args args) {
  if (in_transaction(args)) transaction(args, &CellStorage::commit_transaction);
}
void txn_rollback(Args args) {
  if (in_transaction(args)) transaction(args, &CellStorage::rollback_transaction);
}

// cell, call
void storage_sync(Args args) {
  if (!args[0]->IsInt32() || !args[1]->IsUint32()) return;
  native_host(args.GetIsolate())
      .sync_storage(args[0].As<v8::Int32>()->Value(), args[1].As<v8::Uint32>()->Value());
}

constexpr NativeFunction kNatives[] = {
    {"kvGet", kv_get},
    {"kvPut", kv_put},
    {"kvDelete", kv_delete},
    {"kvList", kv_list},
    {"deleteAll", delete_all},
    {"alarmGet", alarm_get},
    {"alarmSet", alarm_set},
    {"sqlExec", sql_exec},
    {"sqlMore", sql_more},
    {"sqlDatabaseSize", sql_database_size},
    {"txnBegin", txn_begin},
    {"txnCommit", txn_commit},
    {"txnRollback", txn_rollback},
    {"storageSync", storage_sync},
};

}  // namespace

std::span<const NativeFunction> storage_natives() { return kNatives; }

}  // namespace celld::js
