// Values as text, as Node's util.inspect prints them without colours.

import { Headers } from "./headers";
import { native } from "./host";
import { URLSearchParams } from "./url_search_params";

const DEPTH_MAX = 2;
const ITEMS_MAX = 100;
const STRING_MAX = 10000;
const LINE_MAX = 80;
const LEVELS_PER_LINE = 3;
const IDENTIFIER = /^[A-Za-z_$][\w$]*$/;

// The arguments of a console call: printf-like directives in the first, then the rest.
export function format(args: unknown[]): string {
  if (args.length === 0) return "";
  let next = 0;
  let out = "";
  const first = args[0];
  if (typeof first === "string" && args.length > 1 && first.includes("%")) {
    next = 1;
    out = first.replace(/%[sdifjoOc%]/g, (directive) => {
      if (directive === "%%") return "%";
      if (next >= args.length) return directive;
      const value = args[next++];
      switch (directive) {
        case "%s":
          return typeof value === "object" && value !== null && !has_own_text(value) ? inspect(value, 0) :
            typeof value === "bigint" ? `${value}n` : Object.is(value, -0) ? "-0" : String(value);
        case "%d":
          return typeof value === "bigint" ? `${value}n` : typeof value === "symbol" ? "NaN" : inspect(Number(value));
        case "%i":
          return typeof value === "bigint" ? `${value}n` : typeof value === "symbol" ? "NaN" : String(parseInt(String(value)));
        case "%f":
          return typeof value === "symbol" ? "NaN" : String(parseFloat(String(value)));
        case "%j":
          try {
            return JSON.stringify(value) ?? "undefined";
          } catch {
            return "[Circular]";
          }
        case "%c":
          return "";
        default:
          return inspect(value, 4);
      }
    });
  }
  for (let i = next; i < args.length; i++) {
    if (i > 0) out += " ";
    const value = args[i];
    out += typeof value === "string" ? value : inspect(value);
  }
  return out;
}

function has_own_text(value: object): boolean {
  const own = (value as { toString?: unknown }).toString;
  return value instanceof Error || (typeof own === "function" && own !== Object.prototype.toString &&
    own !== Array.prototype.toString && Object.hasOwn(value, "toString"));
}

interface Context {
  depth_max: number;
  seen: object[];
  circular: Map<object, number>;
  deepest: number; // how deep the object that was shown last is
}

const CUSTOM = Symbol.for("nodejs.util.inspect.custom");

export function inspect(value: unknown, depth_max: number = DEPTH_MAX): string {
  return show(value, { depth_max, seen: [], circular: new Map(), deepest: 0 }, 0, 0);
}

function show(value: unknown, context: Context, depth: number, indent: number): string {
  switch (typeof value) {
    case "string":
      return quote(value);
    case "number":
      return Object.is(value, -0) ? "-0" : String(value);
    case "bigint":
      return `${value}n`;
    case "symbol":
      return String(value);
    case "boolean":
    case "undefined":
      return String(value);
  }
  if (value === null) return "null";
  try {
    return show_object(value as object, context, depth, indent);
  } catch (error) {
    return `[unprintable: ${reason_of(error)}]`;
  }
}

// What a getter or a trap threw; reading that may throw again.
function reason_of(error: unknown): string {
  try {
    return error instanceof Error ? String(error.message) : String(error);
  } catch {
    return "its error cannot be read";
  }
}

const DESCRIPTION_MAX = 16384;

// One value for the log, whatever it is.
export function describe(value: unknown): string {
  const text = typeof value === "string" ? value : inspect(value);
  return text.length <= DESCRIPTION_MAX ? text
    : `${text.slice(0, DESCRIPTION_MAX)}... ${text.length - DESCRIPTION_MAX} more characters`;
}

function quote(text: string): string {
  let shown = text;
  let more = "";
  if (shown.length > STRING_MAX) {
    more = `... ${shown.length - STRING_MAX} more characters`;
    shown = shown.slice(0, STRING_MAX);
  }
  const mark = !shown.includes("'") ? "'" : !shown.includes('"') ? '"' : !shown.includes("`") && !shown.includes("${") ? "`" : "'";
  const escaped = shown.replace(/[\x00-\x1f\x7f-\x9f\\]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g,
    (c) => ESCAPES[c] ?? (c < "\x80" || c <= "\x9f"
      ? "\\x" + c.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")
      : "\\u" + c.charCodeAt(0).toString(16).toUpperCase()));
  return mark + (mark === "'" ? escaped.replaceAll("'", "\\'") : escaped) + mark + more;
}

const ESCAPES: Record<string, string> = {
  "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", "\\": "\\\\",
};

