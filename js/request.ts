// Request.

import { AbortSignal, abort_signal, make_signal } from "./abort";
import {
  BodyHolder, body_is_used, clone_body, extract, extracted_type, has_body, move_body, set_body,
} from "./body";
import { Headers, block_has, headers_block, init_block, make_headers } from "./headers";
import { native } from "./host";
import { URL, url_href } from "./url";
import {
  INTERNAL, define_global, expose, unsupported, wrong_constructor_argument, wrong_field,
} from "./util";

const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE",
  "COPY", "LOCK", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH", "SEARCH", "UNLOCK", "ACL", "REPORT", "MKACTIVITY",
  "CHECKOUT", "MERGE", "MSEARCH", "NOTIFY", "SUBSCRIBE", "UNSUBSCRIBE", "PURGE"]);
const LOWERED = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]);

const REDIRECT_MODES = 'Invalid redirect value, must be one of "follow" or "manual" ("error" won\'t be implemented ' +
  "since it does not make sense at the edge; use \"manual\" and check the response status code).";

export interface RequestInit {
  method?: unknown;
  headers?: unknown;
  body?: unknown;
  redirect?: unknown;
  signal?: unknown;
  cf?: unknown;
  integrity?: unknown;
  cache?: unknown;
  fetcher?: unknown;
}

// The request of an event. `cf` is JSON or "".
export let make_request: (
  io: Io, method: string, url: string, headers: HeaderBlock, body: Body, cf: string) => Request;
export let request_block: (request: Request) => HeaderBlock;
export let request_url: (request: Request) => string;
export let request_method: (request: Request) => string;
export let request_redirect: (request: Request) => string;
// The signal if anybody can have aborted it.
export let request_signal: (request: Request) => AbortSignal | null;

// Signals of events whose client may still go away.
const client_signals = new Map<Io, AbortSignal>();

export function client_gone(io: Io): void {
  const signal = client_signals.get(io);
  if (signal === undefined) return;
  client_signals.delete(io);
  abort_signal(signal, undefined);
}

export function forget_client(io: Io): void {
  client_signals.delete(io);
}

export class Request extends BodyHolder {
  #method = "GET";
  #url = "";
  #block: HeaderBlock = ""; // while #headers is null
  #headers: Headers | null = null;
  #immutable = false;
  #redirect = "follow";
  #signal: AbortSignal | null = null;
  #io: Io = 0; // whose client the signal is about
  #cf: unknown = undefined;
  #cf_json = ""; // not parsed yet
  #cache: string | undefined = undefined;

  static {
    make_request = (io, method, url, headers, body, cf) => {
      const request = new Request(INTERNAL);
      request.#method = method;
      request.#url = url;
      request.#block = headers;
      request.#immutable = true;
      request.#redirect = "manual";
      request.#io = io;
      request.#cf_json = cf;
      if (body !== null) set_body(request, body);
      return request;
    };
    request_block = (request) => (request.#headers !== null ? headers_block(request.#headers) : request.#block);
    request_url = (request) => request.#url;
    request_method = (request) => request.#method;
    request_redirect = (request) => request.#redirect;
    request_signal = (request) => request.#signal;
  }

  constructor(input: unknown, init: unknown = undefined) {
    super();
    if (input === INTERNAL) return;
    if (arguments.length === 0) throw wrong_constructor_argument("Request", 1, "Request or string");
    if (init !== undefined && init !== null && typeof init !== "object") {
      throw wrong_constructor_argument("Request", 2, "RequestInitializerDict or Request");
    }
    const from = input instanceof Request ? input : null;
    if (from !== null) this.#copy(from);
    else {
      const text = typeof input === "string" ? input : input instanceof URL ? url_href(input) : String(input);
      const url = URL.parse(text);
      if (url === null) throw new TypeError(`Invalid URL: ${text}`);
      this.#url = url_href(url);
    }
    const own_body = init === undefined || init === null ? undefined : this.#apply(init as RequestInit);
    if (own_body !== undefined) {
      if (own_body === null) return;
      this.#allow_body();
      extract(this, own_body);
      if (extracted_type !== null && !block_has(this.#block, "content-type")) {
        this.#block += "content-type\n" + extracted_type + "\n";
      }
    } else if (from !== null && has_body(from)) {
      if (body_is_used(from)) throw new TypeError("Cannot reconstruct a Request with a used body.");
      this.#allow_body();
      move_body(from, this);
    }
  }

  #allow_body(): void {
    if (this.#method === "GET" || this.#method === "HEAD") {
      throw new TypeError("Request with a GET or HEAD method cannot have a body.");
    }
  }

  #copy(from: Request): void {
    this.#method = from.#method;
    this.#url = from.#url;
    this.#block = request_block(from);
    this.#redirect = from.#redirect;
    this.#signal = from.#io !== 0 ? from.signal : from.#signal;
    this.#cf = from.cf;
    this.#cache = from.#cache;
  }

