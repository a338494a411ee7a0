// What the SQL of an application may do: the same as on workerd.
//
// Refused: transactions and savepoints (the storage API has its own), ATTACH, temporary objects,
// virtual tables other than FTS5, SQL functions and pragmas outside a list, and everything whose
// name starts with `_cf_`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace celld {

// Limits of a connection; all may be set upward, to SQLite's compiled maxima.
struct SqlLimits {
  int value_bytes_max = 2'200'000;  // one value or row: 2 MiB and what SQLite adds
  int statement_bytes_max = 100'000;
  int columns_max = 100;
  int parameters_max = 100;
  int like_pattern_bytes_max = 50;
  int compound_selects_max = 5;
  int expression_depth_max = 100;
  int function_arguments_max = 127;
  int program_steps_max = 25'000;  // opcodes of one compiled statement
  int trigger_depth_max = 10;
  uint32_t database_pages_max = 2'621'440;  // 10 GiB
  // Pages that one transaction may change; it is one commit, which must fit into memory and the journal.
  uint32_t transaction_pages_max = 32'768;  // 128 MiB
};

// What one authorizer call is about; the strings may be null, as SQLite passes them.
struct SqlAction {
  int code;
  const char* first;
  const char* second;
  const char* database;
};

// Whether application SQL may do it. `refusal` gets a message where the general one is not enough.
bool application_may(const SqlAction& action, std::string* refusal);

// Whether the statement could disturb one that is half read (DROP, ALTER, CREATE INDEX, ...).
bool changes_schema(int action_code);

// Names that belong to the host: `_cf_` in any case.
bool is_reserved_name(std::string_view name);

// Boolean pragmas that an application may set for its connection and that hold until it closes.
bool is_connection_setting(std::string_view pragma);

}  // namespace celld
