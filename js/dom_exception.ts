// DOMException: an Error with a name from a fixed list, and that name's legacy code.

import { define_global, set_tag } from "./util";

const CODES: Record<string, number> = {
  IndexSizeError: 1, DOMStringSizeError: 2, HierarchyRequestError: 3, WrongDocumentError: 4,
  InvalidCharacterError: 5, NoDataAllowedError: 6, NoModificationAllowedError: 7, NotFoundError: 8,
  NotSupportedError: 9, InUseAttributeError: 10, InvalidStateError: 11, SyntaxError: 12,
  InvalidModificationError: 13, NamespaceError: 14, InvalidAccessError: 15, ValidationError: 16,
  TypeMismatchError: 17, SecurityError: 18, NetworkError: 19, AbortError: 20, URLMismatchError: 21,
  QuotaExceededError: 22, TimeoutError: 23, InvalidNodeTypeError: 24, DataCloneError: 25,
};

const CONSTANTS = [
  "INDEX_SIZE_ERR", "DOMSTRING_SIZE_ERR", "HIERARCHY_REQUEST_ERR", "WRONG_DOCUMENT_ERR", "INVALID_CHARACTER_ERR",
  "NO_DATA_ALLOWED_ERR", "NO_MODIFICATION_ALLOWED_ERR", "NOT_FOUND_ERR", "NOT_SUPPORTED_ERR",
  "INUSE_ATTRIBUTE_ERR", "INVALID_STATE_ERR", "SYNTAX_ERR", "INVALID_MODIFICATION_ERR", "NAMESPACE_ERR",
  "INVALID_ACCESS_ERR", "VALIDATION_ERR", "TYPE_MISMATCH_ERR", "SECURITY_ERR", "NETWORK_ERR", "ABORT_ERR",
  "URL_MISMATCH_ERR", "QUOTA_EXCEEDED_ERR", "TIMEOUT_ERR", "INVALID_NODE_TYPE_ERR", "DATA_CLONE_ERR",
];

export class DOMException extends Error {
  constructor(message: unknown = "", options: unknown = "Error") {
    let name = options;
    if (typeof options === "object" && options !== null) {
      const given = options as { name?: unknown; cause?: unknown };
      super(String(message), "cause" in given ? { cause: given.cause } : undefined);
      name = given.name === undefined ? "Error" : given.name;
    } else {
      super(String(message));
    }
    const text = name === undefined ? "Error" : String(name);
    // The stack was made while the name was still that of the prototype.
    const stack = this.stack;
    if (typeof stack === "string" && stack.startsWith("Error")) {
      Object.defineProperty(this, "stack", { value: text + stack.slice(5), configurable: true, writable: true });
    }
    set_members(this, this.message, text);
  }

  declare readonly code: number;
}

// As on workerd, the members are the instance's own.
function set_members(error: Error, message: string, name: string): void {
  const stack = error.stack;
  delete (error as { message?: string }).message;
  delete error.stack;
  for (const [key, value] of [["code", CODES[name] ?? 0], ["name", name], ["message", message], ["stack", stack]]) {
    Object.defineProperty(error, key as string, {
      value, configurable: true, writable: key === "stack", enumerable: true,
    });
  }
}

// Turns an Error into a DOMException.
export function make_dom_exception_of(error: Error, message: string, name: string): void {
  Object.setPrototypeOf(error, DOMException.prototype);
  set_members(error, message, name);
}

for (let i = 0; i < CONSTANTS.length; i++) {
  const constant = { value: i + 1, enumerable: true };
  Object.defineProperty(DOMException, CONSTANTS[i]!, constant);
  Object.defineProperty(DOMException.prototype, CONSTANTS[i]!, constant);
}
set_tag(DOMException.prototype, "DOMException");
define_global("DOMException", DOMException);
