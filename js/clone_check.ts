// What V8's serializer would silently turn into a plain object, but Workers refuse: instances of
// platform classes and, over RPC, of any class.

import { AbortController } from "./abort";
import { Blob } from "./blob";
import { BodyHolder, has_body } from "./body";
import { DOMException } from "./dom_exception";
import { Event, EventTarget } from "./events";
import { FormData } from "./formdata";
import { Headers } from "./headers";
import { ReadableStream, TransformStream, WritableStream } from "./streams";
import { TextDecoder, TextEncoder } from "./encoding";
import { URL } from "./url";
import { URLSearchParams } from "./url_search_params";
import { unsupported } from "./util";

type AnyClass = abstract new (...args: any[]) => object;

// Added by refuse_to_clone. Those above are asked for late: modules import each other in circles.
const added_classes: AnyClass[] = [];
let platform_classes: AnyClass[] | null = null;

function is_platform_object(value: object): boolean {
  platform_classes ??= [
    AbortController, Blob, BodyHolder, Event, EventTarget, FormData, Headers, ReadableStream, TransformStream,
    WritableStream, TextDecoder, TextEncoder, URL, URLSearchParams, ...added_classes,
  ];
  return platform_classes.some((platform_class) => value instanceof platform_class);
}

// Adds a class whose instances must not be serialized.
export function refuse_to_clone(constructor: AnyClass): void {
  added_classes.push(constructor);
  platform_classes = null;
}

// Classes whose instances Workers can send over RPC, and celld cannot yet.
const unsupported_over_rpc: [constructor: abstract new (...args: any[]) => object, name: string][] = [];

export function refuse_over_rpc(constructor: abstract new (...args: any[]) => object, name: string): void {
  unsupported_over_rpc.push([constructor, name]);
}

function type_name(value: object): string {
  const constructor = (value as { constructor?: { name?: unknown } }).constructor;
  return typeof constructor === "function" && typeof constructor.name === "string" && constructor.name !== ""
    ? constructor.name : "Object";
}

function refuse(value: object): never {
  throw new DOMException(
    `Could not serialize object of type "${type_name(value)}". This type does not support serialization.`,
    "DataCloneError");
}

const plain_prototype = Object.prototype;
const array_prototype = Array.prototype;

let errors: Error[] | null = null;

// The errors that the last check_clone came across, the outermost first; null: none.
export function met_errors(): Error[] | null {
  return errors;
}

// Throws for what must not be serialized. `strict`: instances of user classes too, as RPC has it.
export function check_clone(value: unknown, strict: boolean): void {
  errors = null;
  if (typeof value === "object" && value !== null) check_object(value, strict, null);
}

function check_object(value: object, strict: boolean, seen: Set<object> | null): void {
  const prototype = Object.getPrototypeOf(value);
  if (prototype === plain_prototype) {
    for (const key in value) {
      const member = (value as Record<string, unknown>)[key];
      if (typeof member === "object" && member !== null) seen = check_member(value, member, strict, seen);
    }
  } else if (prototype === array_prototype) {
    for (const member of value as unknown[]) {
      if (typeof member === "object" && member !== null) seen = check_member(value, member, strict, seen);
    }
  } else if (value instanceof Map) {
    for (const [key, member] of value) {
      if (typeof key === "object" && key !== null) seen = check_member(value, key, strict, seen);
      if (typeof member === "object" && member !== null) seen = check_member(value, member, strict, seen);
    }
  } else if (value instanceof Set) {
    for (const member of value) {
      if (typeof member === "object" && member !== null) seen = check_member(value, member, strict, seen);
    }
  } else if (value instanceof Error) {
    (errors ??= []).push(value);
    for (const key of Object.getOwnPropertyNames(value)) {
      if (key === "message" || key === "stack") continue;
      const member = (value as unknown as Record<string, unknown>)[key];
      // What cannot be serialized is left out of an error.
      if (typeof member === "object" && member !== null) seen = check_member(value, member, false, seen);
    }
  } else if (!is_builtin(value)) {
    if (strict) {
      for (const [refused, name] of unsupported_over_rpc) {
        if (value instanceof refused) throw unsupported(`${name} over RPC`);
      }
      refuse(value);
    }
    if (prototype === null) return;
    if (value instanceof ReadableStream || (value instanceof BodyHolder && has_body(value))) {
      throw new DOMException("ReadableStream can only be serialized for RPC.", "DataCloneError");
    }
    if (is_platform_object(value)) refuse(value);
    for (const key of Object.keys(value)) {
      const member = (value as Record<string, unknown>)[key];
      if (typeof member === "object" && member !== null) seen = check_member(value, member, strict, seen);
    }
  }
}

// `seen` holds the containers on the way and those that are done; it is made at the first nesting.
function check_member(parent: object, member: object, strict: boolean, seen: Set<object> | null): Set<object> {
  seen ??= new Set();
  seen.add(parent);
  if (!seen.has(member)) {
    seen.add(member);
    check_object(member, strict, seen);
  }
  return seen;
}

const BUILTIN_TAGS = new Set([
  "Date", "RegExp", "Error", "Boolean", "Number", "String", "BigInt", "ArrayBuffer", "SharedArrayBuffer", "DataView",
  "WeakMap", "WeakSet", "WeakRef", "Promise", "Symbol",
]);

// Those that V8 knows how to serialize, or refuses itself.
function is_builtin(value: object): boolean {
  if (ArrayBuffer.isView(value) || value instanceof Date || value instanceof RegExp) return true;
  const tag = Object.prototype.toString.call(value);
  if (tag === "[object Generator]" || tag === "[object AsyncGenerator]") return true;
  const prototype = Object.getPrototypeOf(value);
  if (prototype === null || !Object.hasOwn(prototype, "constructor")) return false;
  return BUILTIN_TAGS.has(tag.slice(8, -1)) &&
    prototype.constructor === (globalThis as Record<string, unknown>)[prototype.constructor.name];
}
