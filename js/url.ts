// URL. Most URLs of a server are plain: they are recognised by one pattern and kept as text with
// three positions. Everything else, and every change, goes through the parser of whatwg-url.

import { URLImpl } from "./url_impl";
import { URLSearchParams, make_params, on_params_change, reset_params, well_formed } from "./url_search_params";
import { define_global, expose, wrong_constructor_argument } from "./util";

// http(s), a host of lower-case letters, digits, hyphens, underscores and dots, perhaps a port, and only characters
// that the standard leaves as they are. Parsing such a text changes nothing but what `plain`
// looks at afterwards: an absent path, the port, dot segments, IPv4 and IDNA hosts.
const HOST = "[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_-])?";
const PATH = "/[\\w\\-.~!$&'()*+,;=:@%/|\\[\\]]*";
const QUERY = "\\?[\\w\\-.~!$&()*+,;=:@%/?|\\[\\]{}\\\\^`]*";
const HASH = "#[\\w\\-.~!$&'()*+,;=:@%/?|\\[\\]{}\\\\^#]*";
const PLAIN = new RegExp(`^https?://${HOST}(?::[1-9][0-9]{0,4})?(?:${PATH})?(?:${QUERY})?(?:${HASH})?$`);
const PLAIN_HOST = new RegExp(`^${HOST}$`);
const PLAIN_PATH = new RegExp(`^${PATH}$`);
const PLAIN_QUERY = new RegExp(`^${QUERY}$`);
const DOT_SEGMENT = /\/(?:\.|%2e){1,2}(?:[/?#]|$)/i;
const NUMBER_LABEL = /(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$/;
const IPV4 = /^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(?:\.(?!$)|$)){4}$/;

export let url_href: (url: URL) => string;

export class URL {
  // The serialized URL while #impl is null; else #impl is the truth.
  #href = "";
  #host_start = 0; // behind "://"
  #host_end = 0; // before ":port" or the path
  #path_start = 0;
  #impl: URLImpl | null = null;
  #params: URLSearchParams | null = null;

  static {
    url_href = (url) => (url.#impl !== null ? url.#impl.href : url.#href);
    on_params_change((url, query) => {
      const target = url as URL;
      if (!target.#plain_search(query === "" ? "" : "?" + query)) target.#modify().search = query;
    });
  }

  constructor(url: unknown, base: unknown = undefined) {
    if (arguments.length === 0) throw wrong_constructor_argument("URL", 1, "USVString");
    const text = typeof url === "string" ? url : url instanceof URL ? url_href(url) : String(url);
    if (base === undefined) {
      if (this.#plain(text)) return;
      this.#impl = parse(text, undefined);
      return;
    }
    const base_text = typeof base === "string" ? base : base instanceof URL ? url_href(base) : String(base);
    // A path on a plain base.
    if (text.charCodeAt(0) === 0x2f && text.charCodeAt(1) !== 0x2f && this.#plain(base_text)) {
      const origin = this.#href.slice(0, this.#path_start);
      if (this.#plain(origin + text)) return;
    }
    this.#impl = parse(text, base_text);
  }

  #plain(text: string): boolean {
    if (!PLAIN.test(text)) return false;
    const host_start = text.charCodeAt(4) === 0x3a /* : */ ? 7 : 8;
    let path_start = text.indexOf("/", host_start);
    let href = text;
    if (path_start < 0 || !only_host(text, host_start, path_start)) {
      // "http://host?query" gets its path.
      path_start = end_of_host(text, host_start);
      href = text.slice(0, path_start) + "/" + text.slice(path_start);
    }
    let host_end = path_start;
    const colon = href.indexOf(":", host_start);
    if (colon >= 0 && colon < path_start) {
      const port = Number(href.slice(colon + 1, path_start));
      if (port > 65535) return false;
      host_end = colon;
      if (port === (host_start === 7 ? 80 : 443)) {
        href = href.slice(0, colon) + href.slice(path_start);
        path_start = colon;
      }
    }
    // Dot segments matter only in the path, but are rare anywhere.
    if (DOT_SEGMENT.test(href)) return false;
    const last = href.charCodeAt(host_end - 1);
    if ((last >= 0x30 && last <= 0x39) || (last >= 0x61 && last <= 0x66) || last === 0x78) {
      const host = href.slice(host_start, host_end);
      if (NUMBER_LABEL.test(host) && !IPV4.test(host)) return false;
    }
    const xn = href.indexOf("xn--", host_start);
    if (xn >= 0 && xn < host_end) return false;
    this.#href = href;
    this.#host_start = host_start;
    this.#host_end = host_end;
    this.#path_start = path_start;
    return true;
  }

  // Where the query and the fragment of a plain URL start; its end when there is none.
  #query_start(): number {
    const question = this.#href.indexOf("?", this.#path_start);
    const hash = this.#hash_start();
    return question < 0 || question > hash ? hash : question;
  }
  #hash_start(): number {
    const hash = this.#href.indexOf("#", this.#path_start);
    return hash < 0 ? this.#href.length : hash;
  }

  // Setters of a plain URL to plain values; false when the standard's parser has to do it.
  #plain_path(path: string): boolean {
    if (this.#impl !== null || !PLAIN_PATH.test(path)) return false;
    return this.#plain(this.#href.slice(0, this.#path_start) + path + this.#href.slice(this.#query_start()));
  }
  #plain_search(search: string): boolean {
    if (this.#impl !== null || (search !== "" && !PLAIN_QUERY.test(search))) return false;
    return this.#plain(this.#href.slice(0, this.#query_start()) + search + this.#href.slice(this.#hash_start()));
  }
  #plain_hostname(host: string): boolean {
    if (this.#impl !== null || !PLAIN_HOST.test(host)) return false;
    return this.#plain(this.#href.slice(0, this.#host_start) + host + this.#href.slice(this.#host_end));
  }

  #modify(): URLImpl {
    let impl = this.#impl;
    if (impl === null) impl = this.#impl = parse(this.#href, undefined);
    return impl;
  }

  get origin(): string {
    return this.#impl !== null ? this.#impl.origin : this.#href.slice(0, this.#path_start);
  }

  get href(): string {
    return this.#impl !== null ? this.#impl.href : this.#href;
  }
  set href(value: string) {
    const text = String(value);
    if (this.#plain(text)) this.#impl = null;
    else {
      const impl = URLImpl.parse(well_formed(text), undefined);
      if (impl === null) {
        throw new TypeError("Failed to set the 'href' property on 'URL': the provided value is not of type 'valid URL string'.");
      }
      this.#impl = impl;
    }
    this.#refresh_params();
  }

  get protocol(): string {
    return this.#impl !== null ? this.#impl.protocol : this.#host_start === 7 ? "http:" : "https:";
  }
  set protocol(value: string) {
    this.#modify().protocol = well_formed(String(value));
  }

  get username(): string {
    return this.#impl !== null ? this.#impl.username : "";
  }
  set username(value: string) {
    this.#modify().username = well_formed(String(value));
  }

  get password(): string {
    return this.#impl !== null ? this.#impl.password : "";
  }
  set password(value: string) {
    this.#modify().password = well_formed(String(value));
  }

  get host(): string {
    return this.#impl !== null ? this.#impl.host : this.#href.slice(this.#host_start, this.#path_start);
  }
  set host(value: string) {
    this.#modify().host = well_formed(String(value));
  }

  get hostname(): string {
    return this.#impl !== null ? this.#impl.hostname : this.#href.slice(this.#host_start, this.#host_end);
  }
  set hostname(value: string) {
    const text = String(value);
    if (!this.#plain_hostname(text)) this.#modify().hostname = well_formed(text);
  }

  get port(): string {
    if (this.#impl !== null) return this.#impl.port;
    return this.#host_end === this.#path_start ? "" : this.#href.slice(this.#host_end + 1, this.#path_start);
  }
  set port(value: string) {
    this.#modify().port = well_formed(String(value));
  }

  get pathname(): string {
    if (this.#impl !== null) return this.#impl.pathname;
    const href = this.#href;
    const start = this.#path_start;
    for (let i = start; i < href.length; i++) {
      const code = href.charCodeAt(i);
      if (code === 0x3f || code === 0x23) return href.slice(start, i);
    }
    return start === 0 ? href : href.slice(start);
  }
  set pathname(value: string) {
    const text = String(value);
    if (!this.#plain_path(text)) this.#modify().pathname = well_formed(text);
  }

  get search(): string {
    if (this.#impl !== null) return this.#impl.search;
    const query = this.#query();
    return query === "" ? "" : "?" + query;
  }
  set search(value: string) {
    const text = String(value);
    // A lone "?" is an empty query, which the standard keeps.
    if (text === "?" || !this.#plain_search(text === "" || text.startsWith("?") ? text : "?" + text)) {
      this.#modify().search = well_formed(text);
    }
    this.#refresh_params();
  }

  get hash(): string {
    if (this.#impl !== null) return this.#impl.hash;
    const hash = this.#href.indexOf("#");
    return hash < 0 || hash === this.#href.length - 1 ? "" : this.#href.slice(hash);
  }
  set hash(value: string) {
    this.#modify().hash = well_formed(String(value));
  }

  get searchParams(): URLSearchParams {
    return (this.#params ??= make_params(this.#query(), this));
  }

  toJSON(): string {
    return this.href;
  }

  toString(): string {
    return this.href;
  }

  // Without the question mark.
  #query(): string {
    if (this.#impl !== null) return this.#impl.search.slice(1);
    const href = this.#href;
    const question = href.indexOf("?", this.#path_start);
    if (question < 0) return "";
    const hash = href.indexOf("#", this.#path_start);
    if (hash < 0) return href.slice(question + 1);
    return hash < question ? "" : href.slice(question + 1, hash);
  }

  #refresh_params(): void {
    if (this.#params !== null) reset_params(this.#params, this.#query());
  }

  static canParse(url: unknown, base: unknown = undefined): boolean {
    return URL.parse(url, base) !== null;
  }

  static parse(url: unknown, base: unknown = undefined): URL | null {
    try {
      return new URL(url, base);
    } catch (error) {
      if (error instanceof TypeError) return null;
      throw error;
    }
  }

  static createObjectURL(): string {
    throw new Error("URL.createObjectURL() is not implemented");
  }
  static revokeObjectURL(): void {
    throw new Error("URL.revokeObjectURL() is not implemented");
  }
}

function parse(text: string, base: string | undefined): URLImpl {
  const impl = URLImpl.parse(well_formed(text), base === undefined ? undefined : well_formed(base));
  if (impl === null) throw new TypeError("Invalid URL string.");
  return impl;
}

// Whether the slash at `slash` is the first character behind host and port.
function only_host(text: string, from: number, slash: number): boolean {
  const question = text.indexOf("?", from);
  if (question >= 0 && question < slash) return false;
  const hash = text.indexOf("#", from);
  return hash < 0 || hash > slash;
}

function end_of_host(text: string, from: number): number {
  for (let i = from; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 0x3f || code === 0x23) return i;
  }
  return text.length;
}

expose(URL, "URL");
define_global("URL", URL);
