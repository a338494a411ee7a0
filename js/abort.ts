// AbortController and AbortSignal.

import { DOMException } from "./dom_exception";
import { Event, EventTarget } from "./events";
import { INTERNAL, define_global, expose, wrong_argument } from "./util";
import { set_callback_timer } from "./timers";

export let make_signal: () => AbortSignal;
export let abort_signal: (signal: AbortSignal, reason: unknown) => void;
// Runs `action` once when the signal aborts, before the listeners of user code.
export let on_abort: (signal: AbortSignal, action: () => void) => void;
export let off_abort: (signal: AbortSignal, action: () => void) => void;

export class AbortSignal extends EventTarget {
  #aborted = false;
  #reason: unknown = undefined;
  #handler: ((event: Event) => unknown) | null = null;
  #actions: Set<() => void> | null = null;

  static {
    make_signal = () => new AbortSignal(INTERNAL);
    abort_signal = (signal, reason) => {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason === undefined ? aborted_error() : reason;
      const actions = signal.#actions;
      signal.#actions = null;
      if (actions !== null) for (const action of actions) action();
      signal.dispatchEvent(new Event("abort"));
    };
    on_abort = (signal, action) => {
      (signal.#actions ??= new Set()).add(action);
    };
    off_abort = (signal, action) => {
      signal.#actions?.delete(action);
    };
  }

  constructor(token: unknown = undefined) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    super();
  }

  get aborted(): boolean {
    return this.#aborted;
  }
  get reason(): unknown {
    return this.#reason;
  }
  get onabort(): unknown {
    return this.#handler;
  }
  set onabort(value: unknown) {
    if (this.#handler !== null) this.removeEventListener("abort", this.#handler);
    this.#handler = typeof value === "function" ? (value as (event: Event) => unknown) : null;
    if (this.#handler !== null) this.addEventListener("abort", this.#handler);
  }
  throwIfAborted(): void {
    if (this.#aborted) throw this.#reason;
  }

  static abort(reason: unknown = undefined): AbortSignal {
    const signal = make_signal();
    abort_signal(signal, reason);
    return signal;
  }

  static timeout(delay: number): AbortSignal {
    if (arguments.length === 0) throw wrong_argument("timeout", "AbortSignal", 1, "integer");
    const signal = make_signal();
    set_callback_timer(Number(delay), () => {
      abort_signal(signal, retryable(new DOMException("The operation was aborted due to timeout", "TimeoutError")));
    });
    return signal;
  }

  static any(signals: Iterable<AbortSignal>): AbortSignal {
    const result = make_signal();
    if (typeof signals !== "object" || signals === null || !(Symbol.iterator in signals)) {
      throw wrong_argument("any", "AbortSignal", 1, "Array");
    }
    const sources = [...signals];
    for (let i = 0; i < sources.length; i++) {
      const source = sources[i]!;
      if (!(source instanceof AbortSignal)) {
        throw new TypeError(`Incorrect type for array element ${i}: the provided value is not of type 'AbortSignal'.`);
      }
      if (source.aborted) {
        abort_signal(result, source.reason);
        return result;
      }
    }
    for (const source of sources) on_abort(source, () => abort_signal(result, source.reason));
    return result;
  }
}

function aborted_error(): unknown {
  return retryable(new DOMException("The operation was aborted", "AbortError"));
}

// As on workerd, where these are lost connections.
function retryable(error: DOMException): DOMException {
  return Object.assign(error, { retryable: true });
}

export class AbortController {
  #signal = make_signal();

  get signal(): AbortSignal {
    return this.#signal;
  }
  abort(reason: unknown = undefined): void {
    abort_signal(this.#signal, reason);
  }
}

expose(AbortSignal, "AbortSignal");
expose(AbortController, "AbortController");
define_global("AbortSignal", AbortSignal);
define_global("AbortController", AbortController);
