// Response.

import {
  BodyHolder, body_is_used, clone_body, extract, extracted_type, has_body, set_body, set_stream, take_native_body,
} from "./body";
import { Headers, block_has, headers_block, init_block, make_headers } from "./headers";
import { native } from "./host";
import type { ReadableStream } from "./streams";
import { URL, url_href } from "./url";
import {
  INTERNAL, define_global, expose, unsupported, wrong_argument, wrong_constructor_argument, wrong_field,
} from "./util";

const TEXT_BLOCK = "content-type\ntext/plain;charset=UTF-8\n";
const STATUS_TEXT = /^[\t\x20-\x7e\x80-\uffff]*$/;

export interface ResponseInit {
  status?: unknown;
  statusText?: unknown;
  headers?: unknown;
  cf?: unknown;
  webSocket?: unknown;
  encodeBody?: unknown;
}

// A response that came from outside.
export let make_response: (
  status: number, status_text: string, headers: HeaderBlock, body: Body, url: string, redirected: boolean) => Response;
// Answers an event with it.
export let send_response: (io: Io, response: Response) => void;
export let response_stream_guard: (response: Response, guard: (body: Body) => ReadableStream) => void;

export class Response extends BodyHolder {
  #status = 200;
  #status_text = "";
  #block: HeaderBlock = ""; // while #headers is null
  #headers: Headers | null = null;
  #immutable = false;
  #url = "";
  #redirected = false;
  #type = "default";
  #cf: unknown = undefined;

  static {
    make_response = (status, status_text, headers, body, url, redirected) => {
      const response = new Response(INTERNAL);
      response.#status = status;
      response.#status_text = status_text;
      response.#block = headers;
      response.#immutable = true;
      response.#url = url;
      response.#redirected = redirected;
      if (body !== null) set_body(response, body);
      return response;
    };
    send_response = (io, response) => {
      const headers = response.#headers;
      native.respond(io, response.#status, response.#status_text,
        headers !== null ? headers_block(headers) : response.#block, take_native_body(response, io));
    };
    response_stream_guard = (response, guard) => {
      const body = take_native_body(response, 0);
      set_stream(response, guard(body));
    };
  }

  constructor(body: unknown = undefined, init: unknown = undefined) {
    super();
    if (body === INTERNAL) return;
    if (init === undefined) {
      if (typeof body === "string") {
        set_body(this, body);
        this.#block = TEXT_BLOCK;
        return;
      }
    } else if (init !== null) {
      if (typeof init !== "object") throw wrong_constructor_argument("Response", 2, "InitializerDict or Response");
      this.#apply(init as ResponseInit);
    }
    if (body === null || body === undefined) return;
    const status = this.#status;
    if (status === 204 || status === 205 || status === 304) {
      if (body === "") return;
      throw new TypeError("Response with null body status (101, 204, 205, or 304) cannot have a body.");
    }
    extract(this, body);
    if (extracted_type !== null && !block_has(this.#block, "content-type")) {
      this.#block += "content-type\n" + extracted_type + "\n";
    }
  }

  #apply(init: ResponseInit): void {
    if (init instanceof Response) {
      this.#status = init.#status;
      this.#status_text = init.#status_text;
      this.#block = init.#headers !== null ? headers_block(init.#headers) : init.#block;
      this.#cf = init.#cf;
      return;
    }
    if (init.status !== undefined) {
      const status = typeof init.status === "number" ? Math.trunc(init.status) : Math.trunc(Number(init.status));
      if (!(status >= 200 && status <= 599)) {
        throw new RangeError("Responses may only be constructed with status codes in the range 200 to 599, inclusive.");
      }
      this.#status = status;
    }
    if (init.statusText !== undefined) {
      const text = String(init.statusText);
      if (!STATUS_TEXT.test(text)) throw new TypeError("Invalid statusText");
      this.#status_text = text;
    }
    if (init.headers !== undefined) {
      const block = init_block(init.headers);
      if (block === undefined) throw wrong_field("headers", "InitializerDict", "Headers or Sequence or object");
      this.#block = block;
    }
    if (init.cf !== undefined && init.cf !== null) this.#cf = init.cf;
    if (init.webSocket !== undefined && init.webSocket !== null) throw unsupported("The 'webSocket' option of Response");
    if (init.encodeBody !== undefined) {
      if (init.encodeBody === "manual") throw unsupported("The 'encodeBody' option of Response");
      if (init.encodeBody !== "automatic") throw new TypeError(`encodeBody: unexpected value: ${String(init.encodeBody)}`);
    }
  }

  clone(): Response {
    if (body_is_used(this) && has_body(this)) {
      throw new TypeError("This ReadableStream is currently locked to a reader,");
    }
    const copy = new Response(INTERNAL);
    copy.#apply(this);
    copy.#immutable = this.#immutable;
    copy.#url = this.#url;
    copy.#redirected = this.#redirected;
    copy.#type = this.#type;
    if (has_body(this)) clone_body(this, copy);
    return copy;
  }

  get status(): number {
    return this.#status;
  }
  get statusText(): string {
    return this.#status_text;
  }
  get headers(): Headers {
    return (this.#headers ??= make_headers(this.#block, this.#immutable));
  }
  get ok(): boolean {
    return this.#status >= 200 && this.#status < 300;
  }
  get redirected(): boolean {
    return this.#redirected;
  }
  get url(): string {
    return this.#url;
  }
  get webSocket(): null {
    void this.#status;
    return null;
  }
  get cf(): unknown {
    return this.#cf;
  }
  get type(): string {
    return this.#type;
  }

  static error(): Response {
    const response = new Response(INTERNAL);
    response.#type = "error";
    response.#status = 0;
    response.#immutable = true;
    return response;
  }

  static redirect(url: unknown, status: unknown = 302): Response {
    if (arguments.length === 0) throw wrong_argument("redirect", "Response", 1, "string");
    const code = Number(status);
    if (code !== 301 && code !== 302 && code !== 303 && code !== 307 && code !== 308) {
      throw new RangeError(`${String(status)} is not a redirect status code. It must be one of: 301, 302, 303, 307, or 308.`);
    }
    const parsed = URL.parse(url);
    if (parsed === null) throw new TypeError(`Unable to parse URL: ${String(url)}`);
    const response = new Response(INTERNAL);
    response.#status = code;
    response.#block = "location\n" + url_href(parsed) + "\n";
    response.#immutable = true;
    return response;
  }

  static json(value: unknown, init: unknown = undefined): Response {
    if (arguments.length === 0) throw wrong_argument("json", "Response", 1, "Value");
    const text = JSON.stringify(value);
    const response = new Response(INTERNAL);
    if (init !== undefined && init !== null) {
      if (typeof init !== "object") throw wrong_argument("json", "Response", 2, "InitializerDict or Response");
      response.#apply(init as ResponseInit);
    }
    if (!block_has(response.#block, "content-type")) response.#block += "content-type\napplication/json\n";
    // Without a JSON form there is nothing to say.
    set_body(response, text === undefined ? "undefined" : text);
    return response;
  }
}

expose(Response, "Response");
for (const name of ["error", "redirect", "json"]) {
  Object.defineProperty(Response, name, {
    value: (Response as any)[name], writable: true, enumerable: true, configurable: true,
  });
}
define_global("Response", Response);
