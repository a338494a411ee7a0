#include "sqlite/sql_error.h"

#include <sqlite3.h>

#include <algorithm>
#include <iterator>

namespace celld {
namespace {

struct CodeName {
  int code;
  const char* name;
};

#define CODE(name) \
  { name, #name }
constexpr CodeName kCodes[] = {
    CODE(SQLITE_OK),
    CODE(SQLITE_ERROR),
    CODE(SQLITE_INTERNAL),
    CODE(SQLITE_PERM),
    CODE(SQLITE_ABORT),
    CODE(SQLITE_BUSY),
    CODE(SQLITE_LOCKED),
    CODE(SQLITE_NOMEM),
    CODE(SQLITE_READONLY),
    CODE(SQLITE_INTERRUPT),
    CODE(SQLITE_IOERR),
    CODE(SQLITE_CORRUPT),
    CODE(SQLITE_NOTFOUND),
    CODE(SQLITE_FULL),
    CODE(SQLITE_CANTOPEN),
    CODE(SQLITE_PROTOCOL),
    CODE(SQLITE_EMPTY),
    CODE(SQLITE_SCHEMA),
    CODE(SQLITE_TOOBIG),
    CODE(SQLITE_CONSTRAINT),
    CODE(SQLITE_MISMATCH),
    CODE(SQLITE_MISUSE),
    CODE(SQLITE_NOLFS),
    CODE(SQLITE_AUTH),
    CODE(SQLITE_FORMAT),
    CODE(SQLITE_RANGE),
    CODE(SQLITE_NOTADB),
    CODE(SQLITE_ABORT_ROLLBACK),
    CODE(SQLITE_CONSTRAINT_CHECK),
    CODE(SQLITE_CONSTRAINT_COMMITHOOK),
    CODE(SQLITE_CONSTRAINT_FOREIGNKEY),
    CODE(SQLITE_CONSTRAINT_FUNCTION),
    CODE(SQLITE_CONSTRAINT_NOTNULL),
    CODE(SQLITE_CONSTRAINT_PRIMARYKEY),
    CODE(SQLITE_CONSTRAINT_TRIGGER),
    CODE(SQLITE_CONSTRAINT_UNIQUE),
    CODE(SQLITE_CONSTRAINT_VTAB),
    CODE(SQLITE_CONSTRAINT_ROWID),
    CODE(SQLITE_CONSTRAINT_PINNED),
    CODE(SQLITE_CONSTRAINT_DATATYPE),
    CODE(SQLITE_CORRUPT_VTAB),
    CODE(SQLITE_CORRUPT_SEQUENCE),
    CODE(SQLITE_CORRUPT_INDEX),
    CODE(SQLITE_ERROR_MISSING_COLLSEQ),
    CODE(SQLITE_IOERR_READ),
    CODE(SQLITE_IOERR_WRITE),
    CODE(SQLITE_IOERR_TRUNCATE),
    CODE(SQLITE_IOERR_NOMEM),
    CODE(SQLITE_LOCKED_VTAB),
    CODE(SQLITE_READONLY_RECOVERY),
};
#undef CODE

const char* name_of(int code) {
  auto it = std::find_if(std::begin(kCodes), std::end(kCodes),
                         [&](const CodeName& entry) { return entry.code == code; });
  return it == std::end(kCodes) ? nullptr : it->name;
}

}  // namespace

SqlError SqlError::of_connection(sqlite3* db, int rc) {
  SqlError error;
  error.code = rc & 0xff;
  error.message = sqlite3_errmsg(db);
  if (int offset = sqlite3_error_offset(db); offset != -1) {
    error.message += " at offset " + std::to_string(offset);
  }
  const char* name = name_of(error.code);
  error.message += ": ";
  error.message += name ? name : "SQLITE_UNKNOWN_ERROR_CODE(" + std::to_string(error.code) + ")";
  int extended = sqlite3_extended_errcode(db);
  if (extended != error.code && (extended & 0xff) == error.code) {
    if (const char* more = name_of(extended)) {
      error.message += std::string(" (extended: ") + more + ")";
    }
  }
  return error;
}

}  // namespace celld
