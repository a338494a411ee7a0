// Errors that come from the host or from another cell.

import { DOMException } from "./dom_exception";
import { native } from "./host";
import { set_own } from "./util";

const ERROR_CLASSES: Record<string, ErrorConstructor> = {
  Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError,
};

const DOM_NAMES = new Set([
  "AbortError", "DataCloneError", "DataError", "InvalidAccessError", "InvalidCharacterError", "InvalidStateError",
  "NetworkError", "NotFoundError", "NotSupportedError", "OperationError", "QuotaExceededError", "SyntaxErrorDOM",
  "TimeoutError", "TypeMismatchError",
]);

const RETRYABLE = 1;
const OVERLOADED = 2;
const REMOTE = 4;
const RESET = 8;
const UNCONFIRMED = 16;

export function make_error(name: string, message: string, flags: ErrorFlags): Error {
  let error: Error;
  if (DOM_NAMES.has(name)) {
    error = new DOMException(message, name) as unknown as Error;
  } else if (name === "AggregateError") {
    // Its errors stayed behind.
    error = new AggregateError([], message);
    delete (error as { errors?: unknown }).errors;
  } else {
    const known = Object.hasOwn(ERROR_CLASSES, name) ? ERROR_CLASSES[name]! : Error;
    error = new known(message);
    if (known === Error && name !== "Error" && name !== "") {
      Object.defineProperty(error, "name", { value: name, configurable: true, writable: true, enumerable: false });
    }
  }
  return mark_error(error, flags);
}

export function mark_error<T extends object>(error: T, flags: ErrorFlags): T {
  if (flags !== 0) {
    if (flags & RETRYABLE) set_own(error, "retryable", true);
    if (flags & OVERLOADED) set_own(error, "overloaded", true);
    if (flags & REMOTE) set_own(error, "remote", true);
    if (flags & RESET) set_own(error, "durableObjectReset", true);
    if (flags & UNCONFIRMED) set_own(error, "unconfirmed", true);
  }
  return error;
}

// What Error.prototype.toString answers.
export function error_line(error: Error): string {
  const name = error.name === undefined ? "Error" : String(error.name);
  const message = error.message === undefined ? "" : String(error.message);
  if (name === "") return message;
  return message === "" ? name : `${name}: ${message}`;
}

// The same with the frames of where it was thrown, if those are known.
export function host_error(name: string, message: string, stack: string, flags: ErrorFlags): Error {
  const error = make_error(name, message, flags);
  if (stack !== "") {
    const frames = stack.match(/\n {4}at [^]*/)?.[0] ?? "";
    Object.defineProperty(error, "stack", {
      value: `${error_line(error)}${frames}`, configurable: true, writable: true, enumerable: error instanceof DOMException,
    });
  }
  return error;
}

// Reports what nobody will handle, without ever throwing itself.
export function report_error(error: unknown): void {
  native.reportError(error);
}
