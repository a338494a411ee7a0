// Where celld is meant to differ from workerd: program -> case -> label of the line -> key of the
// row in docs/compatibility.md that says why. The label "*" stands for the whole answer.
const by_value = Object.fromEntries(["response", "request", "headers", "stream"].map((name) => [name, "rpc-by-reference"]));

export const differences = {
  entrypoint: {
    object: { "super without arguments": "constructor-arguments" },
    module: { env: "one-env", exports: "module-exports", names: "module-exports" },
  },
  errors: {
    "worker/rpc_that_returns_errors": { fn: "rpc-by-reference" },
    "worker/a_constructor_that_throws": { fetch: "constructor-remote" },
    "worker/a_constructor_that_threw_once": { "works with the same stub": "stub-of-a-reset-object" },
  },
  errors_before_2026_04: {
    "worker/fetch_of_an_object_that_throws": { withFlags: "flags-of-user-errors" },
    "worker/rpc_that_throws": { withFlags: "flags-of-user-errors" },
    "worker/rpc_that_returns_errors": { fn: "rpc-by-reference", badMessage: "unreadable-message" },
    "worker/a_constructor_that_throws": { fetch: "constructor-remote" },
    "worker/a_constructor_that_threw_once": { "works with the same stub": "stub-of-a-reset-object" },
  },
  ids: {
    "worker/names": { "loose equality": "cached-ids" },
    "worker/foreign_ids": { get: "foreign-ids" },
    "A/its_context": { keys: "keys-of-ctx" },
  },
  http: {
    "worker/encoded": { "*": "encode-body" },
    "worker/gzip": { "*": "compressed-bytes" },
    "object echo HEAD": { "(header) content-length": "length-of-HEAD" },
    ...Object.fromEntries(["text", "chunked", "empty", "big"].map(
      (kind) => [`/worker/object_response_copied?to=echo ${kind}`, { cf: "cf-of-calls" }])),
  },
  lifecycle: {
    "worker/the_clock_stands_still": { same: "clock" },
    "Life/the_clock_stands_still": { same: "clock" },
    "worker/timers": { types: "node-globals", string: "node-globals", nothing: "node-globals", immediate: "node-globals" },
    "worker/code_from_strings": { timer: "node-globals" },
    "worker/globals": Object.fromEntries([
      ...["global", "process", "Buffer", "setImmediate"].map((name) => [name, "node-globals"]), ["Float16Array", "engine"]]),
    "worker/texts_of_the_engine": { repeat: "engine-texts", json: "engine-texts" },
  },
  outbound: {
    "worker/request_headers": { twice: "cookies" },
    "worker/errors": { "no such host": "unknown-host", data: "data-urls" },
    "worker/redirects": { "other scheme": "redirect-scheme" },
    "worker/streaming": { "failing upload": "failing-upload" },
    "worker/bodies_read_twice": { "json of text": "engine-texts" },
  },
  rpc: {
    "worker/results": { globalThis: "type-names" },
    "worker/results_that_are_platform_objects": by_value,
    "worker/results_that_stay_where_they_are": { function: "rpc-by-reference", target: "rpc-by-reference" },
    "worker/arguments_that_are_refused": { proxy: "rpc-by-reference", blob: "rpc-by-reference" },
    "worker/arguments_that_are_platform_objects": { ...by_value, function: "rpc-by-reference", stub: "rpc-by-reference" },
    "worker/members": {
      "method as property": "rpc-by-reference", constructor: "illegal-invocation", index: "stub-members", call: "stub-members",
      apply: "stub-members", bind: "stub-members",
    },
    "worker/pipelining": {
      "missing member": "pipelining", "member of undefined": "pipelining", "member of null": "pipelining", index: "pipelining",
      length: "pipelining",
    },
  },
  sql: {
    "Q/types_in_and_out": { surrogate: "lone-surrogates" },
    "Q/rows_read_and_written": Object.fromEntries(
      ["index", "insert", "join", "order", "several", "insert select", "before reading", "drop"].map((label) => [label, "rows-read"])),
    "Q/several_statements": { trailing: "empty-statements" },
    "Q/what_is_forbidden": { "SELECT load_extension('x')": "sqlite-version", "SELECT * FROM dbstat": "sqlite-version",
      "SELECT * FROM pragma_table_list": "sqlite-version", "SELECT * FROM sqlite_schema": "sqlite-version" },
    "Q/pragmas": { data_version: "sqlite-version" },
    "Q/a_cursor_that_was_never_drained_does_not_lock": { "*": "open-cursors" },
    "Q/limits_are_those_of_workerd": {
      "2.3 MB": "value-size", "2.3 MB blob": "value-size", concatenation: "value-size", "long sum": "sqlite-version",
    },
    "Q/the_size_of_the_database": { "read only": "illegal-invocation" },
  },
  storage: {
    "S/keys_of_every_kind": { "surrogates are one": "lone-surrogates" },
    "S/large_values": { "2 MiB": "value-size", "3 MiB": "value-size", keys: "value-size" },
    "S/bookmarks": { current: "bookmarks", "for time": "bookmarks" },
    "T/deleteAll_in_a_transaction": { sync: "deleteAll-in-transactionSync", "a (2)": "deleteAll-in-transactionSync" },
  },
};
