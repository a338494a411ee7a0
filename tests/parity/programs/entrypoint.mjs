// objects: Plain
import { DurableObject, WorkerEntrypoint, env as imported_env, waitUntil, exports as imported_exports } from "cloudflare:workers";
import * as everything from "cloudflare:workers";
import { show } from "../lib/harness.mjs";

export class Plain extends DurableObject {
  constructor(...args) {
    super(...args);
    this.args = args.length;
  }
  about() {
    return [this.args, Object.keys(this).sort(), this.ctx === undefined, this.env === undefined, typeof this.fetch, this.env.TEXT, imported_env.TEXT];
  }
}

let made = 0;
export default class extends WorkerEntrypoint {
  constructor(ctx, env) {
    super(ctx, env);
    this.number = ++made;
  }
  async fetch(request) {
    const { pathname } = new URL(request.url);
    const lines = [];
    const say = (label, value) => lines.push(`${label}: ${show(value)}`);
    if (pathname === "/list") return Response.json(["about", "object", "module", "throws"]);
    if (pathname === "/about") {
      say("this", [Object.keys(this).sort(), this instanceof WorkerEntrypoint]);
      say("a new one each", this.number > 0);
      say("arguments", arguments.length);
      say("env", this.env.TEXT);
      say("ctx", Object.prototype.toString.call(this.ctx));
      this.ctx.waitUntil(Promise.resolve());
      say("prototype", Object.getOwnPropertyNames(WorkerEntrypoint.prototype));
    }
    if (pathname === "/object") {
      say("about", await this.env.Plain.getByName("x").about());
      say("super without arguments", (() => { try { return new DurableObject(); } catch (e) { return `${e}`; } })());
    }
    if (pathname === "/module") {
      say("env", [imported_env === this.env, imported_env.TEXT, Object.keys(imported_env).sort()]);
      say("exports", Object.keys(imported_exports ?? {}).sort());
      say("waitUntil", waitUntil(Promise.resolve()));
      say("names", Object.keys(everything).sort());
    }
    if (pathname === "/throws") throw new Error("from the class");
    return new Response(lines.join("\n"));
  }
}
