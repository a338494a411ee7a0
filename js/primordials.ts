// What the prelude uses of the language, as it was before user code ran. hardening.mjs rewrites the
// other modules to these; this one is written by hand to look up nothing that user code can change.

import "./polyfills";

const {
  Array, ArrayBuffer, DataView, Function, Map, Number, Object, Promise, Reflect, RegExp, Set, String, Symbol,
  Uint8Array, WeakMap, WeakSet, Date, SharedArrayBuffer, Int8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array,
  Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array, Error,
} = globalThis;

type Any = any;
type Callable = (...args: any[]) => any;

const { apply, construct } = Reflect;
const { isArray } = Array;
const is_view = ArrayBuffer.isView;
const views: Record<string, unknown> = {
  __proto__: null, Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array,
  Float64Array, BigInt64Array, BigUint64Array,
} as never;
const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf } = Object;
const { bind, call } = Function.prototype;

// fn.call, as a function: f(self, ...args).
export const $uncurry: (fn: Callable) => Callable = apply(bind, bind, [call]);
export const $apply = apply;
export const $construct = construct;
export function $getter(prototype: object, name: string): Callable {
  for (let at: object | null = prototype; at !== null; at = getPrototypeOf(at)) {
    const found = getOwnPropertyDescriptor(at, name);
    if (found !== undefined) return $uncurry(found.get!);
  }
  throw new Error(`no getter ${name}`);
}
export function $invoke(self: Any, key: PropertyKey, args: unknown[]): unknown {
  return apply(self[key], self, args);
}

// --- lists ---

const iterator: typeof Symbol.iterator = Symbol.iterator;
const array_next = $uncurry(getPrototypeOf([][Symbol.iterator]()).next);
const string_iterator = $uncurry(String.prototype[Symbol.iterator]);
const string_next = $uncurry(getPrototypeOf(""[Symbol.iterator]()).next);
const map_entries = $uncurry(Map.prototype.entries);
const map_next = $uncurry(getPrototypeOf(new Map().entries()).next);
const set_values = $uncurry(Set.prototype.values);
const set_next = $uncurry(getPrototypeOf(new Set().values()).next);
const array_values = $uncurry(Array.prototype.values);
const typed_prototype = getPrototypeOf(Uint8Array.prototype);
const typed_tag = $getter(typed_prototype, Symbol.toStringTag as unknown as string);
const typed_length = $getter(typed_prototype, "length");
const typed_buffer = $getter(typed_prototype, "buffer");
const typed_byte_length = $getter(typed_prototype, "byteLength");
const typed_byte_offset = $getter(typed_prototype, "byteOffset");
const typed_values = $uncurry(typed_prototype.values);
const data_buffer = $getter(DataView.prototype, "buffer");
const data_byte_length = $getter(DataView.prototype, "byteLength");
const data_byte_offset = $getter(DataView.prototype, "byteOffset");
const buffer_byte_length = $getter(ArrayBuffer.prototype, "byteLength");
const shared_byte_length = $getter(SharedArrayBuffer.prototype, "byteLength");
const map_size = $getter(Map.prototype, "size");
const set_size = $getter(Set.prototype, "size");

// An iterator of the engine, iterated with the method it had.
class Steps implements Iterator<any> {
  declare [Symbol.iterator]: () => Steps;
  next: () => IteratorResult<any>;
  constructor(inner: unknown, next: Callable) {
    this.next = () => next(inner);
  }
}
defineProperty(Steps.prototype, iterator, { value(this: Steps) {
  return this;
} });
Object.setPrototypeOf(Steps.prototype, null);

