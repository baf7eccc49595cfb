/**
 * Loaded in the child of extractor.ts before any parser. It disables all network functions of Node, which the
 * permission model of some versions leaves open, and the console, since stdout is for the answer. Files, processes,
 * threads and addons are disabled by the permission model, and code generation from strings by a flag.
 */
import dgram from "node:dgram";
import dns from "node:dns";
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";

function refuse() {
  throw new Error("there is no network in this process");
}

// http, https, tls and fetch all call a socket's connect; open pipes do not.
net.Socket.prototype.connect = refuse;
net.Server.prototype.listen = refuse;
for (const name of ["bind", "connect", "send"]) dgram.Socket.prototype[name] = refuse;
for (const names of [dns, dns.promises, dns.Resolver.prototype, dns.promises.Resolver.prototype]) {
  for (const name of Object.getOwnPropertyNames(names)) {
    if (name !== "constructor" && typeof names[name] === "function") names[name] = refuse;
  }
}
for (const name of ["fetch", "WebSocket", "EventSource", "XMLHttpRequest"]) Reflect.deleteProperty(globalThis, name);
for (const name of ["debug", "error", "info", "log", "trace", "warn"]) console[name] = () => {};
syncBuiltinESMExports();