function constructor_name(value: object): string | null {
  for (let object: object | null = value; object !== null; object = Object.getPrototypeOf(object)) {
    const descriptor = Object.getOwnPropertyDescriptor(object, "constructor");
    if (descriptor !== undefined && typeof descriptor.value === "function" && descriptor.value.name !== "") {
      return descriptor.value.name;
    }
  }
  return null;
}

function tag_of(value: object, name: string | null): string {
  const tag = (value as { [Symbol.toStringTag]?: unknown })[Symbol.toStringTag];
  return typeof tag === "string" && tag !== "" && tag !== name ? ` [${tag}]` : "";
}

// "Name " before the braces; nothing for plain objects.
function prefix(value: object, name: string | null, plain: string, size: number | undefined = undefined): string {
  const tag = tag_of(value, name);
  const count = size === undefined ? "" : `(${size})`;
  if (name === null) return `[${plain}${count}: null prototype]${tag} `;
  return name === plain && tag === "" && (plain === "Object" || plain === "Array") ? "" : `${name}${count}${tag} `;
}

function show_object(value: object, context: Context, depth: number, indent: number): string {
  const target = native.proxyTarget(value);
  if (target !== undefined) return `Proxy(${show(target, context, depth, indent)})`;
  const custom = (value as Record<symbol, unknown>)[CUSTOM];
  if (typeof custom === "function") {
    const shown = custom.call(value, context.depth_max - depth, {}, inspect);
    return typeof shown === "string" ? shown.replaceAll("\n", "\n" + " ".repeat(indent)) : show(shown, context, depth, indent);
  }
  if (context.seen.includes(value)) {
    let number = context.circular.get(value);
    if (number === undefined) context.circular.set(value, (number = context.circular.size + 1));
    return `[Circular *${number}]`;
  }
  const name = constructor_name(value);
  const simple = show_simple(value, name, context, depth, indent);
  const keys = own_keys(value);
  if (simple !== undefined && keys.length === 0) return simple;
  if (depth > context.depth_max) {
    if (Array.isArray(value)) return "[Array]";
    return `[${name === null ? "Object: null prototype" : name}${tag_of(value, name)}]`;
  }
  context.seen.push(value);
  context.deepest = depth;
  const items: string[] = [];
  let open = "{";
  let is_list = false;
  const child = (member: unknown) => show(member, context, depth + 1, indent + 2);
  if (simple === undefined) {
    is_list = Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
    open = contents(value, name, items, child);
  }
  for (const key of keys) items.push(show_member(value, key, context, depth, indent));
  context.seen.pop();
  const number = context.circular.get(value);
  if (number !== undefined) open = `<ref *${number}> ${open}`;
  return join(items, simple ?? "", open, is_list ? "]" : "}", context, depth, indent, is_list, value);
}

// What is inside an object besides its properties; returns the opening brace and what is before it.
function contents(
  value: object, name: string | null, items: string[], child: (member: unknown) => string): string {
  if (Array.isArray(value)) {
    list_items(value, items, child);
    return (name === "Array" ? "" : prefix(value, name, "Array", value.length)) + "[";
  }
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    const list = value as unknown as ArrayLike<unknown>;
    for (let i = 0; i < Math.min(list.length, ITEMS_MAX); i++) items.push(child(list[i]));
    if (list.length > ITEMS_MAX) items.push(more_items(list.length - ITEMS_MAX));
    return `${name ?? "TypedArray"}(${list.length}) [`;
  }
  if (value instanceof Map) {
    pair_items(value, value.size, items, child);
    return `${prefix(value, name, "Map", value.size)}{`;
  }
  if (value instanceof Set) {
    let left = ITEMS_MAX;
    for (const member of value) {
      if (left-- === 0) break;
      items.push(child(member));
    }
    if (value.size > ITEMS_MAX) items.push(more_items(value.size - ITEMS_MAX));
    return `${prefix(value, name, "Set", value.size)}{`;
  }
  if (value instanceof ArrayBuffer) {
    buffer_items(new Uint8Array(value), items);
    return `${name ?? "ArrayBuffer"} {`;
  }
  if (value instanceof DataView) {
    items.push(`byteLength: ${value.byteLength}`, `byteOffset: ${value.byteOffset}`, `buffer: ${child(value.buffer)}`);
    return "DataView {";
  }
  if (value instanceof Promise) {
    const state = native.promiseState(value);
    if (state === undefined || state[0] === "pending") items.push("<pending>");
    else items.push(state[0] === "rejected" ? `<rejected> ${child(state[1])}` : child(state[1]));
    return `${prefix(value, name, "Promise")}{`;
  }
  if (value instanceof Headers || value instanceof URLSearchParams) {
    const pairs = [...value];
    pair_items(pairs, pairs.length, items, child);
    return `${prefix(value, name, "", pairs.length)}{`;
  }
  if (Object.prototype.toString.call(value) === "[object Arguments]") return "[Arguments] {";
  accessor_items(value, items, child);
  return `${prefix(value, name, "Object")}{`;
}