// What for-of and spreads go over: a built-in collection as it is, anything else by its own rules.
export function $each(value: Any): Iterable<any> {
  if (typeof value === "string") return new Steps(string_iterator(value), string_next);
  if (typeof value !== "object" || value === null) return value;
  if (isArray(value)) return is_changed(value) ? value : new Steps(array_values(value), array_next);
  if (typed_tag(value) !== undefined) return new Steps(typed_values(value), array_next);
  if (value instanceof Map) {
    try {
      return new Steps(map_entries(value), map_next);
    } catch {
      return value;
    }
  }
  if (value instanceof Set) {
    try {
      return new Steps(set_values(value), set_next);
    } catch {
      return value;
    }
  }
  return value;
}

// An array with an iterator of its own is no plain list.
function is_changed(value: unknown[]): boolean {
  return getOwnPropertyDescriptor(value, iterator) !== undefined;
}

// All of them, in one new array.
export function $list(...parts: Any[]): unknown[] {
  const out: unknown[] = [];
  for (let p = 0; p < parts.length; p++) {
    const part = parts[p];
    if (isArray(part) && !is_changed(part)) {
      for (let i = 0; i < part.length; i++) out[out.length] = part[i];
    } else {
      for (const value of $each(part)) out[out.length] = value;
    }
  }
  return out;
}

export function $Array_map(list: unknown[], fn: Callable): unknown[] {
  const out: unknown[] = [];
  for (let i = 0; i < list.length; i++) out[i] = fn(list[i], i, list);
  return out;
}
export function $Array_filter(list: unknown[], fn: Callable): unknown[] {
  const out: unknown[] = [];
  for (let i = 0; i < list.length; i++) {
    const value = list[i];
    if (fn(value, i, list)) out[out.length] = value;
  }
  return out;
}
export function $Array_slice(list: unknown[], from = 0, to = list.length): unknown[] {
  const out: unknown[] = [];
  const start = from < 0 ? from + list.length : from;
  const end = to < 0 ? to + list.length : to > list.length ? list.length : to;
  for (let i = start < 0 ? 0 : start; i < end; i++) out[out.length] = list[i];
  return out;
}
export function $Array_splice(list: unknown[], from: number, count = list.length, ...added: unknown[]): unknown[] {
  const before = $Array_slice(list);
  const start = from < 0 ? from + before.length : from;
  const removed = $Array_slice(before, start, start + count);
  list.length = start < before.length ? start : before.length;
  for (let i = 0; i < added.length; i++) list[list.length] = added[i];
  for (let i = start + count; i < before.length; i++) list[list.length] = before[i];
  return removed;
}
export function $Array_concat(list: unknown[], ...more: unknown[]): unknown[] {
  const out = $Array_slice(list);
  for (let i = 0; i < more.length; i++) {
    const part = more[i];
    if (isArray(part)) for (let j = 0; j < part.length; j++) out[out.length] = part[j];
    else out[out.length] = part;
  }
  return out;
}
export function $Array_flat(list: unknown[]): unknown[] {
  return apply($Array_concat, undefined, $list([[]], list)) as unknown[];
}
export function $Array_entries(list: unknown[]): unknown[] {
  const out: unknown[] = [];
  for (let i = 0; i < list.length; i++) out[i] = [i, list[i]];
  return out;
}
// Of primitive values.
export function $Array_join(list: unknown[], separator = ","): string {
  let out = "";
  for (let i = 0; i < list.length; i++) {
    if (i > 0) out += separator;
    const value = list[i];
    if (value !== undefined && value !== null) out += `${value as string}`;
  }
  return out;
}
export function $Array_from(value: Any, fn?: Callable): unknown[] {
  let out: unknown[];
  if (typeof value === "object" && value !== null && value[iterator] === undefined) {
    out = [];
    for (let i = 0; i < value.length; i++) out[i] = value[i];
  } else out = $list(value);
  return fn === undefined ? out : $Array_map(out, fn);
}
export function $Object_fromEntries(entries: [PropertyKey, unknown][]): object {
  const out = {};
  for (let i = 0; i < entries.length; i++) {
    defineProperty(out, entries[i]![0], {
      __proto__: null, value: entries[i]![1], configurable: true, enumerable: true, writable: true,
    } as PropertyDescriptor);
  }
  return out;
}

