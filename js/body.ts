// What Request and Response share: a body, which stays the host's (text, bytes or a pipe) until
// user code asks for the stream, and is handed on as it is when nobody looked inside.

import { Blob, blob_bytes, make_blob } from "./blob";
import { utf8_bytes, utf8_text } from "./encoding";
import { FormData, decode_form, encode_multipart } from "./formdata";
import { native } from "./host";
import {
  ReadableStream, body_stream, is_disturbed, peek_body, pipe_bytes, stream_bytes, stream_pipe, take_body,
} from "./streams";
import { URLSearchParams, well_formed } from "./url_search_params";
import { expose, view_bytes } from "./util";

export const BODY_USED = "Body has already been used. It can only be used once. Use tee() first if you need to read it twice.";
const LOCKED = "This ReadableStream is currently locked to a reader.";

export const TEXT_TYPE = "text/plain;charset=UTF-8";

// Set by extract(): the content type that the body brings along, or null.
export let extracted_type: string | null = null;

export let set_body: (target: BodyHolder, body: Body) => void;
export let set_stream: (target: BodyHolder, stream: ReadableStream) => void;
// The body as the host takes it, taken out of the message. `io` stays alive while a stream of user code runs.
export let take_native_body: (target: BodyHolder, io: Io) => Body;
export let has_body: (target: BodyHolder) => boolean;
// Whether the body can be sent a second time, for redirects.
export let is_replayable: (target: BodyHolder) => boolean;
export let body_is_used: (target: BodyHolder) => boolean;
// Gives `target` a second reader of the body of `source`.
export let clone_body: (source: BodyHolder, target: BodyHolder) => void;
// Moves the body of `source` to `target`.
export let move_body: (source: BodyHolder, target: BodyHolder) => void;

export abstract class BodyHolder {
  #body: Body = null;
  #stream: ReadableStream | null = null;
  #used = false;