function pair_items(
  pairs: Iterable<[unknown, unknown]>, size: number, items: string[], child: (member: unknown) => string): void {
  let left = ITEMS_MAX;
  for (const [key, member] of pairs) {
    if (left-- === 0) break;
    items.push(`${child(key)} => ${child(member)}`);
  }
  if (size > ITEMS_MAX) items.push(more_items(size - ITEMS_MAX));
}

function buffer_items(bytes: Uint8Array, items: string[]): void {
  let hex = "";
  for (let i = 0; i < Math.min(bytes.length, 50); i++) hex += (i > 0 ? " " : "") + bytes[i]!.toString(16).padStart(2, "0");
  if (bytes.length > 50) hex += ` ... ${bytes.length - 50} more byte${bytes.length > 51 ? "s" : ""}`;
  items.push(`[Uint8Contents]: <${hex}>`, `byteLength: ${bytes.length}`);
}

// Things that are one text unless they carry properties.
function show_simple(value: object, name: string | null, context: Context, depth: number, indent: number): string | undefined {
  if (typeof value === "function") {
    const text = Function.prototype.toString.call(value);
    const fn = value as (...args: unknown[]) => unknown;
    if (text.startsWith("class") && text.endsWith("}")) {
      const parent = Object.getPrototypeOf(value) as { name?: string } | null;
      return `[class ${fn.name || "(anonymous)"}${parent?.name ? ` extends ${parent.name}` : ""}]`;
    }
    const kind = name ?? "Function";
    return fn.name === "" ? `[${kind} (anonymous)]` : `[${kind}: ${fn.name}]`;
  }
  if (value instanceof Error) return show_error(value, context, depth, indent);
  if (value instanceof Date) {
    return Number.isNaN(value.getTime()) ? "Invalid Date" : Date.prototype.toISOString.call(value);
  }
  if (value instanceof RegExp) return RegExp.prototype.toString.call(value);
  if (value instanceof String) return `[String: ${quote(String(value))}]`;
  if (value instanceof Number) return `[Number: ${Object.is(value.valueOf(), -0) ? "-0" : String(value)}]`;
  if (value instanceof Boolean) return `[Boolean: ${String(value)}]`;
  if (value instanceof WeakMap) return "WeakMap { <items unknown> }";
  if (value instanceof WeakSet) return "WeakSet { <items unknown> }";
  return undefined;
}

function show_error(error: Error, context: Context, depth: number, indent: number): string {
  const stack = error.stack;
  let text = typeof stack === "string" && stack !== "" ? stack : Error.prototype.toString.call(error);
  if (!/\n\s+at /.test(text)) text = `[${text}]`;
  const more: string[] = [];
  const member = (name: string, value: unknown) => {
    if (depth > context.depth_max) more.push(`[${name}]: [Object]`);
    else more.push(`[${name}]: ${show(value, context, depth + 1, 0)}`);
  };
  context.seen.push(error);
  if (Object.hasOwn(error, "cause")) member("cause", error.cause);
  if (error instanceof AggregateError && Object.hasOwn(error, "errors")) member("errors", error.errors);
  context.seen.pop();
  if (more.length > 0) text += ` {\n  ${more.map((part) => part.replaceAll("\n", "\n  ")).join(",\n  ")}\n}`;
  return indent === 0 ? text : text.replaceAll("\n", "\n" + " ".repeat(indent));
}

function own_keys(value: object): PropertyKey[] {
  const is_indexed = Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView)) || value instanceof String;
  const keys: PropertyKey[] = [];
  // The streams polyfill keeps its state in properties; show them as Workers do, without.
  const hidden = typeof (value as { [Symbol.toStringTag]?: unknown })[Symbol.toStringTag] === "string";
  for (const key of Object.keys(value)) {
    if (is_indexed && /^(?:0|[1-9]\d*)$/.test(key)) continue;
    if (hidden && key.startsWith("_")) continue;
    keys.push(key);
  }
  for (const key of Object.getOwnPropertySymbols(value)) {
    if (Object.prototype.propertyIsEnumerable.call(value, key)) keys.push(key);
  }
  return keys;
}

function show_key(key: PropertyKey): string {
  if (typeof key === "symbol") return String(key);
  const text = String(key);
  return IDENTIFIER.test(text) ? text : quote(text);
}

