// Small helpers that every API module uses: error texts as workerd words them, property
// attributes, argument checks.

import { native } from "./host";

export type AnyFunction = (...args: any[]) => any;
export type Constructor = abstract new (...args: any[]) => object;

// Handed to constructors of classes that user code may or may not construct, to make an instance
// without arguments to check.
export const INTERNAL: unique symbol = Symbol("internal");

export function wrong_argument(method: string, owner: string, index: number, type: string): TypeError {
  return new TypeError(`Failed to execute '${method}' on '${owner}': parameter ${index} is not of type '${type}'.`);
}

export function wrong_constructor_argument(owner: string, index: number, type: string): TypeError {
  return new TypeError(`Failed to construct '${owner}': constructor parameter ${index} is not of type '${type}'.`);
}

export function wrong_field(field: string, dict: string, type: string): TypeError {
  return new TypeError(
    `Incorrect type for the '${field}' field on '${dict}': the provided value is not of type '${type}'.`);
}

// What only a handler may do: its event pays for it and ends it.
export function require_event(): void {
  if (native.currentIo() === 0) {
    throw new Error("Disallowed operation called within global scope. Asynchronous I/O (ex: fetch() or connect()), setting " +
      "a timeout, and generating random values are not allowed within global scope. To fix this error, perform this " +
      "operation within a handler. https://developers.cloudflare.com/workers/runtime-apis/handlers/");
  }
}

export function unsupported(what: string): Error {
  return new Error(`${what} is not supported by celld yet.`);
}

// Makes the members of a class as Web IDL has them: enumerable on the prototype, with `name` as its
// string tag and name (the bundler may have changed the latter).
export function expose(target: Constructor, name: string): void {
  const prototype = target.prototype;
  for (const key of Object.getOwnPropertyNames(prototype)) {
    if (key === "constructor") continue;
    const descriptor = Object.getOwnPropertyDescriptor(prototype, key)!;
    descriptor.enumerable = true;
    Object.defineProperty(prototype, key, descriptor);
  }
  set_tag(prototype, name);
}

export function set_tag(prototype: object, tag: string): void {
  const constructor = prototype.constructor as { name?: unknown };
  if (Object.hasOwn(prototype, "constructor") && constructor.name !== tag) {
    Object.defineProperty(constructor, "name", { value: tag, configurable: true });
  }
  Object.defineProperty(prototype, Symbol.toStringTag, { value: tag, configurable: true });
}

// A global as built-ins are: writable, configurable, not enumerable.
export function define_global(name: string, value: unknown): void {
  if (typeof value === "function" && value.name !== name) {
    Object.defineProperty(value, "name", { value: name, configurable: true });
  }
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}

// The bytes of a BufferSource without a copy; undefined for anything else.
export function view_bytes(value: unknown): Uint8Array | undefined {
  if (value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (is_array_buffer(value)) return new Uint8Array(value);
  return undefined;
}

const array_buffer_length = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength")!.get!;
const shared_length = Object.getOwnPropertyDescriptor(SharedArrayBuffer.prototype, "byteLength")!.get!;

export function is_array_buffer(value: unknown): value is ArrayBuffer {
  if (typeof value !== "object" || value === null) return false;
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return true;
  const tag = Object.prototype.toString.call(value);
  if (tag !== "[object ArrayBuffer]" && tag !== "[object SharedArrayBuffer]") return false;
  try {
    (tag === "[object ArrayBuffer]" ? array_buffer_length : shared_length).call(value);
    return true;
  } catch {
    return false;
  }
}

// An own property as an assignment makes it, whatever setters Object.prototype has.
export function set_own(object: object, key: PropertyKey, value: unknown): void {
  Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true });
}

export function own_value(object: object, key: PropertyKey): unknown {
  return Object.hasOwn(object, key) ? (object as Record<PropertyKey, unknown>)[key] : undefined;
}

export function is_object(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

export function noop(): void {}
