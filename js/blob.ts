// Blob and File: bytes in memory with a type.

import { INTERNAL, define_global, expose, view_bytes, wrong_constructor_argument } from "./util";
import { ReadableStream, body_stream, join_chunks } from "./streams";
import { utf8_bytes, utf8_text } from "./encoding";

export let blob_bytes: (blob: Blob) => Uint8Array;
export let make_blob: (bytes: Uint8Array, type: string) => Blob;

function normal_type(type: unknown): string {
  const text = type === undefined ? "" : String(type);
  return /^[\x20-\x7e]*$/.test(text) ? text.toLowerCase() : "";
}

export class Blob {
  #bytes: Uint8Array = new Uint8Array(0);
  #type = "";

  static {
    blob_bytes = (blob) => blob.#bytes;
    make_blob = (bytes, type) => {
      const blob = new Blob(INTERNAL);
      blob.#bytes = bytes;
      blob.#type = type;
      return blob;
    };
  }

  constructor(parts: unknown = undefined, options: { type?: unknown } | undefined = undefined) {
    if (parts === INTERNAL) return;
    if (parts !== undefined) {
      if (typeof parts !== "object" || parts === null || !(Symbol.iterator in parts)) {
        throw wrong_constructor_argument(new.target.name, 1, "Array");
      }
      const chunks: Uint8Array[] = [];
      let total = 0;
      for (const part of parts as Iterable<unknown>) {
        const bytes = part instanceof Blob ? part.#bytes : view_bytes(part) ?? utf8_bytes(String(part));
        chunks.push(bytes);
        total += bytes.length;
      }
      const joined = join_chunks(chunks, total);
      // The parts may change later.
      this.#bytes = chunks.length === 1 ? joined.slice() : joined;
    }
    this.#type = normal_type(options?.type);
  }

  get size(): number {
    return this.#bytes.length;
  }
  get type(): string {
    return this.#type;
  }

  slice(start: number = 0, end: number | undefined = undefined, type: unknown = undefined): Blob {
    const size = this.#bytes.length;
    const place = (value: number, absent: number) => {
      const n = value === undefined ? absent : Math.trunc(Number(value)) || 0;
      return n < 0 ? Math.max(size + n, 0) : Math.min(n, size);
    };
    const from = place(start, 0);
    const to = place(end as number, size);
    return make_blob(this.#bytes.subarray(from, Math.max(from, to)), normal_type(type));
  }

  async arrayBuffer(): Promise<ArrayBuffer> {
    return this.#bytes.slice().buffer as ArrayBuffer;
  }
  async bytes(): Promise<Uint8Array> {
    return this.#bytes.slice();
  }
  async text(): Promise<string> {
    return utf8_text(this.#bytes);
  }
  stream(): ReadableStream {
    return body_stream(this.#bytes);
  }
}

export class File extends Blob {
  #name: string;
  #modified: number;

  constructor(parts: unknown, name: unknown, options: { type?: unknown; lastModified?: unknown } | undefined = undefined) {
    if (arguments.length < 2) {
      throw wrong_constructor_argument("File", arguments.length + 1, arguments.length === 0 ? "Array" : "string");
    }
    super(parts, options);
    this.#name = String(name);
    this.#modified = options?.lastModified === undefined ? Date.now() : Number(options.lastModified);
  }

  get name(): string {
    return this.#name;
  }
  get lastModified(): number {
    return this.#modified;
  }
}

expose(Blob, "Blob");
expose(File, "File");
define_global("Blob", Blob);
define_global("File", File);
