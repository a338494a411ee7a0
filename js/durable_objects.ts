// The caller's side of Durable Objects: namespaces, ids, stubs, RPC.

import { Call, forget_call, start_call } from "./calls";
import { refuse_over_rpc, refuse_to_clone } from "./clone_check";
import { deserialize_from_rpc, serialize_for_rpc } from "./error_wire";
import { ResponseCall, check_scheme, fetch_request, wire_url } from "./fetch";
import { config } from "./config";
import { block_has } from "./headers";
import { native } from "./host";
import {
  Request, request_block, request_method, request_signal, request_url,
} from "./request";
import { Response, make_response } from "./response";
import { has_body, take_native_body } from "./body";
import { INTERNAL, define_global, expose, noop, own_value, require_event, set_own, set_tag, unsupported, wrong_argument } from "./util";

const SURROGATE = /[\ud800-\udfff]/;
const NAMES_MAX = 2048; // ids kept per namespace

export let make_id: (ns: number, hex: string, name: string | undefined) => DurableObjectId;

let id_namespace: (id: DurableObjectId) => number;
let id_hex: (id: DurableObjectId) => string;

export class DurableObjectId {
  readonly jurisdiction: undefined = undefined;
  readonly name: string | undefined;
  #ns: number;
  #hex: string;

  static {
    make_id = (ns, hex, name) => new DurableObjectId(INTERNAL, ns, hex, name);
    id_namespace = (id) => id.#ns;
    id_hex = (id) => id.#hex;
  }

  constructor(token: unknown, ns: number, hex: string, name: string | undefined) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.name = name;
    this.#ns = ns;
    this.#hex = hex;
  }

  toString(): string {
    return this.#hex;
  }

  equals(other: unknown): boolean {
    if (!(other instanceof DurableObjectId)) throw wrong_argument("equals", "DurableObjectId", 1, "DurableObjectId");
    return this.#hex === other.#hex;
  }
}

export let make_namespace: (ns: number) => DurableObjectNamespace;

const NO_JURISDICTION = "Jurisdiction restrictions are not supported by celld yet.";

export class DurableObjectNamespace {
  #ns: number;
  #ids = new Map<string, DurableObjectId>();

  static {
    make_namespace = (ns) => new DurableObjectNamespace(INTERNAL, ns);
  }

