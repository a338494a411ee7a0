// Values with errors in them, and thrown errors, on their way between a cell and its caller.
//
// V8 writes an Error without its own properties and knows neither AggregateError nor DOMException.
// What it leaves out travels beside the value: a byte 1, then V8's form of
// [value, errors, a detail for each]. V8 keeps identity, so `errors` are the very objects inside of
// `value`. Without errors it is V8's form alone, which begins with 0xff.
//
// Before compatibility date 2026-04-21 (enhanced_error_serialization) own properties stay behind,
// and an error of another name than a built-in one arrives as an Error with that name in its message.

import { set_unpack_thrown } from "./calls";
import { check_clone, met_errors } from "./clone_check";
import { config } from "./config";
import { DOMException, make_dom_exception_of } from "./dom_exception";
import { error_line } from "./errors";
import { native } from "./host";
import { set_own } from "./util";

const WITH_ERRORS = 1;

const CLASSES: Record<string, ErrorConstructor> = {
  EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError,
  AggregateError: AggregateError as unknown as ErrorConstructor,
};

type Detail = [kind: string, message: string, own: Record<string, unknown>];

function kind_of(error: Error): string {
  if (error instanceof DOMException) return "DOMException";
  for (const name in CLASSES) if (error instanceof CLASSES[name]!) return name;
  return "Error";
}

function describe(error: Error): Detail {
  const kind = kind_of(error);
  const own: Record<string, unknown> = {};
  for (const key of Object.getOwnPropertyNames(error)) {
    if (key !== "message" && key !== "stack" && !(kind === "DOMException" && key === "code")) {
      set_own(own, key, (error as unknown as Record<string, unknown>)[key]);
    }
  }
  return [kind, String(error.message), own];
}

function can_serialize(value: unknown): boolean {
  try {
    native.serialize(value);
    return true;
  } catch {
    return false;
  }
}

function with_errors(value: unknown, errors: Error[], details: Detail[]): Uint8Array {
  let bytes: Uint8Array;
  try {
    bytes = native.serialize([value, errors, details]);
  } catch {
    // Properties that cannot travel stay behind.
    for (const detail of details) {
      detail[2] = Object.fromEntries(Object.entries(detail[2]).filter(([, member]) => can_serialize(member)));
    }
    bytes = native.serialize([value, errors, details]);
  }
  const marked = new Uint8Array(bytes.length + 1);
  marked[0] = WITH_ERRORS;
  marked.set(bytes, 1);
  return marked;
}

const RPC_BYTES_MAX = 32 << 20;

// The wire form of a value that a cell or its caller sends; throws for what cannot be sent.
export function serialize_for_rpc(value: unknown): Uint8Array {
  check_clone(value, true);
  const errors = met_errors();
  const special = config.enhanced_errors ? errors : errors?.filter((error) => error instanceof DOMException) ?? null;
  const bytes = special === null || special.length === 0
    ? native.serialize(value) : with_errors(value, special, special.map(describe));
  if (bytes.length > RPC_BYTES_MAX) {
    throw new Error("Serialized RPC arguments or return values are limited to 32MiB, but the size of this value was: " +
      `${bytes.length} bytes.`);
  }
  return bytes;
}

export function deserialize_from_rpc(bytes: Uint8Array): unknown {
  if (bytes[0] !== WITH_ERRORS) return native.deserialize(bytes);
  const [value, errors, details] = native.deserialize(bytes.subarray(1)) as [unknown, Error[], Detail[]];
  errors.forEach((error, i) => restore(error, details[i]!));
  return value;
}

function restore(error: Error, [kind, message, own]: Detail): void {
  const frames = typeof error.stack === "string" ? error.stack.match(/\n {4}at [^]*/)?.[0] ?? "" : "";
  if (kind === "DOMException") {
    make_dom_exception_of(error, message, String(own.name));
    delete own.name;
  } else {
    const built_in = Object.hasOwn(CLASSES, kind) ? CLASSES[kind]! : Error;
    Object.setPrototypeOf(error, built_in.prototype);
    hide(error, "message", message);
    // V8 makes it hidden, where it is a property like the others.
    delete error.cause;
  }
  for (const key of Object.keys(own)) set_own(error, key, own[key]);
  hide(error, "stack", error_line(error) + frames);
}

function hide(error: Error, key: string, value: string): void {
  Object.defineProperty(error, key, { value, configurable: true, writable: true, enumerable: false });
}

// What somebody threw, for who called the cell; undefined: its name and message are all there is.
// `thrower` is the id of the object whose method threw.
export function pack_thrown(thrown: unknown, thrower: string | undefined): Uint8Array | undefined {
  if (typeof thrown !== "object" || thrown === null) return undefined;
  if (!config.enhanced_errors && !(thrown instanceof DOMException)) return undefined;
  try {
    check_clone(thrown, false);
    const errors = met_errors() ?? [];
    const details = errors.map(describe);
    const detail = errors[0] === thrown ? details[0]![2] : undefined;
    const names_thrower = thrower !== undefined && Object.isExtensible(thrown) && !(thrown instanceof DOMException);
    if (names_thrower && detail !== undefined) set_own(detail, "durableObjectId", thrower);
    return with_errors([thrown, names_thrower && detail === undefined ? thrower : undefined], errors, details);
  } catch {
    return undefined;
  }
}

set_unpack_thrown((bytes) => {
  const [thrown, thrower] = deserialize_from_rpc(bytes) as [object & { durableObjectId?: string }, string | undefined];
  if (thrower !== undefined) set_own(thrown, "durableObjectId", thrower);
  return thrown;
});

// The same as an Error that the host can carry: its name is that of a built-in class.
export function plain_thrown(thrown: unknown): unknown {
  try {
    return make_plain(thrown);
  } catch {
    // Reading it throws; the text is workerd's.
    return without_frames(new Error("Promise will never complete."));
  }
}

function make_plain(thrown: unknown): unknown {
  if (typeof thrown !== "object" || thrown === null) return without_frames(new Error(String(thrown)));
  if (thrown instanceof DOMException) return thrown;
  if (!(thrown instanceof Error)) return config.enhanced_errors ? thrown : without_frames(new Error(tag_of(thrown)));
  void String(thrown.message);
  if (config.enhanced_errors) return thrown;
  const kind = kind_of(thrown);
  if (thrown.name === kind) return thrown;
  const plain = new (Object.hasOwn(CLASSES, kind) && kind !== "AggregateError" ? CLASSES[kind]! : Error)(
    `${thrown.name}: ${thrown.message}`);
  hide(plain, "stack", error_line(plain) + (String(thrown.stack).match(/\n {4}at [^]*/)?.[0] ?? ""));
  return plain;
}

function tag_of(value: object): string {
  if (Array.isArray(value)) return "[object Array]";
  const { constructor } = value as { constructor?: { name?: unknown } };
  return `#<${typeof constructor?.name === "string" && constructor.name !== "" ? constructor.name : "Object"}>`;
}

// The frames would be those of the runtime.
function without_frames(error: Error): Error {
  hide(error, "stack", error_line(error));
  return error;
}
