// Web Streams (web-streams-polyfill), what Workers add to them, and streams over the host's bytes.

import * as base from "web-streams-polyfill";
import type { AbortSignal } from "./abort";
import { ValueCall, forget_call, start_call } from "./calls";
import { utf8_bytes } from "./encoding";
import { native } from "./host";
import { Owned } from "./owners";
import { define_global, expose, set_tag, view_bytes, wrong_constructor_argument } from "./util";

// What workerd had before read() took a minimum.
Object.defineProperty(base.ReadableStreamBYOBReader.prototype, "readAtLeast", {
  value: function readAtLeast(this: any, min: number, view: ArrayBufferView): Promise<unknown> {
    return this.read(view, { min });
  },
  writable: true, configurable: true, enumerable: true,
});

export type ReadableStream = base.ReadableStream<any>;
export const ReadableStream = base.ReadableStream;
export const WritableStream = base.WritableStream;
export const TransformStream = base.TransformStream;

// What the polyfill keeps on a stream.
interface StreamState {
  _state: "readable" | "closed" | "errored";
  _reader: unknown;
  _disturbed: boolean;
}

// abort.ts, which is made of events, hands these over instead of being imported.
let on_abort: (signal: AbortSignal, action: () => void) => void;
let off_abort: (signal: AbortSignal, action: () => void) => void;
export function set_abort_hooks(on: typeof on_abort, off: typeof off_abort): void {
  on_abort = on;
  off_abort = off;
}

export function is_disturbed(stream: ReadableStream): boolean {
  return (stream as unknown as StreamState)._disturbed;
}

// The bytes behind a stream that the runtime made, kept in a private field of the stream itself.
const Adopt = function (object: object): object {
  return object;
} as unknown as new (object: object) => object;
class Source extends Adopt {
  #body: Exclude<Body, null>;
  #length: number;

  private constructor(stream: object, body: Exclude<Body, null>, length: number) {
    super(stream);
    this.#body = body;
    this.#length = length;
  }

  static mark_body(stream: object, body: Exclude<Body, null>): void {
    new Source(stream, body, -1);
  }
  // A stream that user code writes, which will bring so many bytes.
  static mark_length(stream: object, length: number): void {
    new Source(stream, "", length);
  }
  static body_of(stream: object): Body {
    return #body in stream && stream.#length < 0 ? stream.#body : null;
  }
  static length_of(stream: object): number {
    return #body in stream ? stream.#length : -1;
  }
}

// A stream over a native body. Nothing is read before user code reads.
export function body_stream(body: Exclude<Body, null>): ReadableStream {
  const stream = new base.ReadableStream(typeof body === "number" ? new PipeSource(body) : new BytesSource(body));
  Source.mark_body(stream, body);
  if (typeof body === "number") native.pipeOwn(body, stream);
  return stream as ReadableStream;
}

// Takes the native body back out of a stream that nobody has read; null when there is none. The
// stream is locked and disturbed afterwards, as if it had been read.
export function take_body(stream: ReadableStream): Body {
  const body = Source.body_of(stream);
  const state = stream as unknown as StreamState;
  if (body === null || state._disturbed || state._reader !== undefined || state._state !== "readable") return null;
  stream.getReader();
  state._disturbed = true;
  return body;
}

// The same without taking it.
export function peek_body(stream: ReadableStream): Body {
  const state = stream as unknown as StreamState;
  return state._disturbed || state._reader !== undefined || state._state !== "readable" ? null : Source.body_of(stream);
}

class BytesSource {
  readonly type = "bytes" as const;
  #body: string | Uint8Array;

  constructor(body: string | Uint8Array) {
    this.#body = body;
  }

  pull(controller: base.ReadableByteStreamController): void {
    const body = this.#body;
    // The stream takes the buffer away from whoever holds it, so it gets its own.
    const bytes = typeof body === "string" ? utf8_bytes(body) : body.slice();
    this.#body = "";
    if (bytes.length > 0) controller.enqueue(bytes);
    controller.close();
    controller.byobRequest?.respond(0);
  }
}

class PipeSource {
  readonly type = "bytes" as const;
  #pipe: PipeId;

  constructor(pipe: PipeId) {
    this.#pipe = pipe;
  }

