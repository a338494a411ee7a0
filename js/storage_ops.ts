// The operations behind the key-value APIs: checks of arguments, and the host's storage.

import { check_clone } from "./clone_check";
import { DOMException } from "./dom_exception";
import { native } from "./host";
import { wrong_argument } from "./util";

const ALARM_MAX = 2 ** 63 / 1e6; // what nanoseconds in 64 bits can hold

interface ListOptions {
  start?: unknown;
  startAfter?: unknown;
  end?: unknown;
  prefix?: unknown;
  reverse?: unknown;
  limit?: unknown;
}

const text_or_absent = (value: unknown): string | undefined => (value === undefined ? undefined : String(value));

export function list_entries(cell: CellIndex, options: unknown, owner: string): unknown[] {
  if (options === undefined || options === null) {
    return native.kvList(cell, undefined, undefined, undefined, undefined, false, undefined);
  }
  if (typeof options !== "object") throw wrong_argument("list", owner, 1, "ListOptions");
  const given = options as ListOptions;
  const start = text_or_absent(given.start);
  const after = text_or_absent(given.startAfter);
  if (start !== undefined && after !== undefined) {
    throw new TypeError("list() cannot be called with both start and startAfter values.");
  }
  let limit: number | undefined;
  if (given.limit !== undefined) {
    limit = Math.trunc(Number(given.limit)) || 0;
    if (limit <= 0) throw new TypeError("List limit must be positive.");
  }
  return native.kvList(cell, start, after, text_or_absent(given.end), text_or_absent(given.prefix),
    Boolean(given.reverse), limit);
}

export function put_value(cell: CellIndex, key: string, value: unknown): void {
  if (typeof value === "object" && value !== null) check_clone(value, false);
  else if (typeof value === "function" || typeof value === "symbol") {
    throw new DOMException(`${String(value)} could not be cloned.`, "DataCloneError");
  }
  native.kvPut(cell, key, value);
}

export function get_entries(cell: CellIndex, keys: unknown[]): Map<string, unknown> {
  // In the order of the keys' names, as a list() would give them.
  const found = new Map<string, unknown>();
  const names = [...new Set(keys.map(String))].sort(by_utf8);
  for (const name of names) {
    const value = native.kvGet(cell, name);
    if (value !== undefined) found.set(name, value);
  }
  return found;
}

// Order of the UTF-8 forms, which is that of code points.
function by_utf8(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const x = a.charCodeAt(i);
    const y = b.charCodeAt(i);
    if (x === y) continue;
    const x_high = x >= 0xd800 && x < 0xe000;
    const y_high = y >= 0xd800 && y < 0xe000;
    return x_high === y_high ? x - y : x_high ? 1 : -1;
  }
  return a.length - b.length;
}

export function put_entries(cell: CellIndex, entries: object): void {
  for (const key of Object.keys(entries)) {
    const value = (entries as Record<string, unknown>)[key];
    if (value !== undefined) put_value(cell, key, value);
  }
}

export function delete_keys(cell: CellIndex, keys: unknown[]): number {
  let count = 0;
  for (const key of keys) if (native.kvDelete(cell, String(key))) count++;
  return count;
}

export function alarm_time(value: unknown, owner: string): number {
  let time: number;
  if (value instanceof Date) time = value.getTime();
  else if (typeof value === "number") time = value;
  else throw wrong_argument("setAlarm", owner, 1, "date");
  if (!Number.isFinite(time)) {
    throw new TypeError("The value cannot be converted because it is not a valid Date.");
  }
  if (time <= 0) throw new TypeError("setAlarm() cannot be called with an alarm time <= 0");
  if (time >= ALARM_MAX) throw new TypeError("This API doesn't support dates after 2189.");
  // As on workerd, the past is now.
  return Math.max(Math.trunc(time), Date.now());
}

