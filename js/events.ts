// Event, EventTarget and the events that Workers have.

import { report_error } from "./errors";
import { define_global, expose, wrong_argument, wrong_constructor_argument } from "./util";

export let set_target: (event: Event, target: EventTarget | null, current: EventTarget | null, phase: number) => void;
let stopped_now: (event: Event) => boolean;
let start_dispatch: (event: Event) => void;

export class Event {
  #type: string;
  #bubbles: boolean;
  #cancelable: boolean;
  #composed: boolean;
  #prevented = false;
  #stop = false;
  #stop_now = false;
  #target: EventTarget | null = null;
  #current: EventTarget | null = null;
  #phase = 0;
  #time = Date.now();

  static {
    set_target = (event, target, current, phase) => {
      event.#target = target;
      event.#current = current;
      event.#phase = phase;
    };
    stopped_now = (event) => event.#stop_now;
    start_dispatch = (event) => {
      event.#stop = event.#stop_now = false;
    };
  }

  constructor(type: string, init: EventInit = {}) {
    if (arguments.length === 0) throw wrong_constructor_argument(new.target.name, 1, "string");
    this.#type = String(type);
    this.#bubbles = Boolean(init?.bubbles);
    this.#cancelable = Boolean(init?.cancelable);
    this.#composed = Boolean(init?.composed);
  }

  get type(): string {
    return this.#type;
  }
  get eventPhase(): number {
    return this.#phase;
  }
  get composed(): boolean {
    return this.#composed;
  }
  get bubbles(): boolean {
    return this.#bubbles;
  }
  get cancelable(): boolean {
    return this.#cancelable;
  }
  get defaultPrevented(): boolean {
    return this.#prevented;
  }
  get returnValue(): boolean {
    return !this.#prevented;
  }
  get currentTarget(): EventTarget | null {
    return this.#current;
  }
  get target(): EventTarget | null {
    return this.#target;
  }
  get srcElement(): EventTarget | null {
    return this.#target;
  }
  get timeStamp(): number {
    return this.#time;
  }
  get isTrusted(): boolean {
    return false;
  }
  get cancelBubble(): boolean {
    return this.#stop;
  }
  set cancelBubble(value: boolean) {
    if (value) this.#stop = true;
  }
  stopImmediatePropagation(): void {
    this.#stop = this.#stop_now = true;
  }
  preventDefault(): void {
    if (this.#cancelable) this.#prevented = true;
  }
  stopPropagation(): void {
    this.#stop = true;
  }
  composedPath(): EventTarget[] {
    return this.#target === null ? [] : [this.#target];
  }
}

export interface EventInit {
  bubbles?: boolean;
  cancelable?: boolean;
  composed?: boolean;
}

for (const [name, value] of Object.entries({ NONE: 0, CAPTURING_PHASE: 1, AT_TARGET: 2, BUBBLING_PHASE: 3 })) {
  Object.defineProperty(Event, name, { value, enumerable: true });
  Object.defineProperty(Event.prototype, name, { value, enumerable: true });
}

type Listener = ((event: Event) => unknown) | { handleEvent(event: Event): unknown };

interface Registration {
  callback: Listener;
  capture: boolean;
  once: boolean;
  removed: boolean;
}

export class EventTarget {
  #listeners: Map<string, Registration[]> | null = null;

  addEventListener(type: string, callback: Listener | null, options: unknown = undefined): void {
    if (arguments.length < 2) {
      throw wrong_argument("addEventListener", "EventTarget", arguments.length + 1,
        arguments.length === 0 ? "string" : "function or HandlerObject");
    }
    if (callback === null || callback === undefined) return;
    if (typeof callback !== "function" && typeof callback !== "object") {
      throw wrong_argument("addEventListener", "EventTarget", 2, "function or HandlerObject");
    }
    const given = (typeof options === "object" && options !== null ? options : { capture: Boolean(options) }) as {
      capture?: unknown; once?: unknown; signal?: EventTarget & { aborted: boolean };
    };
    const signal = given.signal;
    if (signal?.aborted) return;
    const capture = Boolean(given.capture);
    this.#listeners ??= new Map();
    const name = String(type);
    let list = this.#listeners.get(name);
    if (list === undefined) this.#listeners.set(name, (list = []));
    for (const entry of list) if (entry.callback === callback && entry.capture === capture) return;
    list.push({ callback, capture, once: Boolean(given.once), removed: false });
    if (signal !== undefined && signal !== null) {
      signal.addEventListener("abort", () => this.removeEventListener(name, callback, { capture }), { once: true });
    }
  }

