// Outstanding asynchronous natives: each has a number, and ends in one of the completion hooks.

import { native } from "./host";
import { host_error } from "./errors";

export interface Call {
  head(status: number, status_text: string, headers: HeaderBlock, body: Body): void;
  value(value: unknown): void;
  error(reason: unknown): void;
}

const calls = new Map<CallId, Call>();
let last_call: CallId = 0;

export function start_call(call: Call): CallId {
  const id = ++last_call;
  calls.set(id, call);
  return id;
}

// The native failed to start, or answered at once: nothing will complete this number.
export function forget_call(id: CallId): void {
  calls.delete(id);
}

export function cancel_call(id: CallId): void {
  if (calls.delete(id)) native.cancelCall(id);
}

// A call that ends in callValue, as a promise. `start` may throw; the promise then rejects.
export class ValueCall implements Call {
  readonly promise: Promise<any>;
  #resolve!: (value: unknown) => void;
  #reject!: (reason: unknown) => void;

  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  head(): void {
    this.#reject(new Error("internal error: a response head where a value was due"));
  }
  value(value: unknown): void {
    this.#resolve(value);
  }
  error(reason: unknown): void {
    this.#reject(reason);
  }
}

export const completions = {
  callHead(id: CallId, status: number, status_text: string, headers: HeaderBlock, body: Body): void {
    const call = calls.get(id);
    if (call === undefined) {
      if (typeof body === "number") native.pipeCancel(body);
      return;
    }
    calls.delete(id);
    call.head(status, status_text, headers, body);
  },
  callValue(id: CallId, value: unknown): void {
    const call = calls.get(id);
    if (call === undefined) return;
    calls.delete(id);
    call.value(value);
  },
  callError(id: CallId, name: string, message: string, stack: string, flags: ErrorFlags): void {
    const call = calls.get(id);
    if (call === undefined) return;
    calls.delete(id);
    call.error(host_error(name, message, stack, flags));
  },
};