  pull(controller: base.ReadableByteStreamController): void | Promise<void> {
    const chunk = pipe_read(this.#pipe);
    if (chunk instanceof Promise) return chunk.then((value) => deliver(controller, value));
    deliver(controller, chunk);
  }

  cancel(): void {
    pipe_ended(this.#pipe);
    native.pipeCancel(this.#pipe);
  }
}

function deliver(controller: base.ReadableByteStreamController, chunk: Uint8Array | null): void {
  if (chunk === null) {
    controller.close();
    controller.byobRequest?.respond(0);
  } else if (chunk.length > 0) {
    controller.enqueue(chunk);
  }
}

// Pipes that end when a signal aborts.
class Abortable extends Owned {
  readonly signal: AbortSignal;
  pending: ValueCall | null = null;
  #pipe: PipeId;
  #action: () => void;

  constructor(pipe: PipeId, signal: AbortSignal) {
    super();
    this.signal = signal;
    this.#pipe = pipe;
    this.#action = () => {
      native.pipeCancel(pipe);
      const { pending } = this;
      this.pending = null;
      pending?.error(signal.reason);
    };
    on_abort(signal, this.#action);
    Owned.own(this);
  }

  ended(): void {
    Owned.disown(this);
    this.dropped();
  }
  dropped(): void {
    abortables.delete(this.#pipe);
    off_abort(this.signal, this.#action);
  }
}
const abortables = new Map<PipeId, Abortable>();

// From now on reads of the pipe fail with the signal's reason once it aborts.
export function abort_pipe_with(pipe: PipeId, signal: AbortSignal): void {
  abortables.set(pipe, new Abortable(pipe, signal));
}

function pipe_ended(pipe: PipeId): void {
  abortables.get(pipe)?.ended();
}

// One chunk of a pipe, null at its end; a promise when it has to come first.
export function pipe_read(pipe: PipeId): Uint8Array | null | Promise<Uint8Array | null> {
  const abortable = abortables.size === 0 ? undefined : abortables.get(pipe);
  if (abortable?.signal.aborted) {
    abortable.ended();
    return Promise.reject(abortable.signal.reason);
  }
  const call = new ValueCall();
  const id = start_call(call);
  let chunk: Uint8Array | null | undefined;
  try {
    chunk = native.pipeRead(pipe, id);
  } catch (error) {
    forget_call(id);
    pipe_ended(pipe);
    return Promise.reject(error);
  }
  if (chunk !== undefined) {
    forget_call(id);
    if (chunk === null) pipe_ended(pipe);
    return chunk;
  }
  if (abortable === undefined) return call.promise;
  abortable.pending = call;
  return call.promise.then((value: Uint8Array | null) => {
    abortable.pending = null;
    if (value === null) pipe_ended(pipe);
    return value;
  });
}

// Everything a pipe holds.
export async function pipe_bytes(pipe: PipeId): Promise<Uint8Array> {
  native.pipeOwn(pipe, undefined);
  const chunks: Uint8Array[] = [];
  let total = 0;
  for (;;) {
    let chunk = pipe_read(pipe);
    if (chunk instanceof Promise) chunk = await chunk;
    if (chunk === null) break;
    chunks.push(chunk);
    total += chunk.length;
  }
  return join_chunks(chunks, total);
}

export function join_chunks(chunks: Uint8Array[], total: number): Uint8Array {
  if (chunks.length === 1) return chunks[0]!;
  const out = new Uint8Array(total);
  let at = 0;
  for (const chunk of chunks) {
    out.set(chunk, at);
    at += chunk.length;
  }
  return out;
}

// Everything a stream of user code brings. It must not be locked.
export async function stream_bytes(stream: ReadableStream): Promise<Uint8Array> {
  const reader = stream.getReader();
  const chunks: Uint8Array[] = [];
  let total = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const bytes = view_bytes(value);
    if (bytes === undefined) {
      const error = new TypeError("This ReadableStream did not return bytes.");
      reader.cancel(error).catch(() => {});
      throw error;
    }
    chunks.push(bytes);
    total += bytes.length;
  }
  return join_chunks(chunks, total);
}

// A pipe that a stream of user code is pumped into. `io`, if there is one, stays alive meanwhile.
export function stream_pipe(stream: ReadableStream, io: Io): PipeId {
  const pipe = native.pipeCreate(Source.length_of(stream));
  const reader = stream.getReader();
  if (io !== 0) native.hold(io);
  pump(reader, pipe).finally(() => {
    if (io !== 0) native.release(io);
  });
  return pipe;
}

async function pump(reader: base.ReadableStreamDefaultReader<any>, pipe: PipeId): Promise<void> {
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        native.pipeClose(pipe);
        return;
      }
      const bytes = typeof value === "string" ? utf8_bytes(value) : view_bytes(value);
      if (bytes === undefined) throw new TypeError("This ReadableStream did not return bytes.");
      if (bytes.length === 0) continue;
      const call = new ValueCall();
      const id = start_call(call);
      let room: boolean;
      try {
        room = native.pipeWrite(pipe, bytes, id);
      } catch (error) {
        forget_call(id);
        throw error;
      }
      if (room) forget_call(id);
      else await call.promise;
    }
  } catch (error) {
    try {
      native.pipeAbort(pipe, error);
    } catch {
      // The reader has gone already.
    }
    reader.cancel(error).catch(() => {});
  }
}

// A chunk written to a byte stream; text is sent as UTF-8.
function byte_chunk(chunk: unknown): Uint8Array {
  if (typeof chunk === "string") return utf8_bytes(chunk);
  const bytes = view_bytes(chunk);
  if (bytes === undefined) {
    throw new TypeError(
      "This TransformStream is being used as a byte stream, but received an object of " +
      "non-ArrayBuffer/ArrayBufferView type on its writable side.");
  }
  return bytes;
}

export class IdentityTransformStream extends base.TransformStream {
  constructor(_options: unknown = undefined) {
    super({
      transform(chunk, controller) {
        const bytes = byte_chunk(chunk);
        if (bytes.length > 0) controller.enqueue(bytes.slice());
      },
    });
  }
}

export class FixedLengthStream extends base.TransformStream {
  constructor(length: unknown, _options: unknown = undefined) {
    if (length === undefined) throw wrong_constructor_argument("FixedLengthStream", 1, "bigint");
    const expected = Number(length);
    if (!Number.isInteger(expected)) {
      throw new TypeError("The value cannot be converted because it is not an integer.");
    }
    if (expected < 0) {
      throw new TypeError(
        "The value cannot be converted because it is negative and this API expects a positive bigint.");
    }
    if (expected > Number.MAX_SAFE_INTEGER) {
      throw new TypeError("FixedLengthStream requires an integer expected length less than 2^53.");
    }
    let left = expected;
    super({
      transform(chunk, controller) {
        const bytes = byte_chunk(chunk);
        if (bytes.length > left) {
          throw new TypeError("Attempt to write too many bytes through a FixedLengthStream.");
        }
        left -= bytes.length;
        if (bytes.length > 0) controller.enqueue(bytes.slice());
      },
      flush() {
        if (left > 0) throw new TypeError("FixedLengthStream did not see all expected bytes before close().");
      },
    });
    Source.mark_length(this.readable, expected);
  }
}

export class TextEncoderStream extends base.TransformStream<string, Uint8Array> {
  constructor() {
    let high = "";
    super({
      transform(chunk, controller) {
        let text = high + String(chunk);
        high = "";
        const last = text.charCodeAt(text.length - 1);
        if (last >= 0xd800 && last <= 0xdbff) {
          high = text.slice(-1);
          text = text.slice(0, -1);
        }
        if (text !== "") controller.enqueue(utf8_bytes(text));
      },
      flush(controller) {
        if (high !== "") controller.enqueue(utf8_bytes("\ufffd"));
      },
    });
  }
  get encoding(): string {
    return "utf-8";
  }
}

export class TextDecoderStream extends base.TransformStream<BufferSource_, string> {
  #decoder: TextDecoder_;

