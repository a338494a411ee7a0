#include "sqlite/sql_policy.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace celld {
namespace {

// SQL functions, sorted. Those that tell how this build was made are left out
// (sqlite_version, sqlite_source_id, sqlite_compileoption_*, sqlite_offset), and load_extension.
constexpr std::string_view kFunctions[] = {
    "->",
    "->>",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "avg",
    "bm25",
    "ceil",
    "ceiling",
    "changes",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "cos",
    "cosh",
    "count",
    "cume_dist",
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "degrees",
    "dense_rank",
    "exp",
    "first_value",
    "floor",
    "format",
    "glob",
    "group_concat",
    "hex",
    "highlight",
    "ifnull",
    "iif",
    "instr",
    "json",
    "json_array",
    "json_array_length",
    "json_each",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_patch",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_tree",
    "json_type",
    "json_valid",
    "jsonb",
    "jsonb_array",
    "jsonb_extract",
    "jsonb_group_array",
    "jsonb_group_object",
    "jsonb_insert",
    "jsonb_object",
    "jsonb_patch",
    "jsonb_remove",
    "jsonb_replace",
    "jsonb_set",
    "julianday",
    "lag",
    "last_insert_rowid",
    "last_value",
    "lead",
    "length",
    "like",
    "likelihood",
    "likely",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "match",
    "max",
    "max_scalar",
    "min",
    "min_scalar",
    "mod",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "percent_rank",
    "pi",
    "pow",
    "power",
    "printf",
    "quote",
    "radians",
    "random",
    "randomblob",
    "rank",
    "replace",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "sin",
    "sinh",
    "snippet",
    "soundex",
    "sqlite_drop_column",
    "sqlite_rename_column",
    "sqlite_rename_quotefix",
    "sqlite_rename_table",
    "sqlite_rename_test",
    "sqrt",
    "strftime",
    "string_agg",
    "substr",
    "substring",
    "sum",
    "tan",
    "tanh",
    "time",
    "timediff",
    "total",
    "total_changes",
    "trim",
    "trunc",
    "typeof",
    "unhex",
    "unicode",
    "unixepoch",
    "unlikely",
    "upper",
    "zeroblob",
};
static_assert(std::is_sorted(std::begin(kFunctions), std::end(kFunctions)));

// Tables of SQLite's own that show raw pages or internals past the names of tables.
constexpr std::string_view kInternalTables[] = {"bytecode", "dbstat", "sqlite_dbpage",
                                                "sqlite_stmt", "tables_used"};

enum class PragmaArgument {
  kNone,     // reading only
  kBoolean,  // or nothing
  kObject,   // required
  kObjectOrNothing,
  kNumberOrNothing,
  kObjectNumberOrNothing,
  kAnything,
};

struct PragmaRule {
  std::string_view name;
  PragmaArgument argument;
};

constexpr PragmaRule kPragmas[] = {
    {"case_sensitive_like", PragmaArgument::kBoolean},
    {"data_version", PragmaArgument::kNone},
    {"defer_foreign_keys", PragmaArgument::kBoolean},
    {"foreign_key_check", PragmaArgument::kObjectOrNothing},
    {"foreign_key_list", PragmaArgument::kObject},
    {"foreign_keys", PragmaArgument::kBoolean},
    {"ignore_check_constraints", PragmaArgument::kBoolean},
    {"index_info", PragmaArgument::kObject},
    {"index_list", PragmaArgument::kObject},
    {"index_xinfo", PragmaArgument::kObject},
    {"legacy_alter_table", PragmaArgument::kBoolean},
    {"optimize", PragmaArgument::kNumberOrNothing},
    {"page_size", PragmaArgument::kNone},
    {"quick_check", PragmaArgument::kObjectNumberOrNothing},
    {"recursive_triggers", PragmaArgument::kBoolean},
    {"reverse_unordered_selects", PragmaArgument::kBoolean},
    {"table_info", PragmaArgument::kObject},
    {"table_list", PragmaArgument::kAnything},
    {"table_xinfo", PragmaArgument::kObject},
};

std::string lowercase(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : char(c); });
  return out;
}

bool is_boolean(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') &&
      text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  std::string value = lowercase(text);
  for (auto word : {"true", "false", "yes", "no", "on", "off", "1", "0"}) {
    if (value == word) return true;
  }
  return false;
}

