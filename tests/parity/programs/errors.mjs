// objects: Plain Throws Breaks NoHandler Values
import { DurableObject } from "cloudflare:workers";
import { object, show, worker } from "../lib/harness.mjs";

class CustomError extends Error {
  constructor(message) {
    super(message);
    this.name = "CustomError";
    this.code = 42;
    this.details = { a: [1, 2], when: new Date(0) };
  }
}
class Nameless extends Error {}

const thrown = {
  error: () => new Error("plain"),
  empty: () => new Error(),
  type: () => new TypeError("typed"),
  range: () => new RangeError("ranged"),
  syntax: () => new SyntaxError("syntaxed"),
  reference: () => new ReferenceError("referenced"),
  uri: () => new URIError("uried"),
  evaluated: () => new EvalError("evaled"),
  aggregate: () => new AggregateError([new Error("inner")], "many"),
  custom: () => new CustomError("customised"),
  nameless: () => new Nameless("no name of its own"),
  named: () => Object.assign(new Error("named"), { name: "Named" }),
  nameWithColon: () => Object.assign(new Error("m"), { name: "A: B" }),
  multiline: () => new Error("one\ntwo\nthree"),
  unicode: () => new Error("✓ λ \u{1F600}"),
  long: () => new Error("x".repeat(500)),
  withProps: () => Object.assign(new Error("props"), { a: 1, b: "two", c: null, d: { e: [3] } }),
  withCause: () => new Error("outer", { cause: new TypeError("inner cause") }),
  withFlags: () => Object.assign(new Error("flags"), { retryable: true, overloaded: true, remote: true, durableObjectReset: true }),
  dom: () => new DOMException("dom", "DataCloneError"),
  abort: () => new DOMException("aborted", "AbortError"),
  string: () => "a string",
  number: () => 42,
  none: () => undefined,
  nothing: () => null,
  object: () => ({ message: "of an object", code: 1 }),
  named_object: () => ({ name: "Fake", message: "of an object" }),
  symbol: () => Symbol("s"),
  boolean: () => false,
  bigint: () => 10n,
  array: () => [1, 2],
  fn: () => () => 1,
  frozen: () => Object.freeze(new Error("frozen")),
  badMessage: () => Object.defineProperty(new Error("x"), "message", { get() { throw new Error("getter"); } }),
  noStack: () => { const e = new Error("no stack"); delete e.stack; return e; },
  otherStack: () => Object.assign(new Error("other stack"), { stack: "Liar: lies\n    at nowhere" }),
};

export class Throws extends DurableObject {
  async fetch(request) {
    const name = new URL(request.url).pathname.slice(1);
    throw thrown[name]();
  }
  rpc(name) {
    throw thrown[name]();
  }
  async later(name) {
    await scheduler.wait(1);
    throw thrown[name]();
  }
  returned(name) {
    return thrown[name]();
  }
}

// Its constructor throws: always, or the first time.
const tried = new Set();
export class Breaks extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    const { name } = ctx.id;
    const first = !tried.has(name);
    tried.add(name);
    if (first || name === "a") throw new CustomError("the constructor threw");
  }
  fetch() {
    return new Response("works");
  }
  rpc() {
    return "works";
  }
}

export class NoHandler extends DurableObject {}

export class Values extends DurableObject {
  fetch(request) {
    const name = new URL(request.url).pathname.slice(1);
    return {
      undefined: undefined, null: null, string: "text", number: 5, object: {}, promise: Promise.resolve(7),
    }[name];
  }
}

export class Plain extends object({
  async throws_inside({ tries }) {
    await tries("custom", () => { throw new CustomError("local"); });
  },
}) {}

const summary = (error) => [
  show(error), error?.remote, error?.retryable, error?.overloaded, error?.durableObjectReset, error?.constructor?.name,
  typeof error === "object" && error !== null ? Object.getOwnPropertyNames(error).sort().join() : typeof error,
];

export default worker({
  async fetch_of_an_object_that_throws({ env, say }) {
    for (const name of Object.keys(thrown)) {
      try {
        await env.Throws.getByName(`f${name}`).fetch(`http://x/${name}`);
        say(name, "did not throw");
      } catch (error) {
        say(name, summary(error));
      }
    }
  },
  async rpc_that_throws({ env, say }) {
    for (const name of Object.keys(thrown)) {
      try {
        await env.Throws.getByName(`r${name}`).rpc(name);
        say(name, "did not throw");
      } catch (error) {
        say(name, summary(error));
      }
    }
  },
  async rpc_that_rejects_later({ env, say }) {
    for (const name of ["error", "custom", "string", "dom"]) {
      try {
        await env.Throws.getByName("later").later(name);
        say(name, "did not throw");
      } catch (error) {
        say(name, summary(error));
      }
    }
  },
  async rpc_that_returns_errors({ env, say }) {
    for (const name of Object.keys(thrown)) {
      try {
        say(name, summary(await env.Throws.getByName("returns").returned(name)));
      } catch (error) {
        say(`${name} threw`, summary(error));
      }
    }
  },
  async a_constructor_that_throws({ env, tries }) {
    const stub = env.Breaks.getByName("a");
    await tries("fetch", () => stub.fetch("http://x/"));
    await tries("fetch again", () => stub.fetch("http://x/"));
    await tries("rpc", () => stub.rpc());
    await tries("fresh stub", () => env.Breaks.getByName("a").rpc());
  },
  async a_constructor_that_threw_once({ env, tries }) {
    const stub = env.Breaks.getByName("b");
    await tries("fails", () => stub.rpc());
    await tries("works with the same stub", () => stub.rpc());
    await tries("works with a fresh stub", () => env.Breaks.getByName("b").rpc());
  },
  async an_object_without_a_handler({ env, tries }) {
    await tries("fetch", () => env.NoHandler.getByName("a").fetch("http://x/"));
    await tries("rpc", () => env.NoHandler.getByName("a").rpc());
  },
  async what_is_no_response({ env, tries }) {
    for (const name of ["undefined", "null", "string", "number", "object", "promise"]) {
      await tries(name, () => env.Values.getByName("a").fetch(`http://x/${name}`));
    }
  },
  worker_throws() {
    throw new CustomError("from the worker");
  },
  async unhandled_rejections_do_no_harm({ env, say }) {
    Promise.reject(new Error("nobody cares"));
    const rejected = Promise.reject(new Error("handled late"));
    await scheduler.wait(1);
    rejected.catch(() => {});
    say("goes on", true);
  },
  async error_events_and_props({ say }) {
    const error = new CustomError("x");
    say("keys", Object.keys(error));
    say("json", JSON.stringify(error));
    say("string", String(error));
    say("tag", Object.prototype.toString.call(error));
    say("limit", Error.stackTraceLimit);
    say("capture", typeof Error.captureStackTrace);
    say("prepare", typeof Error.prepareStackTrace);
    say("frames", typeof error.stack);
  },
}, { Plain });