const map_set = $uncurry(Map.prototype.set);
const set_add = $uncurry(Set.prototype.add);
export function $new_Map(entries: Any): Map<unknown, unknown> {
  const out = new Map();
  if (entries !== undefined && entries !== null) for (const entry of $each(entries)) map_set(out, entry[0], entry[1]);
  return out;
}
export function $new_Set(values: Any): Set<unknown> {
  const out = new Set();
  if (values !== undefined && values !== null) for (const value of $each(values)) set_add(out, value);
  return out;
}

// --- bytes ---

export function $new_Uint8Array(value: Any): Uint8Array {
  if (!isArray(value)) return new Uint8Array(value);
  return $Uint8Array_from(value);
}
export function $Uint8Array_from(value: Any, fn?: Callable): Uint8Array {
  const list = $Array_from(value, fn);
  const out = new Uint8Array(list.length);
  for (let i = 0; i < list.length; i++) out[i] = list[i] as number;
  return out;
}
function clamp(at: number, length: number): number {
  if (at < 0) return at + length < 0 ? 0 : at + length;
  return at > length ? length : at;
}
export function $Uint8Array_subarray(bytes: Uint8Array, from = 0, to?: number): Uint8Array {
  const length = typed_length(bytes);
  const start = clamp(from, length);
  const end = to === undefined ? length : clamp(to, length);
  return new Uint8Array(typed_buffer(bytes), typed_byte_offset(bytes) + start, end > start ? end - start : 0);
}
const typed_set = $uncurry(typed_prototype.set);
export function $Uint8Array_slice(bytes: Uint8Array, from?: number, to?: number): Uint8Array {
  const part = $Uint8Array_subarray(bytes, from, to);
  const out = new Uint8Array(typed_length(part));
  typed_set(out, part);
  return out;
}
export function $view_buffer(view: ArrayBufferView): ArrayBufferLike {
  return typed_tag(view) !== undefined ? typed_buffer(view) : data_buffer(view);
}
export function $view_byteLength(view: ArrayBufferView): number {
  return typed_tag(view) !== undefined ? typed_byte_length(view) : data_byte_length(view);
}
export function $view_byteOffset(view: ArrayBufferView): number {
  return typed_tag(view) !== undefined ? typed_byte_offset(view) : data_byte_offset(view);
}
export function $dyn_get_buffer(value: Any): unknown {
  return is_view(value) ? $view_buffer(value) : value.buffer;
}
export function $dyn_get_byteOffset(value: Any): unknown {
  return is_view(value) ? $view_byteOffset(value) : value.byteOffset;
}
export function $dyn_get_constructor(value: Any): unknown {
  const tag = typeof value === "object" && value !== null ? typed_tag(value) : undefined;
  if (tag !== undefined) return views[tag] ?? value.constructor;
  return is_view(value) ? DataView : value.constructor;
}
export function $dyn_get_length(value: Any): unknown {
  return typeof value === "object" && typed_tag(value) !== undefined ? typed_length(value) : value.length;
}
export function $dyn_get_byteLength(value: Any): unknown {
  if (is_view(value)) return $view_byteLength(value);
  if (value instanceof ArrayBuffer) return buffer_byte_length(value);
  if (value instanceof SharedArrayBuffer) return shared_byte_length(value);
  return value.byteLength;
}
export function $dyn_get_size(value: Any): unknown {
  if (value instanceof Map) return map_size(value);
  if (value instanceof Set) return set_size(value);
  return value.size;
}

// --- text ---

const exec = $uncurry(RegExp.prototype.exec);
const is_global = $getter(RegExp.prototype, "global");
const slice = $uncurry(String.prototype.slice);
const replace = $uncurry(String.prototype.replace);
const split = $uncurry(String.prototype.split);
const index_of = $uncurry(String.prototype.indexOf);

