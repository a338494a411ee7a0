// The URL Standard's algorithms, from whatwg-url's state machine, without its Web IDL wrappers.

// @ts-expect-error: the package has no types
import usm from "whatwg-url/lib/url-state-machine.js";

interface Record_ {
  scheme: string;
  username: string;
  password: string;
  host: unknown;
  port: number | null;
  path: string | string[];
  query: string | null;
  fragment: string | null;
}

export class URLImpl {
  #url: Record_;

  private constructor(url: Record_) {
    this.#url = url;
  }

  static parse(text: string, base: string | undefined): URLImpl | null {
    let base_url: Record_ | null = null;
    if (base !== undefined) {
      base_url = usm.basicURLParse(base);
      if (base_url === null) return null;
    }
    const url = usm.basicURLParse(text, { baseURL: base_url });
    return url === null ? null : new URLImpl(url);
  }

  get href(): string {
    return usm.serializeURL(this.#url);
  }

  get origin(): string {
    return usm.serializeURLOrigin(this.#url);
  }

  get protocol(): string {
    return this.#url.scheme + ":";
  }
  set protocol(value: string) {
    usm.basicURLParse(value + ":", { url: this.#url, stateOverride: "scheme start" });
  }

  get username(): string {
    return this.#url.username;
  }
  set username(value: string) {
    if (!usm.cannotHaveAUsernamePasswordPort(this.#url)) usm.setTheUsername(this.#url, value);
  }

  get password(): string {
    return this.#url.password;
  }
  set password(value: string) {
    if (!usm.cannotHaveAUsernamePasswordPort(this.#url)) usm.setThePassword(this.#url, value);
  }

  get host(): string {
    const url = this.#url;
    if (url.host === null) return "";
    if (url.port === null) return usm.serializeHost(url.host);
    return usm.serializeHost(url.host) + ":" + usm.serializeInteger(url.port);
  }
  set host(value: string) {
    if (usm.hasAnOpaquePath(this.#url)) return;
    usm.basicURLParse(value, { url: this.#url, stateOverride: "host" });
  }

  get hostname(): string {
    return this.#url.host === null ? "" : usm.serializeHost(this.#url.host);
  }
  set hostname(value: string) {
    if (usm.hasAnOpaquePath(this.#url)) return;
    usm.basicURLParse(value, { url: this.#url, stateOverride: "hostname" });
  }

  get port(): string {
    return this.#url.port === null ? "" : usm.serializeInteger(this.#url.port);
  }
  set port(value: string) {
    if (usm.cannotHaveAUsernamePasswordPort(this.#url)) return;
    if (value === "") this.#url.port = null;
    else usm.basicURLParse(value, { url: this.#url, stateOverride: "port" });
  }

  get pathname(): string {
    return usm.serializePath(this.#url);
  }
  set pathname(value: string) {
    if (usm.hasAnOpaquePath(this.#url)) return;
    this.#url.path = [];
    usm.basicURLParse(value, { url: this.#url, stateOverride: "path start" });
  }

  get search(): string {
    const query = this.#url.query;
    return query === null || query === "" ? "" : "?" + query;
  }
  set search(value: string) {
    const url = this.#url;
    if (value === "") {
      url.query = null;
      return;
    }
    url.query = "";
    usm.basicURLParse(value.startsWith("?") ? value.slice(1) : value, { url, stateOverride: "query" });
  }

  get hash(): string {
    const fragment = this.#url.fragment;
    return fragment === null || fragment === "" ? "" : "#" + fragment;
  }
  set hash(value: string) {
    const url = this.#url;
    if (value === "") {
      url.fragment = null;
      return;
    }
    url.fragment = "";
    usm.basicURLParse(value.startsWith("#") ? value.slice(1) : value, { url, stateOverride: "fragment" });
  }
}
