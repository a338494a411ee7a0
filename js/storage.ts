// ctx.storage: the asynchronous and the synchronous key-value API, alarms and transactions over
// the host's synchronous storage.

import { ValueCall, start_call } from "./calls";
import { refuse_to_clone } from "./clone_check";
import { config } from "./config";
import { SectionOwner, in_section } from "./critical";
import { native } from "./host";
import { SqlStorage, make_sql } from "./sql";
import { alarm_time, delete_keys, get_entries, list_entries, put_entries, put_value } from "./storage_ops";
import { INTERNAL, define_global, expose, set_tag, unsupported, wrong_argument } from "./util";

// What storage knows of its cell.
export interface StorageOwner extends SectionOwner {
  has_alarm_handler(): boolean;
}

function get(cell: CellIndex, key: unknown, count: number, owner: string): unknown {
  if (count === 0) throw wrong_argument("get", owner, 1, "string or Array");
  if (typeof key === "string") return native.kvGet(cell, key);
  if (Array.isArray(key)) return get_entries(cell, key);
  return native.kvGet(cell, String(key));
}

function list(cell: CellIndex, options: unknown, owner: string): Map<string, unknown> {
  const flat = list_entries(cell, options, owner);
  const found = new Map<string, unknown>();
  for (let i = 0; i < flat.length; i += 2) found.set(flat[i] as string, flat[i + 1]);
  return found;
}

function put(cell: CellIndex, key: unknown, value: unknown, count: number, owner: string): void {
  if (count === 0) throw wrong_argument("put", owner, 1, "string or object");
  if (typeof key === "object" && key !== null && !Array.isArray(key)) {
    put_entries(cell, key);
    return;
  }
  if (value === undefined) throw new TypeError("put() called with undefined value.");
  put_value(cell, String(key), value);
}

function remove(cell: CellIndex, key: unknown, count: number, owner: string): boolean | number {
  if (count === 0) throw wrong_argument("delete", owner, 1, "string or Array");
  if (typeof key === "string") return native.kvDelete(cell, key);
  if (Array.isArray(key)) return delete_keys(cell, key);
  return native.kvDelete(cell, String(key));
}

function set_alarm(owner: StorageOwner, time: unknown, name: string): void {
  const at = alarm_time(time, name);
  if (!owner.has_alarm_handler()) {
    throw new TypeError("Your Durable Object class must have an alarm() handler in order to call setAlarm()");
  }
  native.alarmSet(owner.cell, at);
}

const STORAGE = "DurableObjectStorage";
const TRANSACTION = "DurableObjectTransaction";

export let make_storage: (owner: StorageOwner) => DurableObjectStorage;

export class DurableObjectStorage {
  readonly kv: SyncKvStorage;
  readonly sql: SqlStorage;
  #owner: StorageOwner;
  #cell: CellIndex;

  static {
    make_storage = (owner) => new DurableObjectStorage(INTERNAL, owner);
  }