  constructor(token: unknown, ns: number) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.#ns = ns;
  }

  newUniqueId(options: { jurisdiction?: unknown } | undefined = undefined): DurableObjectId {
    if (options?.jurisdiction !== undefined && options.jurisdiction !== null) throw new Error(NO_JURISDICTION);
    return make_id(this.#ns, native.idUnique(this.#ns), undefined);
  }

  idFromName(name: string): DurableObjectId {
    if (typeof name !== "string") {
      if (arguments.length === 0) throw wrong_argument("idFromName", "DurableObjectNamespace", 1, "string");
      name = String(name);
    }
    // As a USVString: the id is made from its UTF-8 form.
    if (SURROGATE.test(name)) name = (name as unknown as { toWellFormed(): string }).toWellFormed();
    const known = this.#ids.get(name);
    if (known !== undefined) return known;
    const id = make_id(this.#ns, native.idFromName(this.#ns, name), name);
    if (this.#ids.size >= NAMES_MAX) this.#ids.clear();
    this.#ids.set(name, id);
    return id;
  }

  idFromString(text: string): DurableObjectId {
    if (arguments.length === 0) throw wrong_argument("idFromString", "DurableObjectNamespace", 1, "string");
    const hex = String(text).toLowerCase();
    if (!/^[0-9a-f]{64}$/.test(hex)) throw new TypeError("Invalid Durable Object ID: must be 64 hex digits");
    if (!native.idValid(this.#ns, hex)) throw new TypeError("Durable Object ID is not valid for this namespace.");
    return make_id(this.#ns, hex, undefined);
  }

  get(id: DurableObjectId, options: { locationHint?: unknown } | undefined = undefined): DurableObject {
    if (!(id instanceof DurableObjectId)) throw wrong_argument("get", "DurableObjectNamespace", 1, "DurableObjectId");
    require_event();
    void options; // where a cell lives is celld's affair
    if (id_namespace(id) !== this.#ns) throw new TypeError("Durable Object ID is not valid for this namespace.");
    return make_stub(this.#ns, id);
  }

  getByName(name: string, options: { locationHint?: unknown } | undefined = undefined): DurableObject {
    if (arguments.length === 0) throw wrong_argument("getByName", "DurableObjectNamespace", 1, "string");
    return this.get(this.idFromName(name), options);
  }

  jurisdiction(_name: unknown = undefined): DurableObjectNamespace {
    throw new Error(NO_JURISDICTION);
  }
}

class StubFetch extends ResponseCall {
  #ns: number;
  #object: DurableObjectId;
  #request: Request;

  constructor(
    ns: number, object: DurableObjectId, request: Request,
    resolve: (response: Response) => void, reject: (reason: unknown) => void) {
    super(resolve, reject, request_signal(request));
    this.#ns = ns;
    this.#object = object;
    this.#request = request;
    this.begin();
  }

  send(id: CallId): void {
    const request = this.#request;
    const body = has_body(request) ? take_native_body(request, native.currentIo()) : null;
    let headers = request_block(request);
    if (body !== null && typeof body !== "number" && !block_has(headers, "content-length")) {
      headers += `content-length\n${byte_length(body)}\n`;
    }
    native.stubFetch(id, this.#ns, id_hex(this.#object), this.#object.name, request_method(request),
      wire_url(request_url(request)), headers, body);
  }

  head(status: number, status_text: string, headers: HeaderBlock, body: Body): void {
    this.answered(body);
    this.resolve(make_response(status, status_text, headers, body, request_url(this.#request), false));
  }

  override error(reason: unknown): void {
    super.error(remote(reason));
  }
}

const NOT_ASCII = /[^\x00-\x7f]/;

function byte_length(body: string | Uint8Array): number {
  return typeof body === "string" && NOT_ASCII.test(body) ? native.utf8Encode(body).length : body.length;
}

class RpcCall extends Call {
  #resolve: (value: unknown) => void;
  #reject: (reason: unknown) => void;

  constructor(resolve: (value: unknown) => void, reject: (reason: unknown) => void) {
    super();
    this.#resolve = resolve;
    this.#reject = reject;
  }
  head(): void {
    this.#reject(new Error("internal error: a response head where a value was due"));
  }
  value(value: unknown): void {
    if (value === null || value === undefined || (value as Uint8Array).byteLength === 0) {
      this.#resolve(undefined);
      return;
    }
    try {
      const result = deserialize_from_rpc(value as Uint8Array);
      if (typeof result === "object" && result !== null) mark_disposable(result);
      this.#resolve(result);
    } catch (error) {
      this.#reject(error);
    }
  }
  error(reason: unknown): void {
    this.#reject(remote(reason));
  }
}

// An error that the object's code threw; those of the host itself say what they are.
function remote(reason: unknown): unknown {
  const error = reason as object;
  const from_host = own_value(error, "durableObjectReset") === true || own_value(error, "overloaded") === true ||
    own_value(error, "retryable") === true;
  if (!from_host) set_own(error, "remote", true);
  return error;
}

const dispose: symbol = (Symbol as unknown as { dispose: symbol }).dispose;

function mark_disposable(result: object): void {
  if (!Array.isArray(result) && Object.getPrototypeOf(result) !== Object.prototype) return;
  Object.defineProperty(result, dispose, { value: noop, configurable: true, writable: true, enumerable: false });
}

const NO_ARGUMENTS: unknown[] = [];
const READ_PROPERTY = new Uint8Array(0);

function rpc(ns: number, id: DurableObjectId, method: string, args: unknown[] | null): Promise<unknown> {
  const promise = new Promise((resolve, reject) => {
    let bytes: Uint8Array = READ_PROPERTY;
    if (args !== null) {
      for (const arg of args) {
        if (typeof arg === "function") throw unsupported("A function as an argument of an RPC call");
      }
      bytes = serialize_for_rpc(args.length === 0 ? NO_ARGUMENTS : args);
    }
    const call = start_call(new RpcCall(resolve, reject));
    try {
      native.stubRpc(call, ns, id_hex(id), id.name, method, bytes);
    } catch (error) {
      forget_call(call);
      reject(error);
    }
  });
  Object.setPrototypeOf(promise, rpc_promise_prototype);
  return promise;
}

// The result of a call: a promise whose unknown members stand for those of the result to come.
const rpc_promise_prototype = Object.create(new Proxy(Promise.prototype, {
  get(target, key, receiver) {
    if (typeof key === "symbol" || key in target) return Reflect.get(target, key, receiver);
    return pipelined(receiver as Promise<unknown>, key);
  },
}), {
  // Keeps `await` as quick as for any promise.
  constructor: { value: Promise, writable: true, configurable: true },
  [Symbol.toStringTag]: { value: "RpcPromise", configurable: true },
  [dispose]: { value: noop, configurable: true },
});

function pipelined(promise: Promise<unknown>, key: string): unknown {
  const member = (...args: unknown[]) => promise.then((value) => {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) {
      const missing = new TypeError(`The RPC receiver does not implement the method "${key}".`);
      throw Object.assign(missing, { remote: true });
    }
    const found = (value as Record<string, unknown>)[key];
    if (args[0] === INTERNAL) return found;
    if (typeof found !== "function") throw Object.assign(new TypeError(`"${key}" is not a function.`), { remote: true });
    return found(...args) as unknown;
  });
  return Object.setPrototypeOf(member, rpc_property_prototype);
}

// A member of a stub: call it, or await it to read a property.
const rpc_property_prototype = Object.create(new Proxy(Function.prototype, {
  get(target, key, receiver) {
    if (typeof key === "symbol" || key in target) return Reflect.get(target, key, receiver);
    return pipelined(receiver(INTERNAL) as Promise<unknown>, key);
  },
}), {
  then: { value: function then(this: any, done: any, failed: any) { return this(INTERNAL).then(done, failed); }, configurable: true },
  catch: { value: function (this: any, failed: any) { return this(INTERNAL).catch(failed); }, configurable: true },
  finally: { value: function (this: any, done: any) { return this(INTERNAL).finally(done); }, configurable: true },
  [Symbol.toStringTag]: { value: "RpcProperty", configurable: true },
});

function rpc_member(ns: number, id: DurableObjectId, name: string): unknown {
  const member = (...args: unknown[]) => rpc(ns, id, name, args.length > 0 && args[0] === INTERNAL ? null : args);
  return Object.setPrototypeOf(member, rpc_property_prototype);
}

export let make_stub: (ns: number, id: DurableObjectId) => DurableObject;
let stub_member: (stub: object, name: string) => unknown;

// The stub. Names that it does not have itself are found on the proxy behind its prototype, so that
// `fetch` is an ordinary method.
class DurableObject {
  readonly name: string | undefined;
  readonly id: DurableObjectId;
  #ns: number;

  static {
    make_stub = (ns, id) => new DurableObject(INTERNAL, ns, id);
    stub_member = (stub, name) => {
      if (!(#ns in stub)) return undefined;
      return rpc_member(stub.#ns, (stub as DurableObject).id, name);
    };
  }

  constructor(token: unknown, ns: number, id: DurableObjectId) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.name = id.name;
    this.id = id;
    this.#ns = ns;
  }

  fetch(input: unknown, init: unknown = undefined): Promise<Response> {
    try {
      if (arguments.length === 0) throw wrong_argument("fetch", "Fetcher", 1, "Request or string");
      const request = fetch_request(input, init);
      check_scheme(request_url(request));
      const signal = request_signal(request);
      if (signal !== null && signal.aborted) return Promise.reject(signal.reason);
      const ns = this.#ns;
      return new Promise((resolve, reject) => {
        new StubFetch(ns, this.id, request, resolve, reject);
      });
    } catch (error) {
      return Promise.reject(error);
    }
  }
}

Object.setPrototypeOf(DurableObject.prototype, new Proxy(Object.prototype, {
  get(target, key, receiver) {
    if (typeof key === "symbol" || key in target) return Reflect.get(target, key, receiver);
    if (key === "then" || !config.rpc) return undefined;
    return stub_member(receiver, key);
  },
  has(target, key) {
    return typeof key === "string" ? key in target || (key !== "then" && config.rpc) : key in target;
  },
}));
Object.defineProperty(DurableObject.prototype, dispose, { value: noop, configurable: true, writable: true });

expose(DurableObjectId, "DurableObjectId");
expose(DurableObjectNamespace, "DurableObjectNamespace");
set_tag(DurableObject.prototype, "DurableObject");
refuse_to_clone(DurableObjectId);
refuse_to_clone(DurableObjectNamespace);
refuse_to_clone(DurableObject);
refuse_over_rpc(DurableObject, "A Durable Object stub");
define_global("DurableObjectId", DurableObjectId);
define_global("DurableObjectNamespace", DurableObjectNamespace);