export function $RegExp_test(pattern: RegExp, text: unknown): boolean {
  return exec(pattern, text) !== null;
}
export function $String_match(text: string, pattern: RegExp): RegExpExecArray | null {
  if (is_global(pattern)) throw new Error("match() of all: use exec()");
  return exec(pattern, text);
}
export function $String_search(text: string, pattern: RegExp): number {
  return exec(pattern, text)?.index ?? -1;
}
// `by` may name $1 to $9.
export function $String_replace(text: string, pattern: RegExp | string, by: string | Callable): string {
  if (typeof pattern === "string") return replace(text, pattern, by);
  let out = "";
  let at = 0;
  const all = is_global(pattern);
  pattern.lastIndex = 0;
  for (;;) {
    const found = exec(pattern, text);
    if (found === null) break;
    const whole = found[0] as string;
    out += slice(text, at, found.index);
    out += typeof by === "string" ? expand(by, found) : `${apply(by, undefined, found) as string}`;
    at = found.index + whole.length;
    if (!all) break;
    if (whole.length === 0) pattern.lastIndex++;
  }
  pattern.lastIndex = 0;
  return out + slice(text, at);
}
function expand(by: string, found: RegExpExecArray): string {
  let out = "";
  for (let at = 0;;) {
    const dollar = index_of(by, "$", at);
    if (dollar < 0) return out + slice(by, at);
    out += slice(by, at, dollar);
    const group = by[dollar + 1] === "&" ? found[0] : found[by[dollar + 1] as unknown as number];
    out += group ?? "";
    at = dollar + 2;
  }
}
// By a text, or a pattern without groups that matches at least one character.
export function $String_split(text: string, by: string | RegExp): string[] {
  if (typeof by === "string") return split(text, by);
  const out: string[] = [];
  const pattern = is_global(by) ? by : new RegExp(by, "g");
  let at = 0;
  pattern.lastIndex = 0;
  for (;;) {
    const found = exec(pattern, text);
    if (found === null) break;
    out[out.length] = slice(text, at, found.index);
    at = found.index + found[0].length;
  }
  out[out.length] = slice(text, at);
  return out;
}

// --- promises ---

const promise_then = $uncurry(Promise.prototype.then);
const promise_resolve = $uncurry(Promise.resolve);
const promise_reject = $uncurry(Promise.reject);
export function $Promise_resolve(value?: unknown): Promise<unknown> {
  return promise_resolve(Promise, value);
}
export function $Promise_reject(error: unknown): Promise<never> {
  return promise_reject(Promise, error);
}
export function $Promise_catch(promise: unknown, failed: Callable): Promise<unknown> {
  return promise_then(promise, undefined, failed);
}
export function $Promise_finally(promise: unknown, done: Callable): Promise<unknown> {
  return promise_then(promise,
    (value: unknown) => promise_then($Promise_resolve(done()), () => value),
    (error: unknown) => promise_then($Promise_resolve(done()), () => {
      throw error;
    }));
}
export function $Promise_all(values: unknown[]): Promise<unknown[]> {
  const list = $list(values);
  return new Promise((resolve, reject) => {
    const out: unknown[] = [];
    let left = list.length;
    if (left === 0) resolve(out);
    for (let i = 0; i < list.length; i++) {
      promise_then($Promise_resolve(list[i]), (value: unknown) => {
        out[i] = value;
        if (--left === 0) resolve(out);
      }, reject);
    }
  });
}

