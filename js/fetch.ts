// fetch(): the global one and that of stubs.

import { AbortSignal, off_abort, on_abort } from "./abort";
import { body_is_used, is_replayable, take_native_body, has_body } from "./body";
import { Call, cancel_call, forget_call, start_call } from "./calls";
import { block_get, block_without } from "./headers";
import { native } from "./host";
import { Request, RequestInit, request_block, request_method, request_redirect, request_signal, request_url } from "./request";
import { Response, make_response } from "./response";
import { abort_pipe_with, set_abort_hooks } from "./streams";
import { URL, url_href } from "./url";
import { define_global, require_event, wrong_argument } from "./util";

set_abort_hooks(on_abort, off_abort);

const REDIRECTS_MAX = 20;
const NO_BODY_STATUS = new Set([101, 204, 205, 304]);

export type FetchInput = Request | string | URL;

// The request that fetch(input, init) means. An untouched Request is used as it is.
export function fetch_request(input: unknown, init: unknown): Request {
  if (init === undefined && input instanceof Request) {
    if (body_is_used(input)) throw new TypeError("Cannot reconstruct a Request with a used body.");
    return input;
  }
  return new Request(input, init as RequestInit);
}

export function without_fragment(url: string): string {
  const hash = url.indexOf("#");
  return hash < 0 ? url : url.slice(0, hash);
}

// A URL as it goes over the wire: without fragment and credentials.
export function wire_url(url: string): string {
  url = without_fragment(url);
  if (!url.includes("@")) return url;
  const parsed = new URL(url);
  parsed.username = "";
  parsed.password = "";
  return url_href(parsed);
}

export function check_scheme(url: string): void {
  if (!url.startsWith("http:") && !url.startsWith("https:")) throw new TypeError(`Fetch API cannot load: ${url}`);
}

// A call that ends in a response: what both kinds of fetch share.
export abstract class ResponseCall extends Call {
  protected readonly resolve: (response: Response) => void;
  protected readonly reject: (reason: unknown) => void;
  protected signal: AbortSignal | null;
  protected id: CallId = 0;
  #abort: (() => void) | null = null;

  constructor(
    resolve: (response: Response) => void, reject: (reason: unknown) => void, signal: AbortSignal | null) {
    super();
    this.resolve = resolve;
    this.reject = reject;
    this.signal = signal;
  }

  // Registers the call and starts it through `send`.
  protected begin(): void {
    this.id = start_call(this);
    const signal = this.signal;
    if (signal !== null && this.#abort === null) {
      this.#abort = () => {
        cancel_call(this.id);
        this.reject(signal.reason);
      };
      on_abort(signal, this.#abort);
    }
    try {
      this.send(this.id);
    } catch (error) {
      forget_call(this.id);
      this.finished();
      this.reject(error);
    }
  }

  protected finished(): void {
    if (this.#abort !== null) off_abort(this.signal!, this.#abort);
  }
  // The head has come; the body goes on listening to the signal.
  protected answered(body: Body): void {
    this.finished();
    if (this.signal !== null && typeof body === "number") abort_pipe_with(body, this.signal);
  }

  abstract send(id: CallId): void;

  value(): void {
    this.finished();
    this.reject(new Error("internal error: a value where a response head was due"));
  }
  error(reason: unknown): void {
    this.finished();
    this.reject(reason);
  }
}

class FetchCall extends ResponseCall {
  #method: string;
  #url: string;
  #headers: HeaderBlock;
  #body: Body;
  #follow: boolean;
  #replay: boolean;
  readonly #visited: string[] = []; // what redirected

  constructor(
    request: Request, resolve: (response: Response) => void, reject: (reason: unknown) => void) {
    super(resolve, reject, request_signal(request));
    this.#method = request_method(request);
    this.#url = without_fragment(request_url(request));
    this.#headers = request_block(request);
    this.#follow = request_redirect(request) === "follow";
    this.#replay = is_replayable(request);
    this.#body = has_body(request) ? take_native_body(request, native.currentIo()) : null;
    this.begin();
  }

  send(id: CallId): void {
    native.fetch(id, this.#method, wire_url(this.#url), this.#headers, this.#body);
  }

  head(status: number, status_text: string, headers: HeaderBlock, body: Body): void {
    if (this.#follow && (status === 301 || status === 302 || status === 303 || status === 307 || status === 308)) {
      const location = block_get(headers, "location");
      if (location !== null) {
        try {
          this.#redirect(status, location, body);
        } catch (error) {
          this.error(error);
        }
        return;
      }
    }
    this.answered(body);
    if (NO_BODY_STATUS.has(status) && typeof body !== "number") body = null;
    this.resolve(make_response(status, status_text, headers, body, this.#url, this.#visited.length > 0));
  }

  #redirect(status: number, location: string, body: Body): void {
    if (typeof body === "number") native.pipeCancel(body);
    this.#visited.push(this.#url);
    if (this.#visited.length > REDIRECTS_MAX) throw new TypeError(`Too many redirects.${this.#visited.join(", ")}`);
    const target = URL.parse(location, this.#url);
    if (target === null || (target.protocol !== "http:" && target.protocol !== "https:")) {
      throw new TypeError(`Invalid Location header; unable to follow redirect.`);
    }
    const before = new URL(this.#url);
    if (status === 303 ? this.#method !== "GET" && this.#method !== "HEAD"
      : (status === 301 || status === 302) && this.#method === "POST") {
      this.#method = "GET";
      this.#body = null;
      this.#replay = true;
      this.#headers = block_without(this.#headers, ["content-length"]);
    }
    if (this.#body !== null && !this.#replay) {
      throw new TypeError("A request with a one-time-use body (it was initialized from a stream, not a buffer) " +
        "encountered a redirect requiring the body to be retransmitted. To avoid this error in the future, construct " +
        "this request from a buffer-like body initializer.");
    }
    if (target.origin !== before.origin) this.#headers = block_without(this.#headers, ["authorization"]);
    this.#url = url_href(target);
    this.begin();
  }
}

export function fetch(input: unknown, init: unknown = undefined): Promise<Response> {
  try {
    if (arguments.length === 0) throw wrong_argument("fetch", "ServiceWorkerGlobalScope", 1, "Request or string");
    require_event();
    const request = fetch_request(input, init);
    check_scheme(request_url(request));
    if (request_method(request) === "CONNECT") throw new TypeError("Invalid HTTP method string: CONNECT");
    const signal = request_signal(request);
    if (signal !== null && signal.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      new FetchCall(request, resolve, reject);
    });
  } catch (error) {
    return Promise.reject(error);
  }
}

Object.defineProperty(fetch, "length", { value: 1, configurable: true });
define_global("fetch", fetch);
