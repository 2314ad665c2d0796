// Adds a bearer token to every request, because the conformance suite cannot
// send one. It speaks as the gateway: its own authority in Host and Origin
// becomes the gateway's; every other value, evil ones above all, passes as it
// came, so that the suite still judges the gateway's own checks.

import http from 'node:http';

/** Starts the proxy on any port of 127.0.0.1; resolves to the URL to test instead of `url`. */
export async function startProxy(url, token) {
  const target = new URL(url);
  const proxy = http.createServer((request, response) => {
    const own = request.socket.localPort;
    const ours = (value) => value.replace(new RegExp(`^((?:http://)?)(?:localhost|127\\.0\\.0\\.1):${own}$`), `$1${target.host}`);
    const headers = [];
    for (let i = 0; i < request.rawHeaders.length; i += 2) {
      const [name, value] = [request.rawHeaders[i], request.rawHeaders[i + 1]];
      headers.push(name, /^(host|origin)$/i.test(name) ? ours(value) : value);
    }
    if (token) headers.push('Authorization', `Bearer ${token}`);

    const { hostname, port } = target;
    const upstream = http.request({ hostname, port, method: request.method, path: request.url, headers });
    upstream.on('response', (reply) => {
      response.writeHead(reply.statusCode, reply.rawHeaders);
      response.flushHeaders();
      reply.pipe(response);
      reply.on('error', () => response.destroy());
    });
    upstream.on('error', () => response.destroy());
    response.on('close', () => upstream.destroy());
    request.pipe(upstream);
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  proxy.unref();
  return `http://127.0.0.1:${proxy.address().port}${target.pathname}`;
}