// A promise that another one is resolved with, such that nothing looks up its "then".
function adoptable(value: unknown): unknown {
  if (!(value instanceof Promise)) return value;
  return { __proto__: null, then: (done: Callable, failed: Callable) => {
    promise_then(value, done, failed);
  } };
}
function adopting(fn: unknown): unknown {
  return typeof fn === "function" ? (value: unknown) => adoptable(fn(value)) : undefined;
}
// then() with callbacks that may answer promises.
export function $adopting_then(promise: unknown, done: unknown, failed?: unknown): Promise<unknown> {
  return promise_then(promise, adopting(done), adopting(failed));
}
export function $adopting_then_method(this: unknown, done: unknown, failed?: unknown): Promise<unknown> {
  return promise_then(this, adopting(done), adopting(failed));
}
export function $new_Promise(start: Callable): Promise<unknown> {
  return new Promise((resolve, reject) => start((value: unknown) => resolve(adoptable(value)), reject));
}

// --- values whose type is not known before ---

function methods(prototype: Any, name: string, replaced: Record<string, Callable>): Callable | undefined {
  if (Object.hasOwn(replaced, name)) return replaced[name];
  return typeof prototype[name] === "function" && prototype[name] !== (Object.prototype as Any)[name]
    ? $uncurry(prototype[name]) : undefined;
}
const brands: [(value: Any) => boolean, object, Record<string, Callable>][] = [
  [(value) => value instanceof Map, Map.prototype, {}],
  [(value) => value instanceof Set, Set.prototype, {}],
  [(value) => value instanceof Promise, Promise.prototype, { catch: $Promise_catch, finally: $Promise_finally }],
  [(value) => value instanceof RegExp, RegExp.prototype, { test: $RegExp_test }],
  [(value) => typed_tag(value) === "Uint8Array", Uint8Array.prototype,
    { slice: $Uint8Array_slice as Callable, subarray: $Uint8Array_subarray as Callable }],
  [(value) => typed_tag(value) !== undefined, typed_prototype, {}],
  [(value) => value instanceof ArrayBuffer, ArrayBuffer.prototype, {}],
  [(value) => value instanceof WeakMap, WeakMap.prototype, {}],
  [(value) => value instanceof WeakSet, WeakSet.prototype, {}],
  [(value) => value instanceof Date, Date.prototype, {}],
];

// The method `name` of whatever it is called for: f(self, ...args).
export function $dynamic(name: string): Callable {
  const of_text = methods(String.prototype, name,
    { match: $String_match, replace: $String_replace as Callable, search: $String_search, split: $String_split as Callable });
  const of_list = methods(Array.prototype, name, {
    map: $Array_map, filter: $Array_filter, slice: $Array_slice as Callable, splice: $Array_splice as Callable,
    concat: $Array_concat, flat: $Array_flat, entries: $Array_entries, join: $Array_join as Callable,
  });
  const of_function = methods(Function.prototype, name, {});
  const of_number = methods(Number.prototype, name, {});
  const found: [(value: Any) => boolean, Callable][] = [];
  for (let i = 0; i < brands.length; i++) {
    const fn = methods(brands[i]![1], name, brands[i]![2]);
    if (fn !== undefined) found[found.length] = [brands[i]![0], fn];
  }
  return function (self: Any, a?: unknown, b?: unknown): unknown {
    let fn: Callable | undefined;
    if (typeof self === "string") fn = of_text;
    else if (typeof self === "function") fn = of_function;
    else if (typeof self === "number") fn = of_number;
    else if (isArray(self)) fn = of_list;
    else if (typeof self === "object" && self !== null) {
      for (let i = 0; i < found.length; i++) {
        if (found[i]![0](self)) {
          fn = found[i]![1];
          break;
        }
      }
    }
    const count = arguments.length;
    if (fn !== undefined) {
      if (count === 2) return fn(self, a);
      if (count === 1) return fn(self);
      if (count === 3) return fn(self, a, b);
      return apply(fn, undefined, arguments);
    }
    if (count === 2) return self[name](a);
    if (count === 1) return self[name]();
    if (count === 3) return self[name](a, b);
    const args: unknown[] = [];
    for (let i = 1; i < count; i++) args[i - 1] = arguments[i];
    return apply(self[name], self, args);
  };
}