  constructor(token: unknown, owner: StorageOwner) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.#owner = owner;
    this.#cell = owner.cell;
    this.kv = make_kv(owner.cell);
    this.sql = make_sql(owner.cell);
  }

  // The options (allowConcurrency, allowUnconfirmed, noCache) change nothing here: storage is
  // local, and the host holds every effect until the writes before it are proven.
  async get(key: unknown, _options: unknown = undefined): Promise<unknown> {
    return get(this.#cell, key, arguments.length, STORAGE);
  }
  async list(options: unknown = undefined): Promise<Map<string, unknown>> {
    return list(this.#cell, options, STORAGE);
  }
  async put(key: unknown, value: unknown = undefined, _options: unknown = undefined): Promise<void> {
    put(this.#cell, key, value, arguments.length, STORAGE);
  }
  async delete(key: unknown, _options: unknown = undefined): Promise<boolean | number> {
    return remove(this.#cell, key, arguments.length, STORAGE);
  }
  async deleteAll(_options: unknown = undefined): Promise<void> {
    native.deleteAll(this.#cell, config.delete_all_deletes_alarm);
  }

  transaction(closure: (txn: DurableObjectTransaction) => unknown): Promise<unknown> {
    if (typeof closure !== "function") return Promise.reject(wrong_argument("transaction", STORAGE, 1, "function"));
    return run_transaction(this.#owner, closure);
  }

  async getAlarm(_options: unknown = undefined): Promise<number | null> {
    return native.alarmGet(this.#cell);
  }
  async setAlarm(time: unknown, _options: unknown = undefined): Promise<void> {
    set_alarm(this.#owner, time, STORAGE);
  }
  async deleteAlarm(_options: unknown = undefined): Promise<void> {
    native.alarmSet(this.#cell, null);
  }

  sync(): Promise<void> {
    const call = new ValueCall();
    try {
      native.storageSync(this.#cell, start_call(call));
    } catch (error) {
      return Promise.reject(error);
    }
    return call.promise.then(() => undefined);
  }

  transactionSync(callback: () => unknown): unknown {
    if (typeof callback !== "function") throw wrong_argument("transactionSync", STORAGE, 1, "function");
    const cell = this.#cell;
    native.txnBegin(cell);
    let result: unknown;
    try {
      result = callback();
    } catch (error) {
      roll_back(cell);
      throw error;
    }
    native.txnCommit(cell);
    return result;
  }

  async getCurrentBookmark(): Promise<string> {
    throw unsupported("getCurrentBookmark()");
  }
  async getBookmarkForTime(_time: unknown): Promise<string> {
    throw unsupported("getBookmarkForTime()");
  }
  async onNextSessionRestoreBookmark(_bookmark: unknown): Promise<string> {
    throw unsupported("onNextSessionRestoreBookmark()");
  }
}

// A critical error may have ended the transaction already; the error that led here is the one to report.
function roll_back(cell: CellIndex): void {
  try {
    native.txnRollback(cell);
  } catch {
    // There is no transaction any more.
  }
}

const OPEN = 0;
const ROLLED_BACK = 1;
const COMMITTED = 2;

let make_transaction: (owner: StorageOwner) => DurableObjectTransaction;
// Ends the transaction: commits, or rolls back when it failed. False when it was rolled back before.
let end_transaction: (txn: DurableObjectTransaction, commit: boolean) => void;

export class DurableObjectTransaction {
  #owner: StorageOwner;
  #cell: CellIndex;
  #state = OPEN;

  static {
    make_transaction = (owner) => new DurableObjectTransaction(INTERNAL, owner);
    end_transaction = (txn, commit) => {
      const open = txn.#state === OPEN;
      txn.#state = COMMITTED;
      if (!open) return;
      if (commit) native.txnCommit(txn.#cell);
      else roll_back(txn.#cell);
    };
  }

  constructor(token: unknown, owner: StorageOwner) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.#owner = owner;
    this.#cell = owner.cell;
  }

  #check(operation: string): void {
    if (this.#state === OPEN) return;
    if (this.#state === ROLLED_BACK) throw new Error(`Cannot ${operation}() on rolled back transaction`);
    throw new Error(`Cannot call ${operation}() on transaction that has already committed: ` +
      "did you move `txn` outside of the closure?");
  }

  async get(key: unknown, _options: unknown = undefined): Promise<unknown> {
    this.#check("get");
    return get(this.#cell, key, arguments.length, TRANSACTION);
  }
  async list(options: unknown = undefined): Promise<Map<string, unknown>> {
    this.#check("list");
    return list(this.#cell, options, TRANSACTION);
  }
  async put(key: unknown, value: unknown = undefined, _options: unknown = undefined): Promise<void> {
    this.#check("put");
    put(this.#cell, key, value, arguments.length, TRANSACTION);
  }
  async delete(key: unknown, _options: unknown = undefined): Promise<boolean | number> {
    this.#check("delete");
    return remove(this.#cell, key, arguments.length, TRANSACTION);
  }
  async deleteAll(): Promise<void> {
    throw new Error("Cannot call deleteAll() within a transaction");
  }
  rollback(): void {
    if (this.#state === ROLLED_BACK) return;
    this.#check("rollback");
    this.#state = ROLLED_BACK;
    native.txnRollback(this.#cell);
  }
  async getAlarm(_options: unknown = undefined): Promise<number | null> {
    this.#check("getAlarm");
    return native.alarmGet(this.#cell);
  }
  async setAlarm(time: unknown, _options: unknown = undefined): Promise<void> {
    this.#check("setAlarm");
    set_alarm(this.#owner, time, TRANSACTION);
  }
  async deleteAlarm(_options: unknown = undefined): Promise<void> {
    this.#check("deleteAlarm");
    native.alarmSet(this.#cell, null);
  }
}

// Runs the closure in a critical section of its cell, so that no other event sees or joins the
// transaction. Its failure rolls back, but does not reset the cell.
function run_transaction(owner: StorageOwner, closure: (txn: DurableObjectTransaction) => unknown): Promise<unknown> {
  let txn: DurableObjectTransaction;
  return in_section(owner, () => {
    native.txnBegin(owner.cell);
    txn = make_transaction(owner);
    return closure(txn);
  }, (failed) => end_transaction(txn, !failed));
}

let make_kv: (cell: CellIndex) => SyncKvStorage;
const SYNC_KV = "SyncKvStorage";

export class SyncKvStorage {
  #cell: CellIndex;

  static {
    make_kv = (cell) => new SyncKvStorage(INTERNAL, cell);
  }

  constructor(token: unknown, cell: CellIndex) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.#cell = cell;
  }

  get(key: unknown): unknown {
    if (arguments.length === 0) throw wrong_argument("get", SYNC_KV, 1, "string");
    return native.kvGet(this.#cell, String(key));
  }
  list(options: unknown = undefined): IterableIterator<[string, unknown]> {
    return new ListIterator(list_entries(this.#cell, options, SYNC_KV)) as unknown as IterableIterator<[string, unknown]>;
  }
  put(key: unknown, value: unknown): void {
    if (arguments.length < 2) {
      throw wrong_argument("put", SYNC_KV, arguments.length + 1, arguments.length === 0 ? "string" : "Value");
    }
    put_value(this.#cell, String(key), value);
  }
  delete(key: unknown): boolean {
    if (arguments.length === 0) throw wrong_argument("delete", SYNC_KV, 1, "string");
    return native.kvDelete(this.#cell, String(key));
  }
}

class ListIterator {
  #flat: unknown[];
  #next = 0;

  constructor(flat: unknown[]) {
    this.#flat = flat;
  }
  next(): { done: boolean; value: unknown } {
    const i = this.#next;
    if (i >= this.#flat.length) return { done: true, value: undefined };
    this.#next = i + 2;
    return { done: false, value: [this.#flat[i], this.#flat[i + 1]] };
  }
  [Symbol.iterator](): this {
    return this;
  }
}
Object.setPrototypeOf(ListIterator.prototype, Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]())));
set_tag(ListIterator.prototype, "ListIterator");

for (const [name, constructor] of Object.entries({ DurableObjectStorage, DurableObjectTransaction, SyncKvStorage })) {
  expose(constructor as never, name);
  refuse_to_clone(constructor as never);
}
define_global("DurableObjectStorage", DurableObjectStorage);
define_global("DurableObjectTransaction", DurableObjectTransaction);
