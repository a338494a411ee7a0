// node:async_hooks: AsyncLocalStorage and AsyncResource over the map that the frame of an event
// carries. A map is never changed after it was set.

import { native } from "./host";
import { AnyFunction, set_tag } from "./util";

type Frame = Map<AsyncLocalStorage, unknown>;

const current = () => native.contextGet() as Frame | undefined;

function run_in(frame: Frame | undefined, fn: AnyFunction, self: unknown, args: unknown[]): unknown {
  return native.contextRun(frame, fn, self, args);
}

export class AsyncLocalStorage {
  #default: unknown;
  #name: string;

  constructor(options: { defaultValue?: unknown; name?: unknown } | undefined = undefined) {
    this.#default = options?.defaultValue;
    this.#name = options?.name === undefined ? "" : String(options.name);
  }

  get name(): string {
    return this.#name;
  }

  run(store: unknown, callback: AnyFunction, ...args: unknown[]): unknown {
    const frame: Frame = new Map(current());
    frame.set(this, store);
    return run_in(frame, callback, undefined, args);
  }

  exit(callback: AnyFunction, ...args: unknown[]): unknown {
    const frame: Frame = new Map(current());
    frame.delete(this);
    return run_in(frame, callback, undefined, args);
  }

  getStore(): unknown {
    const frame = current();
    return frame !== undefined && frame.has(this) ? frame.get(this) : this.#default;
  }

  enterWith(_store: unknown): never {
    throw new Error("asyncLocalStorage.enterWith() is not implemented");
  }

  disable(): never {
    throw new Error("asyncLocalStorage.disable() is not implemented");
  }

  static bind(fn: AnyFunction): AnyFunction {
    const frame = current();
    return function (this: unknown, ...args: unknown[]) {
      return run_in(frame, fn, this, args);
    };
  }

  static snapshot(): AnyFunction {
    const frame = current();
    return (fn: AnyFunction, ...args: unknown[]) => run_in(frame, fn, undefined, args);
  }
}

export class AsyncResource {
  #type: string;
  #frame: Frame | undefined;

  constructor(type: string, _options: unknown = undefined) {
    this.#type = String(type);
    this.#frame = current();
  }

  get type(): string {
    return this.#type;
  }
  asyncId(): number {
    return 0;
  }
  triggerAsyncId(): number {
    return 0;
  }
  emitDestroy(): this {
    return this;
  }

  runInAsyncScope(fn: AnyFunction, self: unknown = undefined, ...args: unknown[]): unknown {
    return run_in(this.#frame, fn, self, args);
  }

  bind(fn: AnyFunction, self: unknown = undefined): AnyFunction {
    const frame = this.#frame;
    return function (this: unknown, ...args: unknown[]) {
      return run_in(frame, fn, self === undefined ? this : self, args);
    };
  }

  static bind(fn: AnyFunction, type: string | undefined = undefined, self: unknown = undefined): AnyFunction {
    return new AsyncResource(type ?? fn.name ?? "bound-anonymous-fn").bind(fn, self);
  }
}

set_tag(AsyncLocalStorage.prototype, "AsyncLocalStorage");
set_tag(AsyncResource.prototype, "AsyncResource");

export const async_hooks = {
  AsyncLocalStorage,
  AsyncResource,
  executionAsyncId: () => 0,
  triggerAsyncId: () => 0,
  executionAsyncResource: () => ({}),
  createHook(): never {
    throw new Error("The createHook() method is not implemented");
  },
};
