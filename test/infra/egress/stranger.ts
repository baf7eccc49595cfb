import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer as createTlsServer } from "node:tls";

/** A server at the level of bytes: it can misbehave in ways that node:http does not offer. */
export interface Stranger {
  port: number;
  origin: string;
  /** All bytes that came in, over all connections. */
  received(): string;
  connections(): number;
  close(): Promise<void>;
}

/** Called once per connection, when a whole request head (and a body, when content-length says so) is there. */
export type Behaviour = (socket: Socket, request: string) => void;

const whole = (text: string): boolean => {
  const end = text.indexOf("\r\n\r\n");
  const length = Number(/^content-length: (\d+)/im.exec(text)?.[1] ?? 0);
  return end >= 0 && text.length - end - 4 >= length;
};

export async function stranger(
  behave: Behaviour,
  options: { onConnect?: (socket: Socket) => void; tls?: { key: string; cert: string }; host?: string } = {},
): Promise<Stranger> {
  const sockets = new Set<Socket>();
  let received = "";
  let connections = 0;
  const accept = (socket: Socket): void => {
    connections += 1;
    sockets.add(socket);
    let request = "";
    let answered = false;
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    options.onConnect?.(socket);
    socket.on("data", (chunk) => {
      received += chunk.toString("latin1");
      request += chunk.toString("latin1");
      if (!answered && whole(request)) {
        answered = true;
        behave(socket, request);
      }
    });
  };
  const server: Server = options.tls ? createTlsServer(options.tls, accept) : createServer(accept);
  server.on("tlsClientError", () => {});
  await new Promise<void>((resolve) => server.listen(0, options.host ?? "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    origin: `${options.tls ? "https" : "http"}://127.0.0.1:${port}`,
    received: () => received,
    connections: () => connections,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A whole answer with a length, after which the connection stays open: whoever waits for the end waits too long. */
export const say =
  (head: string, body: string | Uint8Array = ""): Behaviour =>
  (socket) => {
    socket.write(`HTTP/1.1 ${head}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`);
    socket.write(body);
  };

/** A certificate of its own for `names` (as in openssl's subjectAltName). */
export function certificate(names: string): { key: string; cert: string } {
  const dir = mkdtempSync(join(tmpdir(), "touchstone-tls-"));
  try {
    const [key, cert] = [join(dir, "key.pem"), join(dir, "cert.pem")];
    const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    const what = ["-subj", "/CN=stranger", "-addext", `subjectAltName=${names}`];
    execFileSync("openssl", ["req", ...kind, "-keyout", key, "-out", cert, ...what], { stdio: "ignore" });
    return { key: readFileSync(key, "utf8"), cert: readFileSync(cert, "utf8") };
  } finally {
    rmSync(dir, { recursive: true });
  }
}
