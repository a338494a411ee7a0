// setTimeout and its kin, queueMicrotask, scheduler.wait.

import { report_error } from "./errors";
import { native } from "./host";
import { Owned } from "./owners";
import { AnyFunction, define_global, require_event, set_tag, wrong_argument } from "./util";
import type { AbortSignal } from "./abort";

class Timer extends Owned {
  readonly id: number;
  readonly callback: AnyFunction;
  readonly args: unknown[] | null;
  readonly repeat: boolean;

  constructor(id: number, callback: AnyFunction, args: unknown[] | null, repeat: boolean) {
    super();
    this.id = id;
    this.callback = callback;
    this.args = args;
    this.repeat = repeat;
  }

  dropped(): void {
    timers.delete(this.id);
  }
}

const timers = new Map<number, Timer>();
const SCOPE = "ServiceWorkerGlobalScope";

function start(callback: AnyFunction, delay: unknown, repeat: boolean, args: unknown[] | null): number {
  require_event();
  const ms = Number(delay);
  const id = native.setTimer(ms > 0 ? Math.min(Math.trunc(ms), 0x7fffffff) : 0, repeat);
  const timer = new Timer(id, callback, args, repeat);
  timers.set(id, timer);
  Owned.own(timer);
  return id;
}

export function set_callback_timer(delay: number, callback: () => void): number {
  return start(callback, delay, false, null);
}

function clear(id: unknown): void {
  const key = Number(id);
  const timer = timers.get(key);
  if (timer === undefined) return;
  timers.delete(key);
  Owned.disown(timer);
  native.clearTimer(key);
}

export const clear_timer: (id: number) => void = clear;

export function timer_due(id: number): void {
  const timer = timers.get(id);
  if (timer === undefined) return;
  if (!timer.repeat) {
    timers.delete(id);
    Owned.disown(timer);
  }
  try {
    if (timer.args === null) timer.callback.call(globalThis);
    else timer.callback.apply(globalThis, timer.args);
  } catch (error) {
    report_error(error);
  }
}

const functions = {
  setTimeout(callback: AnyFunction, delay: unknown = 0, ...args: unknown[]): number {
    if (typeof callback !== "function") throw wrong_argument("setTimeout", SCOPE, 1, "function");
    return start(callback, delay, false, args.length === 0 ? null : args);
  },
  setInterval(callback: AnyFunction, delay: unknown = 0, ...args: unknown[]): number {
    if (typeof callback !== "function") throw wrong_argument("setInterval", SCOPE, 1, "function");
    return start(callback, delay, true, args.length === 0 ? null : args);
  },
  clearTimeout(id: unknown = undefined): void {
    require_event();
    clear(id);
  },
  clearInterval(id: unknown = undefined): void {
    require_event();
    clear(id);
  },
  queueMicrotask(callback: AnyFunction): void {
    if (typeof callback !== "function") throw wrong_argument("queueMicrotask", SCOPE, 1, "function");
    RESOLVED.then(() => {
      try {
        callback();
      } catch (error) {
        report_error(error);
      }
    });
  },
};

const RESOLVED = Promise.resolve();

class Scheduler {
  wait(delay: unknown, options: { signal?: AbortSignal } | undefined = undefined): Promise<void> {
    if (arguments.length === 0) return Promise.reject(wrong_argument("wait", "Scheduler", 1, "number"));
    const signal = options?.signal;
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const id = start(resolve, delay, false, null);
      signal?.addEventListener("abort", () => {
        clear(id);
        reject(signal.reason);
      }, { once: true });
    });
  }
}

for (const [name, value] of Object.entries(functions)) define_global(name, value);
set_tag(Scheduler.prototype, "Scheduler");
define_global("scheduler", new Scheduler());
