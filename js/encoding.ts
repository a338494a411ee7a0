// TextEncoder, TextDecoder, atob, btoa.

import { native } from "./host";
import { define_global, expose, view_bytes, wrong_argument } from "./util";

const UTF8_LABELS = new Set(["utf-8", "utf8", "unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "x-unicode20utf8"]);

export class TextEncoder {
  encode(input: unknown = ""): Uint8Array {
    return native.utf8Encode(typeof input === "string" ? input : String(input));
  }

  encodeInto(source: string, destination: Uint8Array): { read: number; written: number } {
    if (!(destination instanceof Uint8Array)) throw wrong_argument("encodeInto", "TextEncoder", 2, "Uint8Array");
    const [read, written] = native.utf8EncodeInto(String(source), destination);
    return { read, written };
  }

  get encoding(): string {
    return "utf-8";
  }
}

export class TextDecoder {
  #fatal: boolean;
  #ignore_bom: boolean;
  #label: string;
  // Made at the first use that needs a state: another encoding, or a stream.
  #decoder: object | undefined;

  constructor(label: unknown = "utf-8", options: { fatal?: unknown; ignoreBOM?: unknown } = {}) {
    const name = String(label).trim().toLowerCase();
    this.#fatal = Boolean(options?.fatal);
    this.#ignore_bom = Boolean(options?.ignoreBOM);
    if (UTF8_LABELS.has(name)) {
      this.#label = "utf-8";
      return;
    }
    if (name === "x-user-defined") {
      this.#label = name;
      return;
    }
    this.#decoder = native.decoderCreate(name, this.#fatal, this.#ignore_bom);
    if (this.#decoder === undefined) throw new RangeError(`"${String(label)}" is not a valid encoding.`);
    this.#label = native.decoderName(this.#decoder).toLowerCase();
  }

  decode(input: unknown = undefined, options: { stream?: unknown } = {}): string {
    const bytes = input === undefined ? new Uint8Array(0) : view_bytes(input);
    if (bytes === undefined) throw wrong_argument("decode", "TextDecoder", 1, "Array");
    const stream = Boolean(options?.stream);
    if (this.#label === "x-user-defined") return user_defined(bytes);
    if (this.#decoder === undefined) {
      if (!stream) return native.utf8Decode(bytes, this.#fatal, this.#ignore_bom);
      this.#decoder = native.decoderCreate("utf-8", this.#fatal, this.#ignore_bom)!;
    }
    return native.decoderDecode(this.#decoder, bytes, stream);
  }

  get encoding(): string {
    return this.#label;
  }
  get fatal(): boolean {
    return this.#fatal;
  }
  get ignoreBOM(): boolean {
    return this.#ignore_bom;
  }
}

// Each byte is a character: ASCII, or of a private range.
function user_defined(bytes: Uint8Array): string {
  let out = "";
  for (const byte of bytes) out += String.fromCharCode(byte < 0x80 ? byte : 0xf700 + byte);
  return out;
}

export function utf8_text(bytes: Uint8Array): string {
  return native.utf8Decode(bytes, false, false);
}

export function utf8_bytes(text: string): Uint8Array {
  return native.utf8Encode(text);
}

function btoa(data: unknown): string {
  if (arguments.length === 0) throw wrong_argument("btoa", "ServiceWorkerGlobalScope", 1, "string");
  return native.base64Encode(String(data));
}

function atob(data: unknown): string {
  if (arguments.length === 0) throw wrong_argument("atob", "ServiceWorkerGlobalScope", 1, "string");
  return native.base64Decode(String(data));
}

expose(TextEncoder, "TextEncoder");
expose(TextDecoder, "TextDecoder");
define_global("TextEncoder", TextEncoder);
define_global("TextDecoder", TextDecoder);
define_global("btoa", btoa);
define_global("atob", atob);
