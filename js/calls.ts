// Outstanding asynchronous natives: each has a number, and ends in one of the completion hooks.

import { native } from "./host";
import { host_error, mark_error } from "./errors";
import { Owned } from "./owners";

export abstract class Call extends Owned {
  #id: CallId = 0;

  abstract head(status: number, status_text: string, headers: HeaderBlock, body: Body): void;
  abstract value(value: unknown): void;
  abstract error(reason: unknown): void;

  static start(call: Call): CallId {
    const id = next_id();
    call.#id = id;
    calls.set(id, call);
    Owned.own(call);
    return id;
  }

  dropped(): void {
    calls.delete(this.#id);
  }
}

const calls = new Map<CallId, Call>();
let last_call: CallId = 0;
// The host counts in 32 bits.
const CALL_ID_MAX = 0xffff_ffff;

function next_id(): CallId {
  do last_call = last_call >= CALL_ID_MAX ? 1 : last_call + 1;
  while (calls.has(last_call));
  return last_call;
}

export const start_call = Call.start;

// Takes the call out: it ends now, or nothing will complete it.
function take_call(id: CallId): Call | undefined {
  const call = calls.get(id);
  if (call === undefined) return undefined;
  calls.delete(id);
  Owned.disown(call);
  return call;
}

// The native failed to start, or answered at once.
export const forget_call: (id: CallId) => void = take_call;

export function cancel_call(id: CallId): void {
  if (take_call(id) !== undefined) native.cancelCall(id);
}

// A call that ends in callValue, as a promise. `start` may throw; the promise then rejects.
export class ValueCall extends Call {
  readonly promise: Promise<any>;
  #resolve!: (value: unknown) => void;
  #reject!: (reason: unknown) => void;

  constructor() {
    super();
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

// error_wire.ts, which needs every class that can be sent, hands its half over instead of being imported.
let unpack_thrown: (packed: Uint8Array) => object;

export function set_unpack_thrown(unpack: (packed: Uint8Array) => object): void {
  unpack_thrown = unpack;
}

// What a completion does must not fail without its call ending: nothing else would end it.
function complete(call: Call, work: () => void): void {
  try {
    work();
  } catch (error) {
    call.error(error);
  }
}

export const completions = {
  callHead(id: CallId, status: number, status_text: string, headers: HeaderBlock, body: Body): void {
    const call = take_call(id);
    if (call === undefined) {
      if (typeof body === "number") native.pipeCancel(body);
      return;
    }
    complete(call, () => call.head(status, status_text, headers, body));
  },
  callValue(id: CallId, value: unknown): void {
    const call = take_call(id);
    if (call !== undefined) complete(call, () => call.value(value));
  },
  callError(
    id: CallId, name: string, message: string, stack: string, flags: ErrorFlags, packed: Uint8Array | undefined): void {
    const call = take_call(id);
    if (call === undefined) return;
    complete(call, () => {
      call.error(packed === undefined ? host_error(name, message, stack, flags) : mark_error(unpack_thrown(packed), flags));
    });
  },
};
