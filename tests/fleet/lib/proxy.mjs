// A way to `port` of this machine that can be cut: { port, cut(), heal(), close() }.
import { connect, createServer } from "node:net";

export async function startProxy(target) {
  const sockets = new Set();
  let open = true;
  const hold = (socket) => sockets.add(socket.on("error", () => {}).once("close", () => sockets.delete(socket)));
  const server = createServer((near) => {
    hold(near);
    if (!open) return;  // as on a network that is gone: nothing comes back
    const far = connect(target, "127.0.0.1");
    hold(far);
    near.pipe(far).pipe(near);
    near.once("close", () => far.destroy());
    far.once("close", () => near.destroy());
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const proxy = { port: server.address().port };
  const drop = () => sockets.forEach((socket) => socket.destroy());
  // What is connected says nothing more, and neither does what connects from now on.
  proxy.cut = () => {
    open = false;
    for (const socket of sockets) socket.unpipe().pause();
  };
  proxy.heal = () => {
    open = true;
    drop();
  };
  proxy.close = () => {
    drop();
    server.close();
  };
  return proxy;
}
