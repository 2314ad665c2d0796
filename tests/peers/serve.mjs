// What every fixture server has in common: it binds 127.0.0.1, says where on
// one line of stdout, and ends on SIGTERM or SIGINT.

/** Listens on `port` (0: any) and prints `listening http://127.0.0.1:PORT{path}`; resolves to the origin. */
export async function listen(server, port, path = '') {
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  const origin = `http://127.0.0.1:${server.address().port}`;
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(0));
  console.log(`listening ${origin}${path}`);
  return origin;
}
