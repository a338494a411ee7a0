// POST /?name=ada    signs the guest book and greets
// GET  /             who signed, newest first
import type { Env } from "./env";
export { Guestbook } from "./guestbook";

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const book = env.GUESTBOOK.getByName("main");
    if (request.method !== "POST") return Response.json(await book.guests());
    const name = new URL(request.url).searchParams.get("name");
    if (name === null || name === "") return new Response("who?\n", { status: 400 });
    const visit = await book.sign(name);
    return Response.json({ text: `${env.GREETING}, ${name}`, visit });
  },
};