function show_member(value: object, key: PropertyKey, context: Context, depth: number, indent: number): string {
  const descriptor = Object.getOwnPropertyDescriptor(value, key)!;
  let text: string;
  if (descriptor.get !== undefined) text = descriptor.set !== undefined ? "[Getter/Setter]" : "[Getter]";
  else if (descriptor.set !== undefined) text = "[Setter]";
  else text = show(descriptor.value, context, depth + 1, indent + 2);
  return `${show_key(key)}: ${text}`;
}

// The attributes of platform objects (Request, URL, ...) live on their prototypes.
function accessor_items(value: object, items: string[], child: (member: unknown) => string): void {
  const done = new Set<string>();
  for (let object = Object.getPrototypeOf(value); object !== null && object !== Object.prototype;
    object = Object.getPrototypeOf(object)) {
    if (native.proxyTarget(object) !== undefined) return;
    if (!Object.hasOwn(object, Symbol.toStringTag)) continue;
    for (const [key, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(object))) {
      if (descriptor.get === undefined || !descriptor.enumerable || done.has(key)) continue;
      done.add(key);
      let member: unknown;
      try {
        member = descriptor.get.call(value);
      } catch {
        continue;
      }
      items.push(`${show_key(key)}: ${child(member)}`);
    }
  }
}

function list_items(list: unknown[], items: string[], child: (member: unknown) => string): void {
  let i = 0;
  while (i < list.length && items.length < ITEMS_MAX) {
    if (i in list) {
      items.push(child(list[i]));
      i++;
      continue;
    }
    const from = i;
    while (i < list.length && !(i in list)) i++;
    items.push(`<${i - from} empty item${i - from > 1 ? "s" : ""}>`);
  }
  if (i < list.length) items.push(more_items(list.length - i));
}

function more_items(count: number): string {
  return `... ${count} more item${count > 1 ? "s" : ""}`;
}

// `base` is a text that stands for the object itself, as of an error with properties.
function join(
  items: string[], base: string, open: string, close: string, context: Context, depth: number, indent: number,
  is_list: boolean, value: object): string {
  const before = base === "" ? open : `${base} ${open}`;
  if (items.length === 0) return before + close;
  const shown = is_list && items.length > 6 ? group_items(items, indent, value) : items;
  // The innermost levels go on one line, when nothing was grouped and they fit.
  if (context.deepest - depth < LEVELS_PER_LINE && shown.length === items.length && !base.includes("\n")) {
    let length = 2 * items.length + indent + open.length + base.length + 10;
    for (const item of items) length += item.length;
    if (length <= LINE_MAX) {
      const line = items.join(", ");
      if (!line.includes("\n")) return `${before} ${line} ${close}`;
    }
  }
  const space = "\n" + " ".repeat(indent);
  return `${before}${space}  ${shown.join(`,${space}  `)}${space}${close}`;
}

// Long lists of short items in columns. The formula for their number is Node's, so that the same
// value prints the same.
function group_items(items: string[], indent: number, value: object): string[] {
  const count = items[items.length - 1]!.startsWith("... ") ? items.length - 1 : items.length;
  const separator = 2;
  const lengths: number[] = [];
  let total = 0;
  let longest = 0;
  for (let i = 0; i < count; i++) {
    const length = items[i]!.length;
    lengths.push(length);
    total += length + separator;
    longest = Math.max(longest, length);
  }
  const width = longest + separator;
  if (width * 3 + indent >= LINE_MAX || (total / width <= 5 && longest > 6)) return items;
  const bias = Math.max(width - 3 - Math.sqrt(width - total / items.length), 1);
  const columns = Math.min(
    Math.round(Math.sqrt(2.5 * bias * count) / bias), Math.floor((LINE_MAX - indent) / width), 12);
  if (columns <= 1) return items;
  const widths: number[] = [];
  for (let i = 0; i < columns; i++) {
    let most = 0;
    for (let j = i; j < count; j += columns) most = Math.max(most, lengths[j]!);
    widths.push(most + separator);
  }
  let numbers = true;
  for (let i = 0; i < count && numbers; i++) {
    const type = typeof (value as unknown as ArrayLike<unknown>)[i];
    numbers = type === "number" || type === "bigint";
  }
  const rows: string[] = [];
  for (let i = 0; i < count; i += columns) {
    const last = Math.min(i + columns, count) - 1;
    let row = "";
    for (let j = i; j < last; j++) {
      const cell = `${items[j]!}, `;
      row += numbers ? cell.padStart(widths[j - i]!) : cell.padEnd(widths[j - i]!);
    }
    rows.push(row + (numbers ? items[last]!.padStart(widths[last - i]! - separator) : items[last]!));
  }
  if (count < items.length) rows.push(items[count]!);
  return rows;
}
