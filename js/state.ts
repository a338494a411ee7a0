// The object's side of a cell: DurableObjectState (ctx), and what the runtime keeps per cell.

import { refuse_to_clone } from "./clone_check";
import { DurableObjectId, make_id } from "./durable_objects";
import { in_section } from "./critical";
import { pack_thrown, plain_thrown } from "./error_wire";
import { native } from "./host";
import { DurableObjectStorage, StorageOwner, make_storage } from "./storage";
import { INTERNAL, expose, unsupported, wrong_argument, define_global } from "./util";
import { hold_until } from "./wait_until";

type ClassOfCell = new (ctx: DurableObjectState, env: unknown) => object;

// One resident cell of this context.
export class Cell implements StorageOwner {
  readonly cell: CellIndex;
  readonly id: string;
  readonly constructor_: ClassOfCell;
  readonly section_queue: (() => void)[] = [];
  instance: Record<string, unknown> | null = null;

  constructor(cell: CellIndex, id: string, constructor_: ClassOfCell) {
    this.cell = cell;
    this.id = id;
    this.constructor_ = constructor_;
  }

  has_alarm_handler(): boolean {
    return typeof this.constructor_.prototype?.alarm === "function";
  }
}

export let make_state: (cell: Cell, ns: number, id: string, name: string | undefined, exports: object) => DurableObjectState;

export class DurableObjectState {
  readonly id: DurableObjectId;
  readonly storage: DurableObjectStorage;
  readonly props: object = {};
  readonly exports: object;
  #owner: Cell;

  static {
    make_state = (cell, ns, id, name, exports) => new DurableObjectState(INTERNAL, cell, make_id(ns, id, name), exports);
  }

  constructor(token: unknown, cell: Cell, id: DurableObjectId, exports: object) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.id = id;
    this.storage = make_storage(cell);
    this.exports = exports;
    this.#owner = cell;
  }

  waitUntil(promise: unknown): void {
    if (arguments.length === 0) throw wrong_argument("waitUntil", "DurableObjectState", 1, "Promise");
    void this.#owner;
    hold_until(native.currentIo(), promise);
  }

  // Closes the input gate until the promise of `callback` settles. When it rejects, the cell is
  // reset; when it takes longer than the host allows, too.
  blockConcurrencyWhile<T>(callback: () => T | Promise<T>): Promise<T> {
    if (typeof callback !== "function") {
      return Promise.reject(wrong_argument("blockConcurrencyWhile", "DurableObjectState", 1, "function"));
    }
    return in_section(this.#owner, callback, (failed, error) => {
      if (failed) native.abortCell(this.#owner.cell, plain_thrown(error), pack_thrown(error, undefined));
    });
  }

  abort(reason: unknown = undefined): never {
    const message = reason === undefined
      ? "Application called abort() to reset Durable Object." : String(reason);
    const error = new Error(message) as Error & { durableObjectReset: boolean };
    error.durableObjectReset = true;
    native.abortCell(this.#owner.cell, error);
    throw error;
  }

  acceptWebSocket(): never {
    throw unsupported("acceptWebSocket()");
  }
  getWebSockets(): never[] {
    // None can have been accepted.
    void this.#owner;
    return [];
  }
  setWebSocketAutoResponse(): never {
    throw unsupported("setWebSocketAutoResponse()");
  }
  getWebSocketAutoResponse(): null {
    void this.#owner;
    return null;
  }
  getWebSocketAutoResponseTimestamp(): never {
    throw unsupported("getWebSocketAutoResponseTimestamp()");
  }
  setHibernatableWebSocketEventTimeout(): never {
    throw unsupported("setHibernatableWebSocketEventTimeout()");
  }
  getHibernatableWebSocketEventTimeout(): null {
    void this.#owner;
    return null;
  }
  getTags(): never {
    throw unsupported("getTags()");
  }

  get facets(): never {
    throw unsupported("ctx.facets");
  }
  get container(): undefined {
    return undefined;
  }
}

expose(DurableObjectState as never, "DurableObjectState");
for (const hidden of ["facets", "container"]) {
  Object.defineProperty(DurableObjectState.prototype, hidden, { enumerable: false });
}
refuse_to_clone(DurableObjectState as never);
define_global("DurableObjectState", DurableObjectState);
