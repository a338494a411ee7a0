// Failures of SQL and storage as an application sees them.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

struct sqlite3;

namespace celld {

// Which JavaScript error it becomes.
enum class SqlErrorKind : uint8_t {
  kError,       // Error
  kTypeError,   // TypeError
  kRangeError,  // RangeError
  kFenced,      // Error; this node has lost the cell, which must be reset
};

struct SqlError {
  SqlErrorKind kind = SqlErrorKind::kError;
  int code = 0;  // primary SQLite result code; 0 when SQLite was not asked
  std::string
      message;  // complete, as workerd words it: `near "x": syntax error at offset 0: SQLITE_ERROR`

  static SqlError plain(std::string message) {
    return SqlError{SqlErrorKind::kError, 0, std::move(message)};
  }
  // What the connection reports about its last call, which returned `rc`.
  static SqlError of_connection(sqlite3* db, int rc);
};

template <class T = void>
using SqlResult = std::expected<T, SqlError>;

inline std::unexpected<SqlError> sql_fail(SqlError e) {
  return std::unexpected<SqlError>(std::move(e));
}

}  // namespace celld

#define SQL_TRY(expr)                                           \
  do {                                                          \
    if (auto sql_result_ = (expr); !sql_result_)                \
      return ::celld::sql_fail(std::move(sql_result_).error()); \
  } while (0)