  constructor(label: unknown = "utf-8", options: { fatal?: unknown; ignoreBOM?: unknown } = {}) {
    const decoder: TextDecoder_ = new (globalThis as any).TextDecoder(label, options);
    super({
      transform(chunk, controller) {
        const text = decoder.decode(chunk, { stream: true });
        if (text !== "") controller.enqueue(text);
      },
      flush(controller) {
        const text = decoder.decode();
        if (text !== "") controller.enqueue(text);
      },
    });
    this.#decoder = decoder;
  }
  get encoding(): string {
    return this.#decoder.encoding;
  }
  get fatal(): boolean {
    return this.#decoder.fatal;
  }
  get ignoreBOM(): boolean {
    return this.#decoder.ignoreBOM;
  }
}

type BufferSource_ = ArrayBuffer | ArrayBufferView;
interface TextDecoder_ {
  decode(input?: unknown, options?: unknown): string;
  encoding: string;
  fatal: boolean;
  ignoreBOM: boolean;
}

for (const [name, value] of Object.entries({
  ReadableStream: base.ReadableStream,
  ReadableStreamDefaultReader: base.ReadableStreamDefaultReader,
  ReadableStreamBYOBReader: base.ReadableStreamBYOBReader,
  ReadableStreamBYOBRequest: base.ReadableStreamBYOBRequest,
  ReadableStreamDefaultController: base.ReadableStreamDefaultController,
  ReadableByteStreamController: base.ReadableByteStreamController,
  WritableStream: base.WritableStream,
  WritableStreamDefaultWriter: base.WritableStreamDefaultWriter,
  WritableStreamDefaultController: base.WritableStreamDefaultController,
  TransformStream: base.TransformStream,
  TransformStreamDefaultController: base.TransformStreamDefaultController,
  ByteLengthQueuingStrategy: base.ByteLengthQueuingStrategy,
  CountQueuingStrategy: base.CountQueuingStrategy,
  IdentityTransformStream, FixedLengthStream, TextEncoderStream, TextDecoderStream,
})) {
  define_global(name, value);
}
expose(TextEncoderStream, "TextEncoderStream");
expose(TextDecoderStream, "TextDecoderStream");
set_tag(IdentityTransformStream.prototype, "IdentityTransformStream");
set_tag(FixedLengthStream.prototype, "FixedLengthStream");
