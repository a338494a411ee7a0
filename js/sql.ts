// ctx.storage.sql: statements over the host's SQLite, with cursors that read in batches.

import { refuse_to_clone } from "./clone_check";
import { native } from "./host";
import { INTERNAL, expose, set_tag, unsupported, view_bytes, wrong_argument } from "./util";

type Row = Record<string, unknown>;

// What may be bound as it is; other values become text, as in workerd.
function binding(value: unknown): unknown {
  switch (typeof value) {
    case "string":
    case "number":
      return value;
    case "undefined":
      return null;
    case "bigint":
      throw new TypeError("Cannot convert a BigInt value to a number");
    case "object":
      if (value === null || view_bytes(value) !== undefined) return value;
      return String(value);
    default:
      return `${value as string}`; // a symbol throws
  }
}

export let make_sql: (cell: CellIndex) => SqlStorage;

export class SqlStorage {
  #cell: CellIndex;

  static {
    make_sql = (cell) => new SqlStorage(INTERNAL, cell);
  }

  constructor(token: unknown, cell: CellIndex) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.#cell = cell;
  }

  exec(query: unknown, ...bindings: unknown[]): Cursor {
    if (arguments.length === 0) throw wrong_argument("exec", "SqlStorage", 1, "String");
    for (let i = 0; i < bindings.length; i++) {
      const value = bindings[i];
      const type = typeof value;
      if (type !== "string" && type !== "number") bindings[i] = binding(value);
    }
    const cell = this.#cell;
    return make_cursor(cell, native.sqlExec(cell, typeof query === "string" ? query : String(query), bindings));
  }

  get databaseSize(): number {
    return native.sqlDatabaseSize(this.#cell);
  }
  get Cursor(): typeof Cursor {
    void this.#cell;
    return Cursor;
  }
  get Statement(): typeof Statement {
    void this.#cell;
    return Statement;
  }
}

let make_cursor: (cell: CellIndex, result: SqlResult) => Cursor;
// The next row of a cursor as the host gave it; undefined at the end.
let next_row: (cursor: Cursor) => unknown[] | undefined;
let row_object: (cursor: Cursor, row: unknown[]) => Row;

class Cursor {
  #cell: CellIndex;
  #result: SqlResult;
  #next = 0;

  static {
    make_cursor = (cell, result) => new Cursor(INTERNAL, cell, result);
    next_row = (cursor) => {
      const result = cursor.#result;
      while (cursor.#next >= result.rows.length) {
        if (result.cursor === 0) return undefined;
        cursor.#next = 0;
        result.rows = [];
        native.sqlMore(cursor.#cell, result.cursor, result);
      }
      return result.rows[cursor.#next++];
    };
    row_object = (cursor, row) => {
      const columns = cursor.#result.columns;
      const object: Row = {};
      for (let i = 0; i < columns.length; i++) object[columns[i]!] = row[i];
      return object;
    };
  }

  constructor(token: unknown, cell: CellIndex, result: SqlResult) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.#cell = cell;
    this.#result = result;
  }

  next(): { done: boolean; value: Row | undefined } {
    const row = next_row(this);
    return row === undefined ? { done: true, value: undefined } : { done: false, value: row_object(this, row) };
  }

  toArray(): Row[] {
    const out: Row[] = [];
    for (let row = next_row(this); row !== undefined; row = next_row(this)) out.push(row_object(this, row));
    return out;
  }

  one(): Row {
    const row = next_row(this);
    if (row === undefined) throw new Error("Expected exactly one result from SQL query, but got no results.");
    if (next_row(this) !== undefined) {
      throw new Error("Expected exactly one result from SQL query, but got multiple results.");
    }
    return row_object(this, row);
  }

  raw(): IterableIterator<unknown[]> & { toArray(): unknown[][] } {
    return new RawIterator(this) as unknown as IterableIterator<unknown[]> & { toArray(): unknown[][] };
  }

  get columnNames(): string[] {
    return [...this.#result.columns];
  }
  get rowsRead(): number {
    return this.#result.rowsRead;
  }
  get rowsWritten(): number {
    return this.#result.rowsWritten;
  }
  declare [Symbol.iterator]: () => IterableIterator<Row>;
}

class Statement {
  constructor() {
    throw unsupported("A prepared statement of SqlStorage");
  }
}

const iterator_prototype = Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]()));

class RawIterator {
  #cursor: Cursor;

  constructor(cursor: Cursor) {
    this.#cursor = cursor;
  }
  next(): { done: boolean; value: unknown[] | undefined } {
    const row = next_row(this.#cursor);
    return row === undefined ? { done: true, value: undefined } : { done: false, value: row };
  }
  toArray(): unknown[][] {
    const out: unknown[][] = [];
    for (let row = next_row(this.#cursor); row !== undefined; row = next_row(this.#cursor)) out.push(row);
    return out;
  }
  [Symbol.iterator](): this {
    return this;
  }
}

class RowIterator {
  #cursor: Cursor;

  constructor(cursor: Cursor) {
    this.#cursor = cursor;
  }
  next(): { done: boolean; value: Row | undefined } {
    return this.#cursor.next();
  }
  [Symbol.iterator](): this {
    return this;
  }
}

expose(SqlStorage, "SqlStorage");
expose(Cursor as never, "Cursor");
Object.defineProperty(Cursor.prototype, Symbol.iterator, {
  value: function (this: Cursor) {
    return new RowIterator(this);
  },
  writable: true, configurable: true,
});
Object.setPrototypeOf(RawIterator.prototype, iterator_prototype);
Object.setPrototypeOf(RowIterator.prototype, iterator_prototype);
set_tag(RawIterator.prototype, "RawIterator");
set_tag(RowIterator.prototype, "RowIterator");
set_tag(Statement.prototype, "Statement");
refuse_to_clone(SqlStorage as never);
refuse_to_clone(Cursor as never);