  removeEventListener(type: string, callback: Listener | null, options: unknown = undefined): void {
    const name = String(type);
    const list = this.#listeners?.get(name);
    if (list === undefined) return;
    const capture = Boolean(typeof options === "object" && options !== null
      ? (options as { capture?: unknown }).capture : options);
    for (let i = 0; i < list.length; i++) {
      const entry = list[i]!;
      if (entry.callback !== callback || entry.capture !== capture) continue;
      entry.removed = true;
      const rest = list.slice();
      rest.splice(i, 1);
      if (rest.length === 0) this.#listeners!.delete(name);
      else this.#listeners!.set(name, rest);
      return;
    }
  }

  dispatchEvent(event: Event): boolean {
    if (!(event instanceof Event)) throw wrong_argument("dispatchEvent", "EventTarget", 1, "Event");
    set_target(event, this, this, 2);
    start_dispatch(event);
    const list = this.#listeners?.get(event.type);
    if (list !== undefined) {
      for (const entry of list.slice()) {
        if (entry.removed) continue;
        if (entry.once) this.removeEventListener(event.type, entry.callback, { capture: entry.capture });
        try {
          if (typeof entry.callback === "function") entry.callback.call(this, event);
          else entry.callback.handleEvent(event);
        } catch (error) {
          report_error(error);
        }
        if (stopped_now(event)) break;
      }
    }
    set_target(event, this, null, 0);
    return !event.defaultPrevented;
  }
}

export class CustomEvent extends Event {
  #detail: unknown;
  constructor(type: string, init: EventInit & { detail?: unknown } = {}) {
    super(type, init);
    this.#detail = init?.detail;
  }
  get detail(): unknown {
    return this.#detail;
  }
}

export class MessageEvent extends Event {
  #data: unknown;
  #origin: string;
  constructor(type: string, init: EventInit & { data?: unknown; origin?: string } = {}) {
    super(type, init);
    this.#data = init?.data;
    this.#origin = init?.origin ?? "";
  }
  get data(): unknown {
    return this.#data;
  }
  get origin(): string | null {
    return this.#origin;
  }
  get lastEventId(): string {
    return "";
  }
  get source(): null {
    return null;
  }
  get ports(): never[] {
    return [];
  }
}

export class CloseEvent extends Event {
  #code: number;
  #reason: string;
  #clean: boolean;
  constructor(type: string, init: EventInit & { code?: number; reason?: string; wasClean?: boolean } = {}) {
    super(type, init);
    this.#code = Number(init?.code ?? 0);
    this.#reason = String(init?.reason ?? "");
    this.#clean = Boolean(init?.wasClean);
  }
  get code(): number {
    return this.#code;
  }
  get reason(): string {
    return this.#reason;
  }
  get wasClean(): boolean {
    return this.#clean;
  }
}

export class ErrorEvent extends Event {
  #message: string;
  #filename: string;
  #line: number;
  #column: number;
  #error: unknown;
  constructor(type: string, init: EventInit & {
    message?: string; filename?: string; lineno?: number; colno?: number; error?: unknown;
  } = {}) {
    super(type, init);
    this.#message = String(init?.message ?? "");
    this.#filename = String(init?.filename ?? "");
    this.#line = Number(init?.lineno ?? 0);
    this.#column = Number(init?.colno ?? 0);
    this.#error = init?.error;
  }
  get filename(): string {
    return this.#filename;
  }
  get message(): string {
    return this.#message;
  }
  get lineno(): number {
    return this.#line;
  }
  get colno(): number {
    return this.#column;
  }
  get error(): unknown {
    return this.#error;
  }
}

export class PromiseRejectionEvent extends Event {
  #promise: unknown;
  #reason: unknown;
  constructor(type: string, init: EventInit & { promise?: unknown; reason?: unknown } = {}) {
    super(type, init);
    this.#promise = init?.promise;
    this.#reason = init?.reason;
  }
  get promise(): unknown {
    return this.#promise;
  }
  get reason(): unknown {
    return this.#reason;
  }
}

for (const [name, constructor] of Object.entries({
  EventTarget, Event, CustomEvent, MessageEvent, CloseEvent, ErrorEvent, PromiseRejectionEvent,
})) {
  expose(constructor, name);
  define_global(name, constructor);
}
