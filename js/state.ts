// The object's side of a cell: DurableObjectState (ctx), and what the runtime keeps per cell.

import { refuse_to_clone } from "./clone_check";
import { DurableObjectId, make_id } from "./durable_objects";
import { native } from "./host";
import { DurableObjectStorage, StorageOwner, make_storage } from "./storage";
import { INTERNAL, expose, unsupported, wrong_argument, define_global } from "./util";
import { hold_until } from "./wait_until";

type ClassOfCell = new (ctx: DurableObjectState, env: unknown) => object;

// One resident cell of this context.
export class Cell implements StorageOwner {
  readonly cell: CellIndex;
  readonly constructor_: ClassOfCell;
  instance: Record<string, unknown> | null = null;

  constructor(cell: CellIndex, constructor_: ClassOfCell) {
    this.cell = cell;
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
  #cell: CellIndex;

  static {
    make_state = (cell, ns, id, name, exports) => new DurableObjectState(INTERNAL, cell, make_id(ns, id, name), exports);
  }

  constructor(token: unknown, cell: Cell, id: DurableObjectId, exports: object) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.id = id;
    this.storage = make_storage(cell);
    this.exports = exports;
    this.#cell = cell.cell;
  }

  waitUntil(promise: unknown): void {
    if (arguments.length === 0) throw wrong_argument("waitUntil", "DurableObjectState", 1, "Promise");
    void this.#cell;
    hold_until(native.currentIo(), promise);
  }

  // Closes the input gate until the promise of `callback` settles. When it rejects, the cell is
  // reset; when it takes longer than the host allows, too.
  blockConcurrencyWhile<T>(callback: () => T | Promise<T>): Promise<T> {
    if (typeof callback !== "function") {
      return Promise.reject(wrong_argument("blockConcurrencyWhile", "DurableObjectState", 1, "function"));
    }
    const cell = this.#cell;
    let section: number;
    let running: unknown;
    try {
      [section, running] = native.gateRun(cell, () => {
        try {
          return Promise.resolve(callback());
        } catch (error) {
          return Promise.reject(error);
        }
      });
    } catch (error) {
      return Promise.reject(error);
    }
    return (running as Promise<T>).then((value) => {
      native.gateEnd(cell, section);
      return value;
    }, (error) => {
      native.abortCell(cell, error);
      throw error;
    });
  }

  abort(reason: unknown = undefined): never {
    const message = reason === undefined
      ? "Application called abort() to reset Durable Object." : String(reason);
    const error = new Error(message) as Error & { durableObjectReset: boolean };
    error.durableObjectReset = true;
    native.abortCell(this.#cell, error);
    throw error;
  }

  acceptWebSocket(): never {
    throw unsupported("acceptWebSocket()");
  }
  getWebSockets(): never[] {
    // None can have been accepted.
    void this.#cell;
    return [];
  }
  setWebSocketAutoResponse(): never {
    throw unsupported("setWebSocketAutoResponse()");
  }
  getWebSocketAutoResponse(): null {
    void this.#cell;
    return null;
  }
  getWebSocketAutoResponseTimestamp(): never {
    throw unsupported("getWebSocketAutoResponseTimestamp()");
  }
  setHibernatableWebSocketEventTimeout(): never {
    throw unsupported("setHibernatableWebSocketEventTimeout()");
  }
  getHibernatableWebSocketEventTimeout(): null {
    void this.#cell;
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
