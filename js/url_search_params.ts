// URLSearchParams: the application/x-www-form-urlencoded list of the URL Standard.

import { native } from "./host";
import { define_global, expose, set_tag, wrong_argument } from "./util";

function decode_part(text: string): string {
  if (text.includes("+")) text = text.replaceAll("+", " ");
  if (!text.includes("%")) return well_formed(text);
  try {
    return well_formed(decodeURIComponent(text));
  } catch {
    return decode_lossy(text);
  }
}

// For what decodeURIComponent refuses: stray percent signs, bytes that are not UTF-8.
function decode_lossy(text: string): string {
  const bytes = native.utf8Encode(text);
  const out = new Uint8Array(bytes.length);
  let length = 0;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i]!;
    if (byte === 0x25 && i + 2 < bytes.length) {
      const high = hex_digit(bytes[i + 1]!);
      const low = hex_digit(bytes[i + 2]!);
      if (high >= 0 && low >= 0) {
        out[length++] = high * 16 + low;
        i += 2;
        continue;
      }
    }
    out[length++] = byte;
  }
  return native.utf8Decode(out.subarray(0, length), false, true);
}

function hex_digit(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const lower = code | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const ANY_SURROGATE = /[\ud800-\udfff]/;

// Conversion to USVString.
export function well_formed(text: string): string {
  return ANY_SURROGATE.test(text) ? text.replace(LONE_SURROGATE, "\ufffd") : text;
}

const PLAIN = /^[A-Za-z0-9*\-._]*$/;

function encode_part(text: string): string {
  if (PLAIN.test(text)) return text;
  return encodeURIComponent(text).replace(/%20|[!'()~]/g, (match) =>
    match === "%20" ? "+" : "%" + match.charCodeAt(0).toString(16).toUpperCase());
}

// The list: name, value, name, value, ...
export function parse_form(query: string): string[] {
  const list: string[] = [];
  if (query === "") return list;
  for (const part of query.split("&")) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    if (equals < 0) list.push(decode_part(part), "");
    else list.push(decode_part(part.slice(0, equals)), decode_part(part.slice(equals + 1)));
  }
  return list;
}

export function serialize_form(list: string[]): string {
  let out = "";
  for (let i = 0; i < list.length; i += 2) {
    if (i > 0) out += "&";
    out += encode_part(list[i]!) + "=" + encode_part(list[i + 1]!);
  }
  return out;
}

// What a URL does when its parameters change; set by url.ts.
let params_changed: (owner: object, query: string) => void;
export function on_params_change(listener: (owner: object, query: string) => void): void {
  params_changed = listener;
}

export let make_params: (query: string, owner: object) => URLSearchParams;
export let params_list: (params: URLSearchParams) => string[];
export let reset_params: (params: URLSearchParams, query: string) => void;

export class URLSearchParams {
  #list: string[];
  #owner: object | null = null;

  static {
    make_params = (query, owner) => {
      const params = new URLSearchParams();
      params.#list = parse_form(query);
      params.#owner = owner;
      return params;
    };
    params_list = (params) => params.#list;
    reset_params = (params, query) => {
      params.#list = parse_form(query);
    };
  }

  constructor(init: unknown = undefined) {
    if (init === undefined) this.#list = [];
    else if (typeof init === "string") this.#list = parse_text(init);
    else if ((typeof init !== "object" && typeof init !== "function") || init === null) {
      this.#list = parse_text(String(init));
    } else this.#list = parse_object(init);
  }

  #changed(): void {
    if (this.#owner !== null) params_changed(this.#owner, serialize_form(this.#list));
  }

  get size(): number {
    return this.#list.length / 2;
  }

  append(name: string, value: string): void {
    if (arguments.length < 2) throw wrong_argument("append", "URLSearchParams", arguments.length + 1, "USVString");
    this.#list.push(well_formed(String(name)), well_formed(String(value)));
    this.#changed();
  }

  delete(name: string, value?: string): void {
    if (arguments.length < 1) throw wrong_argument("delete", "URLSearchParams", 1, "USVString");
    const key = well_formed(String(name));
    const only = value === undefined ? undefined : well_formed(String(value));
    const list = this.#list;
    const kept: string[] = [];
    for (let i = 0; i < list.length; i += 2) {
      if (list[i] === key && (only === undefined || list[i + 1] === only)) continue;
      kept.push(list[i]!, list[i + 1]!);
    }
    this.#list = kept;
    this.#changed();
  }

  get(name: string): string | null {
    if (arguments.length < 1) throw wrong_argument("get", "URLSearchParams", 1, "USVString");
    const key = well_formed(String(name));
    const list = this.#list;
    for (let i = 0; i < list.length; i += 2) if (list[i] === key) return list[i + 1]!;
    return null;
  }

  getAll(name: string): string[] {
    if (arguments.length < 1) throw wrong_argument("getAll", "URLSearchParams", 1, "USVString");
    const key = well_formed(String(name));
    const found = [];
    const list = this.#list;
    for (let i = 0; i < list.length; i += 2) if (list[i] === key) found.push(list[i + 1]!);
    return found;
  }

  has(name: string, value?: string): boolean {
    if (arguments.length < 1) throw wrong_argument("has", "URLSearchParams", 1, "USVString");
    const key = well_formed(String(name));
    const only = value === undefined ? undefined : well_formed(String(value));
    const list = this.#list;
    for (let i = 0; i < list.length; i += 2) {
      if (list[i] === key && (only === undefined || list[i + 1] === only)) return true;
    }
    return false;
  }

  set(name: string, value: string): void {
    if (arguments.length < 2) throw wrong_argument("set", "URLSearchParams", arguments.length + 1, "USVString");
    const key = well_formed(String(name));
    const text = well_formed(String(value));
    const list = this.#list;
    const kept: string[] = [];
    let found = false;
    for (let i = 0; i < list.length; i += 2) {
      if (list[i] !== key) kept.push(list[i]!, list[i + 1]!);
      else if (!found) {
        found = true;
        kept.push(key, text);
      }
    }
    if (!found) kept.push(key, text);
    this.#list = kept;
    this.#changed();
  }

  sort(): void {
    const pairs: [string, string][] = [];
    const list = this.#list;
    for (let i = 0; i < list.length; i += 2) pairs.push([list[i]!, list[i + 1]!]);
    pairs.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
    this.#list = pairs.flat();
    this.#changed();
  }

  entries(): IterableIterator<[string, string]> {
    return new ParamsIterator(this, 0) as unknown as IterableIterator<[string, string]>;
  }
  keys(): IterableIterator<string> {
    return new ParamsIterator(this, 1) as unknown as IterableIterator<string>;
  }
  values(): IterableIterator<string> {
    return new ParamsIterator(this, 2) as unknown as IterableIterator<string>;
  }

  forEach(callback: (value: string, key: string, params: URLSearchParams) => void, self?: unknown): void {
    if (typeof callback !== "function") throw wrong_argument("forEach", "URLSearchParams", 1, "function");
    for (let i = 0; i < this.#list.length; i += 2) {
      callback.call(self, this.#list[i + 1]!, this.#list[i]!, this);
    }
  }

  toString(): string {
    return serialize_form(this.#list);
  }

  declare [Symbol.iterator]: () => IterableIterator<[string, string]>;
}

class ParamsIterator {
  #params: URLSearchParams;
  #kind: number;
  #index = 0;

  constructor(params: URLSearchParams, kind: number) {
    this.#params = params;
    this.#kind = kind;
  }

  next(): { done: boolean; value: unknown } {
    const list = params_list(this.#params);
    const i = this.#index;
    if (i >= list.length) return { done: true, value: undefined };
    this.#index = i + 2;
    if (this.#kind === 1) return { done: false, value: list[i] };
    if (this.#kind === 2) return { done: false, value: list[i + 1] };
    return { done: false, value: [list[i], list[i + 1]] };
  }

  [Symbol.iterator](): this {
    return this;
  }
}

function parse_text(text: string): string[] {
  const usv = well_formed(text);
  return parse_form(usv.startsWith("?") ? usv.slice(1) : usv);
}

function parse_object(init: object): string[] {
  if (init instanceof URLSearchParams) return [...params_list(init)];
  const list: string[] = [];
  const iterate = (init as Iterable<unknown>)[Symbol.iterator];
  if (iterate !== undefined && iterate !== null) {
    for (const entry of init as Iterable<unknown>) {
      const pair = typeof entry === "object" && entry !== null ? [...(entry as Iterable<unknown>)] : [];
      if (pair.length !== 2) {
        throw new TypeError("To initialize a URLSearchParams object from a sequence, each inner sequence must have exactly two elements.");
      }
      list.push(well_formed(String(pair[0])), well_formed(String(pair[1])));
    }
    return list;
  }
  const record = init as Record<string, unknown>;
  for (const key of Object.keys(record)) list.push(well_formed(key), well_formed(String(record[key])));
  return list;
}

expose(URLSearchParams, "URLSearchParams");
Object.defineProperty(URLSearchParams.prototype, Symbol.iterator, {
  value: URLSearchParams.prototype.entries, writable: true, configurable: true,
});
Object.setPrototypeOf(ParamsIterator.prototype, Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]())));
set_tag(ParamsIterator.prototype, "URLSearchParams Iterator");
define_global("URLSearchParams", URLSearchParams);
