// The server that the programs fetch from.
import { createServer } from "node:http";
import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";

const read = async (request) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
};

const routes = {
  // What arrived: method, path, headers in order, body.
  async echo(request, response) {
    const body = await read(request);
    const headers = [];
    for (let i = 0; i < request.rawHeaders.length; i += 2) {
      headers.push([request.rawHeaders[i].toLowerCase(), request.rawHeaders[i + 1]]);
    }
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ method: request.method, url: request.url, headers, body: body.toString("latin1") }));
  },
  // /status/CODE
  status(request, response, [code]) {
    response.writeHead(Number(code), { "x-code": code });
    response.end(Number(code) === 204 || Number(code) === 304 ? undefined : `status ${code}`);
  },
  // /redirect/CODE/N: N times, then /echo.
  redirect(request, response, [code, left]) {
    const to = Number(left) > 1 ? `/redirect/${code}/${left - 1}` : "/echo?end";
    response.writeHead(Number(code), { location: to });
    response.end("moved");
  },
  // /moved/CODE?to=URL
  moved(request, response, [code], url) {
    response.writeHead(Number(code), { location: url.searchParams.get("to") });
    response.end();
  },
  nowhere(request, response) {
    response.writeHead(302);
    response.end("no location");
  },
  headers(request, response) {
    response.setHeader("X-Mixed-Case", "Value");
    response.setHeader("x-twice", ["a", "b"]);
    response.setHeader("set-cookie", ["a=1; Path=/", "b=2"]);
    response.end("headers");
  },
  reason(request, response) {
    response.writeHead(200, "Very Fine");
    response.end("reason");
  },
  gzip(request, response) {
    response.setHeader("content-encoding", "gzip");
    response.end(gzipSync("compressed ".repeat(100)));
  },
  // /slow/CHUNKS/MS: a chunk every MS.
  slow(request, response, [chunks, ms]) {
    let n = 0;
    const timer = setInterval(() => {
      response.write(`chunk ${n++}\n`);
      if (n === Number(chunks)) {
        clearInterval(timer);
        response.end();
      }
    }, Number(ms));
    response.on("close", () => clearInterval(timer));
  },
  // Says so much, then cuts the connection.
  cut(request, response) {
    response.writeHead(200, { "content-length": "1000" });
    response.write("so far", () => request.socket.destroy());
  },
  "cut-chunked"(request, response) {
    response.write("so far", () => request.socket.destroy());
  },
  hangup(request) {
    request.socket.destroy();
  },
  never() {},
  // /big/BYTES
  big(request, response, [size]) {
    const chunk = Buffer.alloc(65536, "x");
    let left = Number(size);
    const more = () => {
      while (left > 0) {
        const n = Math.min(left, chunk.length);
        left -= n;
        if (!response.write(chunk.subarray(0, n))) return response.once("drain", more);
      }
      response.end();
    };
    more();
  },
  // Length and hash of what was sent.
  async hash(request, response) {
    const hash = createHash("sha256");
    let length = 0;
    for await (const chunk of request) {
      length += chunk.length;
      hash.update(chunk);
    }
    response.end(JSON.stringify({ length, sha256: hash.digest("hex"), framing: request.headers["content-length"] ?? request.headers["transfer-encoding"] }));
  },
  // Answers before the body has come, and sends back each chunk as it comes.
  async duplex(request, response) {
    response.flushHeaders();
    for await (const chunk of request) response.write(`got ${chunk.length};`);
    response.end("end");
  },
  cookies(request, response) {
    response.end(JSON.stringify(request.headers.cookie ?? null));
  },
};

export async function start_origin() {
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://origin");
    const [name, ...rest] = url.pathname.slice(1).split("/");
    const route = routes[name];
    if (route === undefined) {
      response.statusCode = 404;
      response.end("no such route");
      return;
    }
    (async () => route(request, response, rest, url))().catch(() => response.destroy());
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
