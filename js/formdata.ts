// FormData, and its two encodings: multipart/form-data and application/x-www-form-urlencoded.

import { Blob, File, blob_bytes } from "./blob";
import { utf8_bytes, utf8_text } from "./encoding";
import { native } from "./host";
import { join_chunks } from "./streams";
import { parse_form, well_formed } from "./url_search_params";
import { define_global, expose, set_tag, wrong_argument } from "./util";

type Entry = [name: string, value: string | File];

export let form_entries: (form: FormData) => Entry[];

// A Blob without a name gets that of its field.
function entry_value(field: string, value: unknown, name: unknown): string | File {
  if (!(value instanceof Blob)) return well_formed(String(value));
  if (value instanceof File && name === undefined) return value;
  return new File([value], name === undefined ? field : String(name), { type: value.type });
}

export class FormData {
  #entries: Entry[] = [];

  static {
    form_entries = (form) => form.#entries;
  }

  append(name: string, value: unknown, filename: unknown = undefined): void {
    if (arguments.length < 2) throw wrong_argument("append", "FormData", arguments.length + 1, "File or Blob or string");
    this.#entries.push([well_formed(String(name)), entry_value(String(name), value, filename)]);
  }

  delete(name: string): void {
    const key = String(name);
    this.#entries = this.#entries.filter((entry) => entry[0] !== key);
  }