  // Takes over the fields of an initializer; returns its body, undefined when it has none.
  #apply(init: RequestInit): unknown {
    if (init instanceof Request) {
      const url = this.#url;
      this.#copy(init);
      this.#url = url;
      if (!has_body(init)) return undefined;
      if (body_is_used(init)) {
        throw new TypeError(
          "This ReadableStream is disturbed (has already been read from), and cannot be used as a body.");
      }
      this.#allow_body();
      move_body(init, this);
      return null;
    }
    if (init.method !== undefined) {
      const given = String(init.method);
      let method = given;
      if (!METHODS.has(given)) {
        method = given.toUpperCase();
        if (!LOWERED.has(method)) throw new TypeError(`Invalid HTTP method string: ${given}`);
      }
      this.#method = method;
    }
    if (init.headers !== undefined) {
      const block = init_block(init.headers);
      if (block === undefined) throw wrong_field("headers", "RequestInitializerDict", "Headers or Sequence or object");
      this.#block = block;
    }
    if (init.redirect !== undefined) {
      if (init.redirect !== "follow" && init.redirect !== "manual") throw new TypeError(REDIRECT_MODES);
      this.#redirect = init.redirect;
    }
    if (init.signal !== undefined) {
      if (init.signal !== null && !(init.signal instanceof AbortSignal)) {
        throw wrong_field("signal", "RequestInitializerDict", "AbortSignal");
      }
      this.#signal = init.signal;
      this.#io = 0;
    }
    if (init.cf !== undefined && init.cf !== null) {
      if (typeof init.cf !== "object") throw wrong_field("cf", "RequestInitializerDict", "object");
      this.#cf = init.cf;
    }
    if (init.integrity !== undefined && init.integrity !== "") {
      throw new TypeError("Subrequest integrity checking is not implemented. The integrity option must be either " +
        "undefined or an empty string.");
    }
    if (init.cache !== undefined) {
      const cache = String(init.cache);
      if (cache !== "no-store" && cache !== "no-cache" && cache !== "reload" && cache !== "default") {
        throw new TypeError(`Unsupported cache mode: ${cache}`);
      }
      this.#cache = cache;
    }
    if (init.fetcher !== undefined && init.fetcher !== null) throw unsupported("The 'fetcher' option of Request");
    return init.body;
  }

  clone(): Request {
    if (body_is_used(this) && has_body(this)) {
      throw new TypeError("This ReadableStream is currently locked to a reader,");
    }
    const copy = new Request(INTERNAL);
    copy.#copy(this);
    copy.#immutable = this.#immutable;
    if (has_body(this)) clone_body(this, copy);
    return copy;
  }

  get method(): string {
    return this.#method;
  }
  get url(): string {
    return this.#url;
  }
  get headers(): Headers {
    return (this.#headers ??= make_headers(this.#block, this.#immutable));
  }
  get redirect(): string {
    return this.#redirect;
  }
  get fetcher(): null {
    void this.#method;
    return null;
  }
  get signal(): AbortSignal {
    let signal = this.#signal;
    if (signal === null) {
      signal = this.#signal = make_signal();
      if (this.#io !== 0 && native.currentIo() === this.#io) client_signals.set(this.#io, signal);
    }
    return signal;
  }
  get cf(): unknown {
    if (this.#cf_json !== "") {
      this.#cf = JSON.parse(this.#cf_json);
      this.#cf_json = "";
    }
    // A request of an event always has one, so that request.cf.country is harmless.
    if (this.#cf === undefined && this.#io !== 0) this.#cf = {};
    return this.#cf;
  }
  get integrity(): string {
    void this.#method;
    return "";
  }
  get keepalive(): boolean {
    void this.#method;
    return false;
  }
  get cache(): string | undefined {
    return this.#cache;
  }
}

expose(Request, "Request");
define_global("Request", Request);
