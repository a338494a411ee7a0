// Every example does what its first lines promise, on workerd and on celld alike.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import { hasCommand, startCelld } from "./lib/celld.mjs";
import { startWorkerd } from "./lib/workerd.mjs";

const hosts = [
  { name: "workerd", start: startWorkerd, skip: false },
  { name: "celld", start: startCelld, skip: hasCommand("dev") ? false : "celld dev does not exist yet" },
];

// example, and its tests: name -> what to do with call(method, path, body).
const examples = {
  counter: {
    counts_from_one_and_keeps_names_apart: async (call) => {
      assert.deepEqual(await call("GET", "/"), { n: 1, name: "default" });
      assert.deepEqual(await call("GET", "/"), { n: 2, name: "default" });
      assert.deepEqual(await call("GET", "/?name=other"), { n: 1, name: "other" });
    },
    keeps_what_it_acknowledged_over_a_kill: async (call, host) => {
      for (let n = 1; n <= 5; n++) assert.equal((await call("GET", "/?name=kept")).n, n);
      await host.restart();
      assert.equal((await call("GET", "/?name=kept")).n, 6);
    },
  },
  chat: {
    keeps_the_history_of_each_room: async (call) => {
      await call("POST", "/rooms/lobby", { from: "ada", text: "hello" });
      const { id } = await call("POST", "/rooms/lobby", { from: "bob", text: "hi ✓" });
      await call("POST", "/rooms/attic", { from: "eve", text: "?" });
      const { messages } = await call("GET", "/rooms/lobby");
      assert.deepEqual(messages.map((m) => [m.from, m.text]), [["ada", "hello"], ["bob", "hi ✓"]]);
      assert.deepEqual((await call("GET", `/rooms/lobby?after=${id}`)).messages, []);
    },
    refuses_what_is_no_message: async (call) => {
      assert.deepEqual(await call("POST", "/rooms/lobby", { from: 1 }), { error: "from and text must be strings" });
    },
  },
  todo: {
    adds_changes_and_removes: async (call) => {
      const { ids } = await call("POST", "/groceries", [{ title: "milk" }, { title: "bread" }]);
      await call("PATCH", `/groceries/${ids[0]}`, { done: true });
      const { items, open } = await call("GET", "/groceries");
      assert.deepEqual(items, [{ id: ids[0], title: "milk", done: true }, { id: ids[1], title: "bread", done: false }]);
      assert.equal(open, 1);
      await call("DELETE", `/groceries/${ids[1]}`);
      assert.equal((await call("GET", "/groceries")).open, 0);
    },
    a_refused_item_undoes_the_whole_request: async (call) => {
      assert.match((await call("POST", "/strict", [{ title: "ok" }, { title: "" }])).error, /CHECK constraint failed/);
      assert.deepEqual(await call("GET", "/strict"), { items: [], open: 0 });
    },
  },
  alarm: {
    delivers_in_time_and_only_what_is_due: async (call) => {
      await call("POST", "/ada", { text: "later", in_ms: 3_600_000 });
      await call("POST", "/ada", { text: "soon", in_ms: 300 });
      let state;
      for (let tries = 0; tries < 100; tries++) {
        state = await call("GET", "/ada");
        if (state.delivered.length > 0) break;
        await sleep(100);
      }
      assert.deepEqual(state.delivered.map((r) => r.text), ["soon"]);
      assert.deepEqual(state.pending.map((r) => r.text), ["later"]);
      assert.ok(state.delivered[0].delivered_ms >= state.delivered[0].due_ms);
      assert.equal(state.alarm_ms, state.pending[0].due_ms);
    },
  },
  typescript: {
    greets_and_remembers: async (call) => {
      assert.deepEqual(await call("POST", "/?name=ada"), { text: "Hello, ada", visit: 1 });
      assert.deepEqual(await call("POST", "/?name=bob"), { text: "Hello, bob", visit: 1 });
      assert.deepEqual(await call("POST", "/?name=ada"), { text: "Hello, ada", visit: 2 });
      assert.deepEqual(await call("GET", "/"), [{ name: "ada", visits: 2 }, { name: "bob", visits: 1 }]);
    },
  },
};

for (const { name: hostName, start, skip } of hosts) {
  for (const [example, tests] of Object.entries(examples)) {
    describe(`${example} on ${hostName}`, { skip }, () => {
      let host;
      before(async () => (host = await start(fileURLToPath(new URL(`../../examples/${example}`, import.meta.url)))));
      after(() => host?.stop());
      const call = async (method, path, body) => {
        const response = await fetch(host.url + path, { method, body: body && JSON.stringify(body) });
        const text = await response.text();
        assert.ok(response.status < 500, `${method} ${path}: ${response.status} ${text}`);
        return text === "" ? undefined : JSON.parse(text);
      };
      for (const [name, run] of Object.entries(tests)) test(name, () => run(call, host));
    });
  }
}