  get(name: string): string | File | null {
    const key = String(name);
    for (const entry of this.#entries) if (entry[0] === key) return entry[1];
    return null;
  }

  getAll(name: string): (string | File)[] {
    const key = String(name);
    return this.#entries.filter((entry) => entry[0] === key).map((entry) => entry[1]);
  }

  has(name: string): boolean {
    const key = String(name);
    return this.#entries.some((entry) => entry[0] === key);
  }

  set(name: string, value: unknown, filename: unknown = undefined): void {
    if (arguments.length < 2) throw wrong_argument("set", "FormData", arguments.length + 1, "File or Blob or string");
    const entry: Entry = [well_formed(String(name)), entry_value(String(name), value, filename)];
    const first = this.#entries.findIndex((other) => other[0] === entry[0]);
    if (first < 0) {
      this.#entries.push(entry);
      return;
    }
    this.#entries = this.#entries.filter((other, i) => i <= first || other[0] !== entry[0]);
    this.#entries[first] = entry;
  }

  *entries(): IterableIterator<Entry> {
    for (let i = 0; i < this.#entries.length; i++) yield [...this.#entries[i]!] as Entry;
  }
  *keys(): IterableIterator<string> {
    for (let i = 0; i < this.#entries.length; i++) yield this.#entries[i]![0];
  }
  *values(): IterableIterator<string | File> {
    for (let i = 0; i < this.#entries.length; i++) yield this.#entries[i]![1];
  }
  forEach(callback: (value: string | File, key: string, form: FormData) => void, self?: unknown): void {
    if (typeof callback !== "function") throw wrong_argument("forEach", "FormData", 1, "function");
    for (let i = 0; i < this.#entries.length; i++) {
      callback.call(self, this.#entries[i]![1], this.#entries[i]![0], this);
    }
  }
  declare [Symbol.iterator]: () => IterableIterator<Entry>;
}

function escape_name(name: string): string {
  return name.replace(/\r\n|\r|\n/g, (match) => match === "\n" ? "%0A" : match === "\r" ? "%0D" : "%0D%0A")
    .replaceAll('"', "%22");
}

// Body and boundary of a form.
export function encode_multipart(form: FormData): [body: Uint8Array, boundary: string] {
  const random = new Uint8Array(16);
  native.randomFill(random);
  let boundary = "";
  for (const byte of random) boundary += byte.toString(16).padStart(2, "0");
  const chunks: Uint8Array[] = [];
  let total = 0;
  const add = (chunk: Uint8Array) => {
    chunks.push(chunk);
    total += chunk.length;
  };
  for (const [name, value] of form_entries(form)) {
    let head = `--${boundary}\r\nContent-Disposition: form-data; name="${escape_name(name)}"`;
    if (typeof value === "string") {
      add(utf8_bytes(`${head}\r\n\r\n${value}\r\n`));
      continue;
    }
    head += `; filename="${escape_name(value.name)}"\r\nContent-Type: ${value.type || "application/octet-stream"}\r\n\r\n`;
    add(utf8_bytes(head));
    add(blob_bytes(value));
    add(utf8_bytes("\r\n"));
  }
  add(utf8_bytes(`--${boundary}--`));
  return [join_chunks(chunks, total), boundary];
}

export function decode_form(bytes: Uint8Array, content_type: string | null): FormData {
  const type = content_type === null ? "" : content_type.split(";")[0]!.trim().toLowerCase();
  if (type === "multipart/form-data") return decode_multipart(bytes, content_type!);
  if (type === "application/x-www-form-urlencoded") {
    const form = new FormData();
    const list = parse_form(utf8_text(bytes));
    for (let i = 0; i < list.length; i += 2) form.append(list[i]!, list[i + 1]!);
    return form;
  }
  if (content_type === null) throw new TypeError("Parsing a Body as FormData requires a Content-Type header.");
  throw new TypeError("Unrecognized Content-Type header value. FormData can only parse the following MIME types: " +
    "multipart/form-data, application/x-www-form-urlencoded");
}

function index_of(bytes: Uint8Array, wanted: Uint8Array, from: number): number {
  const first = wanted[0]!;
  const last = bytes.length - wanted.length;
  for (let i = bytes.indexOf(first, from); i >= 0 && i <= last; i = bytes.indexOf(first, i + 1)) {
    let j = 1;
    while (j < wanted.length && bytes[i + j] === wanted[j]) j++;
    if (j === wanted.length) return i;
  }
  return -1;
}

function parameter(header: string, name: string): string | undefined {
  const found = new RegExp(`(?:^|[;\\s])${name}=(?:"((?:[^"\\\\]|\\\\.)*)"|([^;\\s]*))`, "i").exec(header);
  if (found === null) return undefined;
  return found[1] !== undefined ? found[1].replace(/\\(["\\])/g, "$1") : found[2];
}

const NEW_LINE = new Uint8Array([13, 10]);
const HEAD_END = new Uint8Array([13, 10, 13, 10]);

function decode_multipart(bytes: Uint8Array, content_type: string): FormData {
  const boundary = parameter(content_type, "boundary");
  if (boundary === undefined || boundary === "") {
    throw new TypeError("No boundary string in Content-Type header. The multipart/form-data MIME type requires a " +
      "boundary parameter, e.g. 'Content-Type: multipart/form-data; boundary=\"abcd\"'. See RFC 7578, section 4.");
  }
  const delimiter = utf8_bytes("--" + boundary);
  const next_delimiter = join_chunks([NEW_LINE, delimiter], delimiter.length + 2);
  const form = new FormData();
  let at = index_of(bytes, delimiter, 0);
  if (at < 0) throw new TypeError("No initial boundary string (or you have a truncated message).");
  at += delimiter.length;
  for (;;) {
    if (bytes[at] === 0x2d && bytes[at + 1] === 0x2d) return form;
    if (bytes[at] !== 13 || bytes[at + 1] !== 10) {
      throw new TypeError("Initial boundary string wasn't succeeded by CRLF.");
    }
    const head_end = index_of(bytes, HEAD_END, at);
    if (head_end < 0) throw new TypeError("No multipart message header termination found.");
    const head = utf8_text(bytes.subarray(at + 2, head_end));
    const data_start = head_end + 4;
    const data_end = index_of(bytes, next_delimiter, head_end + 2);
    if (data_end < 0) throw new TypeError("No subsequent boundary string after multipart message.");
    add_part(form, head, bytes.subarray(data_start, Math.max(data_start, data_end)));
    at = data_end + next_delimiter.length;
  }
}

function add_part(form: FormData, head: string, data: Uint8Array): void {
  let disposition: string | undefined;
  let type = "";
  for (const line of head.split("\r\n")) {
    const colon = line.indexOf(":");
    if (colon < 0) continue;
    const name = line.slice(0, colon).trim().toLowerCase();
    if (name === "content-disposition") disposition = line.slice(colon + 1).trim();
    else if (name === "content-type") type = line.slice(colon + 1).trim();
  }
  if (disposition === undefined) {
    throw new TypeError("No valid Content-Disposition header found in FormData part.");
  }
  if (!/^form-data\s*(?:;|$)/i.test(disposition)) {
    throw new TypeError('Content-Disposition header for FormData part must have the value "form-data", possibly ' +
      `followed by parameters. Got: "${disposition.split(";")[0]!.trim()}"`);
  }
  const name = parameter(disposition, "name");
  if (name === undefined) throw new TypeError("No name parameter in Content-Disposition header.");
  const filename = parameter(disposition, "filename");
  if (filename === undefined) form.append(name, utf8_text(data));
  else form.append(name, new File([data], filename, { type }));
}

expose(FormData, "FormData");
Object.defineProperty(FormData.prototype, Symbol.iterator, {
  value: FormData.prototype.entries, writable: true, configurable: true,
});
set_tag(FormData.prototype, "FormData");
define_global("FormData", FormData);
