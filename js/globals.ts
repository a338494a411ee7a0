// The small globals: structuredClone, performance, navigator, self, origin.

import { check_clone } from "./clone_check";
import { report_error } from "./errors";
import { EventTarget } from "./events";
import { native } from "./host";
import { define_global, expose, set_tag, wrong_argument } from "./util";

function structuredClone(value: unknown, options: { transfer?: unknown } | undefined = undefined): unknown {
  if (arguments.length === 0) throw wrong_argument("structuredClone", "ServiceWorkerGlobalScope", 1, "Value");
  check_clone(value, false);
  const transfer = options?.transfer;
  return native.structuredClone(value, transfer === undefined || transfer === null ? [] : [...(transfer as Iterable<unknown>)]);
}

class Performance extends EventTarget {
  get timeOrigin(): number {
    return 0;
  }
  now(): number {
    return native.performanceNow();
  }
  toJSON(): object {
    return { timeOrigin: 0 };
  }
}

class Navigator {
  get userAgent(): string {
    return "Cloudflare-Workers";
  }
  get hardwareConcurrency(): number {
    return 1;
  }
  get language(): string {
    return "en";
  }
}

expose(Performance, "Performance");
expose(Navigator, "Navigator");
define_global("structuredClone", structuredClone);
define_global("Performance", Performance);
define_global("Navigator", Navigator);
define_global("performance", new Performance());
define_global("navigator", new Navigator());
define_global("self", globalThis);
define_global("origin", "null");
define_global("reportError", report_error);

// The global scope is an EventTarget; nothing dispatches to it yet.
class ServiceWorkerGlobalScope extends EventTarget {}
set_tag(ServiceWorkerGlobalScope.prototype, "ServiceWorkerGlobalScope");
define_global("ServiceWorkerGlobalScope", ServiceWorkerGlobalScope);
const scope_target = new EventTarget();
for (const name of ["addEventListener", "removeEventListener", "dispatchEvent"] as const) {
  define_global(name, { [name](...args: unknown[]) {
    return (scope_target[name] as (...args: unknown[]) => unknown)(...args);
  } }[name]);
}

// Compatibility with libraries that ask where they run.
define_global("Cloudflare", { compatibilityFlags: Object.freeze({ __proto__: null }) });
