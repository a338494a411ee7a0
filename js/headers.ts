// Headers: a list of lower-case names and values. It stays the host's block of text until somebody
// looks, and goes back as that text when nobody changed it.

import { utf8_bytes, utf8_text } from "./encoding";
import { INTERNAL, define_global, expose, set_tag, wrong_argument, wrong_constructor_argument } from "./util";

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const BAD_VALUE = /[\0\r\n]/;
const NOT_ASCII = /[^\x00-\x7f]/;
const PADDED = /^[\t\n\r ]|[\t\n\r ]$/;
const PADDING = /^[\t\n\r ]+|[\t\n\r ]+$/g;

export function header_name(name: unknown): string {
  const text = typeof name === "string" ? name : String(name);
  if (!NAME.test(text)) throw new TypeError("Invalid header name.");
  return text.toLowerCase();
}

// The value as a block holds it.
export function header_value(value: unknown): string {
  let text = typeof value === "string" ? value : String(value);
  if (PADDED.test(text)) text = text.replace(PADDING, "");
  if (BAD_VALUE.test(text)) throw new TypeError("Invalid header value.");
  return NOT_ASCII.test(text) ? String.fromCharCode(...utf8_bytes(text)) : text;
}

// The value as user code sees it.
function value_text(value: string): string {
  return NOT_ASCII.test(value) ? utf8_text(Uint8Array.from(value, (char) => char.charCodeAt(0))) : value;
}

// The internals of a Headers, for the modules that carry one.
export let make_headers: (block: HeaderBlock, immutable: boolean) => Headers;
export let headers_block: (headers: Headers) => HeaderBlock;

export class Headers {
  #block: HeaderBlock | null; // null when #list has changed since
  #list: string[] | null; // name, value, name, value, ...; null until somebody looks
  #immutable: boolean;

