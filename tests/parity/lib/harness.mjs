// What the programs of this folder are made of: named cases, and one way to write any value down.
import { DurableObject } from "cloudflare:workers";

const class_of = (value) => {
  const prototype = Object.getPrototypeOf(value);
  return prototype === null ? "null" : (prototype.constructor?.name ?? "?");
};

// Any value as text, so that two hosts that mean the same write the same.
export function show(value, seen = []) {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return `[function ${value.name}]`;
  if (typeof value === "symbol") return String(value);
  if (typeof value !== "object" || value === null) return Object.is(value, -0) ? "-0" : String(value);
  if (seen.includes(value)) return `[circular ${seen.indexOf(value)}]`;
  seen = [...seen, value];
  const next = (member) => show(member, seen);
  const own = (object, but) => Object.keys(object).filter((key) => key !== but).map((key) => `${key}: ${next(object[key])}`).join(", ");
  const tag = Object.prototype.toString.call(value);
  if (value instanceof Error || tag === "[object Error]" || tag === "[object DOMException]") {
    const first = typeof value.stack === "string" ? value.stack.split("\n")[0] : next(value.stack);
    const line = first === String(value) ? "" : ` stack(${first})`;
    const cause = Object.hasOwn(value, "cause") ? ` cause(${next(value.cause)})` : "";
    return `${class_of(value)}<${value}>${line}${cause}{${own(value, "stack")}}`;
  }
  if (Array.isArray(value)) return `[${Array.from(value, next).join(", ")}]`;
  if (tag === "[object Date]") return `Date<${Number.isNaN(value.getTime()) ? "invalid" : value.toISOString()}>`;
  if (tag === "[object RegExp]") return `RegExp<${value}>`;
  if (tag === "[object Map]") return `Map{${Array.from(value, ([k, v]) => `${next(k)} => ${next(v)}`).join(", ")}}`;
  if (tag === "[object Set]") return `Set{${Array.from(value, next).join(", ")}}`;
  if (tag === "[object ArrayBuffer]") return `ArrayBuffer<${new Uint8Array(value)}>`;
  if (ArrayBuffer.isView(value)) {
    if (value instanceof DataView) return `DataView<${new Uint8Array(value.buffer, value.byteOffset, value.byteLength)}>`;
    return `${class_of(value)}<${value.join()}>`;
  }
  if (value instanceof Headers || value instanceof URLSearchParams) return `${class_of(value)}${next([...value])}`;
  if (tag === "[object Number]" || tag === "[object String]" || tag === "[object Boolean]") {
    return `${class_of(value)}<${next(value.valueOf())}>`;
  }
  if (typeof value.next === "function") return `${tag}`;
  const name = class_of(value);
  return `${name === "Object" ? "" : name}{${own(value)}}`;
}

// What a case writes: a line for each label, the value or the error of what it names.
class Page {
  lines = [];
  say = (label, value) => void this.lines.push(`${label}: ${show(value)}`);
  // The outcome of fn, which may be asynchronous.
  tries = async (label, fn) => {
    try {
      const value = await fn();
      this.lines.push(`${label}: ${show(value)}`);
      return value;
    } catch (error) {
      this.lines.push(`${label} threw: ${show(error)}`);
      return error;
    }
  };
  // The same for what must not be asynchronous.
  does = (label, fn) => {
    try {
      const value = fn();
      this.lines.push(`${label}: ${show(value)}`);
      return value;
    } catch (error) {
      this.lines.push(`${label} threw: ${show(error)}`);
      return error;
    }
  };
}

async function run(fn, self, page, given) {
  try {
    const result = await fn.call(self, { ...given, say: page.say, tries: page.tries, does: page.does });
    if (result instanceof Response) return result;
    if (result !== undefined) page.say("result", result);
  } catch (error) {
    page.lines.push(`case threw: ${show(error)}`);
  }
  return new Response(page.lines.join("\n"));
}

const case_of = (request) => new URL(request.url).pathname.slice(1).split("/");

// A Durable Object whose requests are cases that run inside of it, each in an object of its own.
export function object(cases) {
  return class extends DurableObject {
    static cases = cases;
    async fetch(request) {
      const [, name] = case_of(request);
      const { ctx, env } = this;
      const { storage } = ctx;
      return run(cases[name], this, new Page(), {
        request, ctx, env, storage, sql: storage.sql, kv: storage.kv, url: new URL(request.url),
      });
    }
  };
}

// The worker: GET /list names the cases, /worker/NAME and /BINDING/NAME run one.
export function worker(cases, objects = {}) {
  return {
    async fetch(request, env, ctx) {
      const [kind, name] = case_of(request);
      if (kind === "list") {
        return Response.json([
          ...Object.keys(cases).map((key) => `worker/${key}`),
          ...Object.entries(objects).flatMap(([binding, of]) => Object.keys(of.cases).map((key) => `${binding}/${key}`)),
        ]);
      }
      const url = new URL(request.url);
      if (kind === "worker") return run(cases[name], this, new Page(), { request, env, ctx, url });
      return env[kind].getByName(name).fetch(request);
    },
  };
}

const encoder = new TextEncoder();
export const bytes = (text) => encoder.encode(text);

export async function text_of(stream) {
  let out = "";
  const decoder = new TextDecoder();
  for await (const chunk of stream) out += typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true });
  return out + decoder.decode();
}