  static {
    set_body = (target, body) => {
      target.#body = body;
      if (typeof body === "number") native.pipeOwn(body, target);
    };
    set_stream = (target, stream) => {
      target.#stream = stream;
    };
    has_body = (target) => target.#body !== null || target.#stream !== null;
    is_replayable = (target) => target.#stream === null && typeof target.#body !== "number";
    body_is_used = (target) => target.#is_used();
    take_native_body = (target, io) => {
      const stream = target.#stream;
      if (target.#used) throw new TypeError(BODY_USED);
      if (stream === null) {
        if (target.#body !== null) target.#used = true;
        return target.#body;
      }
      target.#check_stream(stream);
      target.#used = true;
      const body = take_body(stream);
      return body !== null ? body : stream_pipe(stream, io);
    };
    clone_body = (source, target) => {
      const stream = source.#stream;
      if (stream !== null ? stream.locked : source.#used) {
        throw new TypeError("This ReadableStream is currently locked to a reader,");
      }
      if (source.#used || (stream !== null && is_disturbed(stream))) throw new TypeError(BODY_USED);
      let body = source.#body;
      if (stream !== null) {
        const inside = peek_body(stream);
        if (inside === null) {
          const [first, second] = stream.tee();
          source.#stream = first as ReadableStream;
          target.#stream = second as ReadableStream;
          return;
        }
        body = take_body(stream);
        source.#stream = null;
        source.#body = body;
      }
      if (typeof body === "number") {
        const [first, second] = native.pipeTee(body);
        set_body(source, first);
        set_body(target, second);
      } else {
        target.#body = body instanceof Uint8Array ? body.slice() : body;
      }
    };
    move_body = (source, target) => {
      set_body(target, source.#body);
      target.#stream = source.#stream;
      if (source.#body === null && source.#stream === null) return;
      source.#used = true;
      if (source.#stream !== null) {
        const body = take_body(source.#stream);
        if (body !== null) {
          set_body(target, body);
          target.#stream = null;
        }
      }
    };
  }

  get body(): ReadableStream | null {
    const stream = this.#stream;
    if (stream !== null) return stream;
    const body = this.#body;
    if (body === null) return null;
    const made = body_stream(body);
    if (this.#used) {
      // What was read is gone: the stream shows that it was.
      take_body(made);
    }
    return (this.#stream = made);
  }

  get bodyUsed(): boolean {
    return this.#is_used();
  }

  #is_used(): boolean {
    return this.#used || (this.#stream !== null && is_disturbed(this.#stream));
  }

  #check_stream(stream: ReadableStream): void {
    if (is_disturbed(stream)) throw new TypeError(BODY_USED);
    if (stream.locked) throw new TypeError(LOCKED);
  }

  // The body for a read by this object: text or bytes at once, or a promise of bytes.
  #consume(): string | Uint8Array | Promise<Uint8Array> {
    if (this.#used) throw new TypeError(BODY_USED);
    const stream = this.#stream;
    let body = this.#body;
    if (stream !== null) {
      this.#check_stream(stream);
      body = take_body(stream);
      this.#used = true;
      if (body === null) return stream_bytes(stream);
    } else {
      if (body === null) return "";
      this.#used = true;
    }
    return typeof body === "number" ? pipe_bytes(body) : body!;
  }

  arrayBuffer(): Promise<ArrayBuffer> {
    try {
      const body = this.#consume();
      return body instanceof Promise ? body.then(own_buffer) : Promise.resolve(own_buffer(body));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  bytes(): Promise<Uint8Array> {
    try {
      const body = this.#consume();
      return body instanceof Promise ? body.then(own_bytes) : Promise.resolve(own_bytes(body));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  text(): Promise<string> {
    try {
      const body = this.#consume();
      if (typeof body === "string") return Promise.resolve(decoded(body));
      return body instanceof Promise ? body.then(utf8_text) : Promise.resolve(utf8_text(body));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  json(): Promise<any> {
    try {
      const body = this.#consume();
      if (body instanceof Promise) return body.then(parse_json);
      return Promise.resolve(parse_json(body));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async formData(): Promise<FormData> {
    const type = content_type(this);
    const body = this.#consume();
    return decode_form(as_bytes(body instanceof Promise ? await body : body), type);
  }

  async blob(): Promise<Blob> {
    const type = content_type(this);
    const body = this.#consume();
    return make_blob(own_bytes(body instanceof Promise ? await body : body), type === null ? "" : type.toLowerCase());
  }
}

function content_type(message: BodyHolder): string | null {
  return (message as unknown as { headers: { get(name: string): string | null } }).headers.get("content-type");
}

// What decoding the encoded text would give.
function decoded(text: string): string {
  return well_formed(text.charCodeAt(0) === 0xfeff ? text.slice(1) : text);
}

function as_bytes(body: string | Uint8Array): Uint8Array {
  return typeof body === "string" ? utf8_bytes(body) : body;
}

// Bytes that nobody else holds, in a buffer of just their size.
function own_bytes(body: string | Uint8Array): Uint8Array {
  const bytes = as_bytes(body);
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : bytes.slice();
}

function own_buffer(body: string | Uint8Array): ArrayBuffer {
  return own_bytes(body).buffer as ArrayBuffer;
}

function parse_json(body: string | Uint8Array): unknown {
  return JSON.parse(typeof body === "string" ? decoded(body) : utf8_text(body));
}

// Sets the body of a new message from a BodyInit; leaves its content type in `extracted_type`.
export function extract(target: BodyHolder, init: unknown): void {
  extracted_type = null;
  if (typeof init === "string") {
    extracted_type = TEXT_TYPE;
    set_body(target, init);
  } else if (init instanceof base_stream) {
    const stream = init as ReadableStream;
    if (is_disturbed(stream)) {
      throw new TypeError("This ReadableStream is disturbed (has already been read from), and cannot be used as a body.");
    }
    if (stream.locked) {
      throw new TypeError("This ReadableStream is locked to a reader, and cannot be used as a body.");
    }
    set_stream(target, stream);
  } else {
    extract_object(target, init);
  }
}

const base_stream = ReadableStream;

function extract_object(target: BodyHolder, init: unknown): void {
  const view = view_bytes(init);
  if (view !== undefined) {
    set_body(target, view.slice());
  } else if (init instanceof URLSearchParams) {
    extracted_type = "application/x-www-form-urlencoded;charset=UTF-8";
    set_body(target, init.toString());
  } else if (init instanceof Blob) {
    if (init.type !== "") extracted_type = init.type;
    set_body(target, blob_bytes(init).slice());
  } else if (init instanceof FormData) {
    const [body, boundary] = encode_multipart(init);
    extracted_type = "multipart/form-data; boundary=" + boundary;
    set_body(target, body);
  } else if (typeof init === "object" && init !== null && Symbol.asyncIterator in init) {
    set_stream(target, (ReadableStream as any).from(init));
  } else {
    extracted_type = TEXT_TYPE;
    set_body(target, String(init));
  }
}

expose(BodyHolder, "Body");
