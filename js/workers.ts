// The exports of "cloudflare:workers".

import { refuse_over_rpc } from "./clone_check";
import { native } from "./host";
import { set_tag, unsupported, wrong_argument } from "./util";
import { hold_until } from "./wait_until";

export class DurableObject {
  ctx: unknown;
  env: unknown;
  constructor(ctx: unknown, env: unknown) {
    this.ctx = ctx;
    this.env = env;
  }
}

export class WorkerEntrypoint {
  ctx: unknown;
  env: unknown;
  constructor(ctx: unknown, env: unknown) {
    this.ctx = ctx;
    this.env = env;
  }
}

export class RpcTarget {}

// Classes that may be named (extended, tested with instanceof), but not made yet.
class WorkflowEntrypoint {
  constructor() {
    throw unsupported("WorkflowEntrypoint");
  }
}
class RpcStub {
  constructor() {
    throw unsupported("RpcStub");
  }
}
class RpcPromise {
  constructor() {
    throw new TypeError("Illegal constructor");
  }
}
class RpcProperty {
  constructor() {
    throw new TypeError("Illegal constructor");
  }
}
class ServiceStub {
  constructor() {
    throw new TypeError("Illegal constructor");
  }
}

for (const [name, constructor] of Object.entries({
  DurableObject, WorkerEntrypoint, RpcTarget, WorkflowEntrypoint, RpcStub, RpcPromise, RpcProperty, ServiceStub,
})) {
  set_tag(constructor.prototype, name);
}
refuse_over_rpc(RpcTarget, "RpcTarget");

// The bindings of the deployment; filled by setWorker.
export const env: Record<string, unknown> = {};
// Its exports as bindings: the namespaces of its Durable Object classes.
export const loopback: Record<string, unknown> = {};

function not_yet(name: string): () => never {
  return () => {
    throw unsupported(`${name} of "cloudflare:workers"`);
  };
}

export const cloudflare_workers: Record<string, unknown> = {
  DurableObject,
  RpcPromise,
  RpcProperty,
  RpcStub,
  RpcTarget,
  ServiceStub,
  WorkerEntrypoint,
  WorkflowEntrypoint,
  env,
  exports: loopback,
  waitUntil(promise: unknown): void {
    if (arguments.length === 0) throw wrong_argument("waitUntil", "CloudflareWorkersModule", 1, "Promise");
    hold_until(native.currentIo(), promise);
  },
  abortIsolate: not_yet("abortIsolate()"),
  withEnv: not_yet("withEnv()"),
  withExports: not_yet("withExports()"),
  withEnvAndExports: not_yet("withEnvAndExports()"),
};
