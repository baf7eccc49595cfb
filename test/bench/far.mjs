/**
 * A TCP relay that makes a server far away, as a process of its own: `node far.mjs PORT RTT_MS MBIT`, where PORT is the
 * server's on this machine; says the port that it listens on. Every chunk is late by half of the round trip each way and
 * keeps its order; a new connection costs its handshake's round trip as well. Chunks are on their way together, so one
 * connection is not slower than a thousand. MBIT (0: none) limits each direction, all connections together. Not
 * imitated: loss, TLS, slow start. Plain JavaScript, so that it starts without a loader.
 */
import { connect, createServer } from "node:net";

const [target, rtt, mbit] = process.argv.slice(2).map(Number);
/** Bytes that one direction of a connection may have on their way: what TCP windows of today reach. */
const WINDOW = 16 * 1024 * 1024;

/** When each direction's line is free again, ms. */
const free = { up: 0, down: 0 };

/** When the last bit of so many bytes has left, if they queue now. */
function sent(way, bytes) {
  const now = performance.now();
  free[way] = mbit > 0 ? Math.max(now, free[way]) + (bytes * 8) / (mbit * 1_000) : now;
  return free[way];
}

/** What comes from one socket arrives at the other half of a round trip later, or `more` ms after that at first. */
function late(from, to, way, more) {
  const line = [];
  const open = performance.now() + more;
  let [held, timer, ended] = [0, null, false];
  const arrive = () => {
    timer = null;
    while (line.length > 0 && line[0].due <= performance.now()) {
      const { chunk } = line.shift();
      held -= chunk.length;
      if (chunk.length === 0) to.end();
      else if (to.writable) to.write(chunk);
    }
    if (held < WINDOW && to.writableLength < WINDOW && !ended) from.resume();
    next();
  };
  const next = () => {
    if (timer || line.length === 0) return;
    timer = setTimeout(arrive, Math.max(0, line[0].due - performance.now()));
  };
  const add = (chunk) => {
    held += chunk.length;
    line.push({ chunk, due: Math.max(open, sent(way, chunk.length)) + rtt / 2 });
    if (held >= WINDOW || to.writableLength >= WINDOW) from.pause();
    next();
  };
  from.on("data", add);
  from.on("end", () => {
    ended = true;
    add(Buffer.alloc(0));
  });
  to.on("drain", () => {
    if (held < WINDOW && !ended) from.resume();
  });
  to.on("close", () => {
    clearTimeout(timer);
    line.length = 0;
    from.destroy();
  });
}

const server = createServer({ noDelay: true, allowHalfOpen: true }, (near) => {
  const far = connect({ port: target, host: "127.0.0.1", noDelay: true, allowHalfOpen: true });
  for (const socket of [near, far]) socket.on("error", () => socket.destroy());
  late(near, far, "up", rtt);
  late(far, near, "down", 0);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