bool is_number(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool may_name(const char* name) { return name != nullptr && !is_reserved_name(name); }

bool may_read(const char* table) {
  if (!may_name(table)) return false;
  std::string name = lowercase(table);
  return std::find(std::begin(kInternalTables), std::end(kInternalTables), name) ==
         std::end(kInternalTables);
}

bool may_pragma(const char* pragma, const char* argument) {
  std::string name = lowercase(pragma);
  auto rule = std::find_if(std::begin(kPragmas), std::end(kPragmas),
                           [&](const PragmaRule& r) { return r.name == name; });
  if (rule == std::end(kPragmas)) return false;
  switch (rule->argument) {
    case PragmaArgument::kNone:
      return argument == nullptr;
    case PragmaArgument::kBoolean:
      return argument == nullptr || is_boolean(argument);
    case PragmaArgument::kObject:
      return may_name(argument);
    case PragmaArgument::kObjectOrNothing:
      return argument == nullptr || may_name(argument);
    case PragmaArgument::kNumberOrNothing:
      return argument == nullptr || is_number(argument);
    case PragmaArgument::kObjectNumberOrNothing:
      return argument == nullptr || may_name(argument);
    case PragmaArgument::kAnything:
      return true;
  }
  return false;
}

bool may_call(const char* function) {
  if (function == nullptr) return false;
  return std::binary_search(std::begin(kFunctions), std::end(kFunctions),
                            std::string_view(lowercase(function)));
}

constexpr char kTransactionRefusal[] =
    "To execute a transaction, please use the state.storage.transaction() or "
    "state.storage.transactionSync() APIs instead of the SQL BEGIN TRANSACTION or SAVEPOINT "
    "statements. The JavaScript API is safer because it will automatically roll back on "
    "exceptions, and because it interacts correctly with Durable Objects' automatic atomic write "
    "coalescing.";

}  // namespace

bool is_reserved_name(std::string_view name) {
  return name.size() >= 4 && sqlite3_strnicmp(name.data(), "_cf_", 4) == 0;
}

bool is_connection_setting(std::string_view pragma) {
  for (auto name : {"case_sensitive_like", "foreign_keys", "ignore_check_constraints",
                    "legacy_alter_table", "recursive_triggers", "reverse_unordered_selects"}) {
    if (lowercase(pragma) == name) return true;
  }
  return false;
}

bool changes_schema(int action_code) {
  switch (action_code) {
    case SQLITE_ALTER_TABLE:
    case SQLITE_CREATE_INDEX:
    case SQLITE_CREATE_TABLE:
    case SQLITE_CREATE_TRIGGER:
    case SQLITE_CREATE_VIEW:
    case SQLITE_CREATE_VTABLE:
    case SQLITE_DROP_INDEX:
    case SQLITE_DROP_TABLE:
    case SQLITE_DROP_TRIGGER:
    case SQLITE_DROP_VIEW:
    case SQLITE_DROP_VTABLE:
    case SQLITE_REINDEX:
      return true;
    default:
      return false;
  }
}

bool application_may(const SqlAction& action, std::string* refusal) {
  const char* first = action.first;
  const char* second = action.second;
  const char* database = action.database;
  if (action.code == SQLITE_ALTER_TABLE) {  // passes the database first
    database = first;
    first = second;
  }
  if (database != nullptr && std::string_view(database) != "main") {
    // The database of temporary objects has only its schema table, which SQLite itself reads.
    return std::string_view(database) == "temp" &&
           (action.code == SQLITE_READ || action.code == SQLITE_UPDATE) && may_name(first);
  }
  switch (action.code) {
    case SQLITE_SELECT:
    case SQLITE_RECURSIVE:
    // Statistics name tables and sizes, not content; PRAGMA optimize analyses all tables.
    case SQLITE_ANALYZE:
      return true;

    case SQLITE_READ:
      return may_read(first);

    case SQLITE_ALTER_TABLE:
    case SQLITE_CREATE_TABLE:
    case SQLITE_CREATE_VIEW:
    case SQLITE_DELETE:
    case SQLITE_DROP_TABLE:
    case SQLITE_DROP_VIEW:
    case SQLITE_INSERT:
    case SQLITE_REINDEX:
    case SQLITE_UPDATE:
      return may_read(first);

    case SQLITE_CREATE_INDEX:
    case SQLITE_CREATE_TRIGGER:
    case SQLITE_DROP_INDEX:
    case SQLITE_DROP_TRIGGER:
      return may_name(first) && may_name(second);

    case SQLITE_CREATE_VTABLE:
    case SQLITE_DROP_VTABLE:
      return may_name(first) && second != nullptr &&
             (sqlite3_stricmp(second, "fts5") == 0 || sqlite3_stricmp(second, "fts5vocab") == 0 ||
              sqlite3_stricmp(second, "rtree") == 0);

    case SQLITE_PRAGMA:
      return first != nullptr && may_pragma(first, second);
    case SQLITE_FUNCTION:
      return may_call(second);

    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT:
      *refusal = kTransactionRefusal;
      return false;

    default:
      return false;  // ATTACH, DETACH, temporary objects, what is not known
  }
}

}  // namespace celld
