// The JavaScript half of the runtime. Runs once in every context: defines the globals, and hands
// the host its hooks. Nothing here asks for the time or for chance, so that a snapshot can hold it.

import { native } from "./host";
import "./polyfills";
import "./dom_exception";
import "./encoding";
import "./events";
import "./timers";
import "./abort";
import "./url";
import "./streams";
import "./blob";
import "./formdata";
import "./request";
import "./response";
import "./fetch";
import "./console";
import "./crypto";
import "./unsupported";
import "./globals";
import { async_hooks } from "./async_context";
import { completions } from "./calls";
import { make_error } from "./errors";
import { timer_due } from "./timers";
import { describe } from "./inspect";
import * as worker from "./worker";
import { cloudflare_workers } from "./workers";

native.install({
  modules: {
    "cloudflare:workers": cloudflare_workers,
    "node:async_hooks": { ...async_hooks, default: async_hooks },
    async_hooks: { ...async_hooks, default: async_hooks },
  },
  setWorker: worker.set_worker,
  fetch: worker.on_fetch,
  scheduled: worker.on_scheduled,
  construct: worker.construct,
  cellFetch: worker.on_cell_fetch,
  cellRpc: worker.on_cell_rpc,
  cellAlarm: worker.on_cell_alarm,
  dropCell: worker.drop_cell,
  callHead: completions.callHead,
  callValue: completions.callValue,
  callError: completions.callError,
  timer: timer_due,
  disconnected: worker.on_disconnected,
  ended: worker.on_ended,
  makeError: make_error,
  describe,
});