  static {
    make_headers = (block, immutable) => {
      const headers = new Headers(INTERNAL);
      headers.#block = block;
      headers.#list = null;
      headers.#immutable = immutable;
      return headers;
    };
    headers_block = (headers) => {
      const block = headers.#block;
      if (block !== null) return block;
      const list = headers.#list!;
      return (headers.#block = list.length === 0 ? "" : list.join("\n") + "\n");
    };
  }

  constructor(init: unknown = undefined) {
    this.#block = "";
    this.#list = null;
    this.#immutable = false;
    if (init === INTERNAL || init === undefined) return;
    const block = init_block(init);
    if (block === undefined) {
      throw wrong_constructor_argument("Headers", 1, "Headers or Sequence or object");
    }
    this.#block = block;
  }

  #read(): string[] {
    const list = this.#list;
    if (list !== null) return list;
    const lines = this.#block!.split("\n");
    lines.pop();
    return (this.#list = lines);
  }

  #change(): string[] {
    if (this.#immutable) throw new TypeError("Can't modify immutable headers.");
    const list = this.#read();
    this.#block = null;
    return list;
  }

  get(name: string): string | null {
    if (arguments.length === 0) throw wrong_argument("get", "Headers", 1, "string");
    return find(this.#read(), header_name(name));
  }

  getAll(name: string): string[] {
    if (arguments.length === 0) throw wrong_argument("getAll", "Headers", 1, "string");
    if (header_name(name) !== "set-cookie") {
      throw new TypeError('getAll() can only be used with the header name "Set-Cookie".');
    }
    return this.getSetCookie();
  }

  getSetCookie(): string[] {
    const list = this.#read();
    const found = [];
    for (let i = 0; i < list.length; i += 2) if (list[i] === "set-cookie") found.push(value_text(list[i + 1]!));
    return found;
  }

  has(name: string): boolean {
    if (arguments.length === 0) throw wrong_argument("has", "Headers", 1, "string");
    const list = this.#read();
    const wanted = header_name(name);
    for (let i = 0; i < list.length; i += 2) if (list[i] === wanted) return true;
    return false;
  }

  set(name: string, value: string): void {
    if (arguments.length < 2) throw wrong_argument("set", "Headers", arguments.length + 1, "string");
    const key = header_name(name);
    const text = header_value(value);
    const list = this.#change();
    for (let i = 0; i < list.length; i += 2) {
      if (list[i] !== key) continue;
      list[i + 1] = text;
      remove(list, key, i + 2);
      return;
    }
    list.push(key, text);
  }

  append(name: string, value: string): void {
    if (arguments.length < 2) throw wrong_argument("append", "Headers", arguments.length + 1, "string");
    const key = header_name(name);
    const text = header_value(value);
    this.#change().push(key, text);
  }

  delete(name: string): void {
    if (arguments.length === 0) throw wrong_argument("delete", "Headers", 1, "string");
    const key = header_name(name);
    remove(this.#change(), key, 0);
  }

  forEach(callback: (value: string, key: string, headers: Headers) => void, self?: unknown): void {
    if (typeof callback !== "function") throw wrong_argument("forEach", "Headers", 1, "function");
    for (const [key, value] of sorted(this.#read())) callback.call(self, value, key, this);
  }

  entries(): IterableIterator<[string, string]> {
    return new HeadersIterator(sorted(this.#read()), ENTRIES) as IterableIterator<[string, string]>;
  }
  keys(): IterableIterator<string> {
    return new HeadersIterator(sorted(this.#read()), KEYS) as IterableIterator<string>;
  }
  values(): IterableIterator<string> {
    return new HeadersIterator(sorted(this.#read()), VALUES) as IterableIterator<string>;
  }
  declare [Symbol.iterator]: () => IterableIterator<[string, string]>;
}

const ENTRIES = 0;
const KEYS = 1;
const VALUES = 2;

class HeadersIterator {
  #pairs: [string, string][];
  #kind: number;
  #next = 0;

  constructor(pairs: [string, string][], kind: number) {
    this.#pairs = pairs;
    this.#kind = kind;
  }

  next(): { done: boolean; value: unknown } {
    if (this.#next >= this.#pairs.length) return { done: true, value: undefined };
    const pair = this.#pairs[this.#next++]!;
    return { done: false, value: this.#kind === ENTRIES ? pair : this.#kind === KEYS ? pair[0] : pair[1] };
  }

  [Symbol.iterator](): this {
    return this;
  }
}

function find(list: string[], name: string): string | null {
  let found: string | null = null;
  for (let i = 0; i < list.length; i += 2) {
    if (list[i] === name) found = found === null ? list[i + 1]! : found + ", " + list[i + 1]!;
  }
  return found === null ? null : value_text(found);
}

function remove(list: string[], name: string, from: number): void {
  let kept = from;
  for (let i = from; i < list.length; i += 2) {
    if (list[i] === name) continue;
    list[kept] = list[i]!;
    list[kept + 1] = list[i + 1]!;
    kept += 2;
  }
  list.length = kept;
}

// What iteration shows: names in order, values of one name joined, cookies apart.
function sorted(list: string[]): [string, string][] {
  const pairs: [string, string][] = [];
  const seen = new Map<string, [string, string]>();
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!;
    const value = value_text(list[i + 1]!);
    const before = name === "set-cookie" ? undefined : seen.get(name);
    if (before !== undefined) {
      before[1] += ", " + value;
      continue;
    }
    const pair: [string, string] = [name, value];
    seen.set(name, pair);
    pairs.push(pair);
  }
  return pairs.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
}

// The block of a HeadersInit; undefined when it is none.
export function init_block(init: unknown): HeaderBlock | undefined {
  if (typeof init !== "object" || init === null) return undefined;
  if (init instanceof Headers) return headers_block(init);
  let block = "";
  const iterate = (init as Iterable<unknown>)[Symbol.iterator];
  if (iterate !== undefined && iterate !== null) {
    for (const entry of init as Iterable<unknown>) {
      if (typeof entry !== "object" || entry === null) return undefined;
      const pair = Array.isArray(entry) ? entry : [...(entry as Iterable<unknown>)];
      if (pair.length !== 2) {
        throw new TypeError(
          "To initialize a Headers object from a sequence, each inner sequence must have exactly two elements.");
      }
      block += header_name(pair[0]) + "\n" + header_value(pair[1]) + "\n";
    }
    return block;
  }
  const record = init as Record<string, unknown>;
  for (const name of Object.keys(record)) {
    block += header_name(name) + "\n" + header_value(record[name]) + "\n";
  }
  return block;
}

// One header of a block, without making a Headers.
export function block_get(block: HeaderBlock, name: string): string | null {
  if (!block.includes(name)) return null;
  const lines = block.split("\n");
  lines.pop();
  return find(lines, name);
}

export function block_has(block: HeaderBlock, name: string): boolean {
  return block_get(block, name) !== null;
}

export function block_without(block: HeaderBlock, names: string[]): HeaderBlock {
  const lines = block.split("\n");
  lines.pop();
  for (const name of names) remove(lines, name, 0);
  return lines.length === 0 ? "" : lines.join("\n") + "\n";
}

expose(Headers, "Headers");
Object.defineProperty(Headers.prototype, Symbol.iterator, {
  value: Headers.prototype.entries, writable: true, configurable: true,
});
Object.setPrototypeOf(HeadersIterator.prototype, Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]())));
set_tag(HeadersIterator.prototype, "Headers Iterator");
define_global("Headers", Headers);
